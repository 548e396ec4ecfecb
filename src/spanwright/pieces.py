"""Words to the rows of pieces that a transformer reads. No word is lost and no word is silent.

A sentence is one row, ``[CLS] left words right [SEP]``. One with more pieces than the transformer's window becomes
several rows that overlap at word boundaries, and each word is read in the row that shows most on both sides of it.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

log = logging.getLogger(__name__)

CACHE_WORDS = 200_000
CACHE_CHARACTERS = 64  # longer words are hardly met twice, and may be megabytes


@dataclass(frozen=True)
class Specials:
    """The piece ids that stand around every row, and the one that fills it up."""

    first: int
    last: int
    pad: int
    unknown: int


class SentencePieces(NamedTuple):
    """The pieces of every word of a sentence, and of its context."""

    words: list[list[int]]
    left: Sequence[list[int]] = ()
    right: Sequence[list[int]] = ()

    @property
    def n_pieces(self) -> int:
        return sum(map(len, self.left)) + sum(map(len, self.words)) + sum(map(len, self.right))


@dataclass(frozen=True)
class Pieces:
    """R rows of T pieces for B sentences of at most N words (R > B where a sentence needed windows)."""

    ids: Tensor  # [R, T]
    mask: Tensor  # [R, T] True where there is a piece
    word: Tensor  # [R, T] the word b * N + n that reads this piece, or B * N: none does
    sentence: Tensor  # [R] the sentence of each row
    words: Tensor  # [B, N] True where there is a word

    def to(self, device: torch.device) -> Pieces:
        return Pieces(*(getattr(self, name).to(device) for name in ("ids", "mask", "word", "sentence", "words")))


class Tokenizer:
    """Words to piece ids, each word apart from its neighbours, remembered. Never empty, never longer than `longest`."""

    def __init__(self, tokenize: Callable[[list[str]], list[list[int]]], specials: Specials, longest: int):
        self.tokenize = tokenize
        self.specials = specials
        self.longest = longest
        self._seen: dict[str, list[int]] = {}
        self._warned: set[int] = set()  # hashes of words

    def __call__(self, words: Sequence[str]) -> list[list[int]]:
        seen = self._seen  # the same to the end of this call: another thread may begin a new one
        if len(seen) > CACHE_WORDS:
            seen = self._seen = {}
        new = list({word: None for word in words if word not in seen})
        found = dict(zip(new, map(self._mended, new, self.tokenize(new)), strict=True)) if new else {}
        seen.update((word, ids) for word, ids in found.items() if len(word) <= CACHE_CHARACTERS)
        return [seen[word] if word in seen else found[word] for word in words]

    def _mended(self, word: str, ids: list[int]) -> list[int]:
        if not ids:  # a soft hyphen, say, that the tokenizer strips: the word still needs a state
            return [self.specials.unknown]
        if len(ids) > self.longest:
            if hash(word) not in self._warned:
                self._warn(word, ids)
            return ids[: self.longest // 2] + ids[len(ids) - self.longest // 2 :]
        return ids

    def _warn(self, word: str, ids: list[int]) -> None:
        if len(self._warned) > CACHE_WORDS:
            self._warned = set()
        self._warned.add(hash(word))
        log.warning("a word of %d characters has %d pieces; its first and last %d are read: %.40r...",
                    len(word), len(ids), self.longest // 2, word)  # fmt: skip


def pretrained_tokenize(tokenizer: Any) -> Callable[[list[str]], list[list[int]]]:
    """A Hugging Face tokenizer as a function of words. Byte-level ones expect a space before a word."""
    splitter = getattr(getattr(tokenizer, "backend_tokenizer", None), "pre_tokenizer", None)
    before = " " if splitter is not None and b'"ByteLevel"' in splitter.__getstate__() else ""

    def tokenize(words: list[str]) -> list[list[int]]:
        texts = [before + encodable(word) for word in words]
        # A word that is spelt like a special piece, "[SEP]" say, is text all the same.
        found = tokenizer(texts, add_special_tokens=False, split_special_tokens=True, verbose=False)
        return list(found["input_ids"])

    return tokenize


def encodable(word: str) -> str:
    """Half a surrogate pair is no character, and tokenizers refuse it: it becomes U+FFFD."""
    return word.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def hashed_tokenize(vocabulary: int, first_id: int, characters: int = 4) -> Callable[[list[str]], list[list[int]]]:
    """Pieces without a vocabulary, for `TinyEncoder`: every four characters are hashed."""

    def piece(text: str) -> int:
        return first_id + zlib.crc32(text.encode("utf-8", "surrogatepass")) % (vocabulary - first_id)

    def tokenize(words: list[str]) -> list[list[int]]:
        return [[piece(word[i : i + characters]) for i in range(0, len(word), characters)] for word in words]

    return tokenize


def n_cells(sentence: SentencePieces, capacity: int, n_around: int) -> int:
    """Rows x pieces of a row that a sentence takes in a batch, with `n_around` pieces around the text of each row."""
    if sum(map(len, sentence.words)) <= capacity:
        return min(sentence.n_pieces, capacity) + n_around
    return len(windows([len(word) for word in sentence.words], capacity)) * (capacity + n_around)


def windows(sizes: Sequence[int], capacity: int) -> list[tuple[int, int]]:
    """Word ranges of at most `capacity` pieces that cover all words; no word may be larger than that.

    Neighbours share about a quarter of a window, and one word at least where it fits beside the next.
    """
    ends = np.cumsum(sizes)
    if not len(sizes) or ends[-1] <= capacity:
        return [(0, len(sizes))]
    starts = ends - np.asarray(sizes)
    found, start = [], 0
    while True:
        end = int(np.searchsorted(ends, starts[start] + capacity, side="right"))
        found.append((start, end))
        if end == len(sizes):
            return found
        wanted = min(int(np.searchsorted(starts, starts[end] - capacity // 4)), end - 1)
        holds_end = int(np.searchsorted(starts, ends[end] - capacity))  # where windows that hold word `end` begin
        start = max(wanted, holds_end, start + 1)


def owners(sizes: Sequence[int], ranges: Sequence[tuple[int, int]]) -> np.ndarray:
    """The window of each word: the one that shows most on the side where it shows least; the first of equals.

    The sentence's own ends hide nothing.
    """
    if len(ranges) == 1:
        return np.zeros(len(sizes), dtype=np.int64)
    ends = np.cumsum(sizes)
    starts = ends - np.asarray(sizes)
    shown = np.full((len(ranges), len(sizes)), -1.0)
    for row, (first, last) in enumerate(ranges):
        before = np.full(last - first, np.inf) if first == 0 else starts[first:last] - starts[first]
        after = np.full(last - first, np.inf) if last == len(sizes) else ends[last - 1] - ends[first:last]
        shown[row, first:last] = np.minimum(before, after)
    return shown.argmax(axis=0)


def trimmed_context(sentence: SentencePieces, capacity: int) -> tuple[Sequence[list[int]], Sequence[list[int]]]:
    """The nearest words of the context that still fit beside the sentence, half of the room to each side."""
    room = capacity - sum(map(len, sentence.words))
    n_right = sum(map(len, sentence.right))
    left = _nearest(sentence.left[::-1], room - min(n_right, room // 2))[::-1]
    right = _nearest(sentence.right, room - sum(map(len, left)))
    return left, right


def _nearest(words: Sequence[list[int]], room: int) -> Sequence[list[int]]:
    n_words = int(np.searchsorted(np.cumsum([len(word) for word in words]), room, side="right")) if room > 0 else 0
    return words[:n_words]


def layout(sentences: Sequence[SentencePieces], capacity: int, specials: Specials, first_only: bool = False) -> Pieces:
    """Rows of at most ``capacity + 2`` pieces. `first_only`: of each word only the first piece is pooled."""
    n_words = max(len(sentence.words) for sentence in sentences)
    nobody = len(sentences) * n_words
    ids: list[list[int]] = []
    word: list[list[int]] = []
    sentence_of_row: list[int] = []
    for b, sentence in enumerate(sentences):
        sizes = [len(pieces) for pieces in sentence.words]
        ranges = windows(sizes, capacity)
        owner = owners(sizes, ranges)
        left, right = trimmed_context(sentence, capacity) if len(ranges) == 1 else ([], [])
        n_left, n_right = sum(map(len, left)), sum(map(len, right))
        for row, (first, last) in enumerate(ranges):
            row_ids = [specials.first, *(i for pieces in left for i in pieces)]
            row_word = [nobody] * (1 + n_left)
            for n in range(first, last):
                pieces, reader = sentence.words[n], b * n_words + n if owner[n] == row else nobody
                row_ids += pieces
                row_word += [reader] + [nobody if first_only else reader] * (len(pieces) - 1)
            ids.append([*row_ids, *(i for pieces in right for i in pieces), specials.last])
            word.append(row_word + [nobody] * (n_right + 1))
            sentence_of_row.append(b)
    lengths = torch.tensor([len(sentence.words) for sentence in sentences])
    return Pieces(
        ids=_padded(ids, specials.pad),
        mask=_padded([[1] * len(row) for row in ids], 0).bool(),
        word=_padded(word, nobody),
        sentence=torch.tensor(sentence_of_row),
        words=torch.arange(n_words)[None, :] < lengths[:, None],
    )


def _padded(rows: list[list[int]], fill: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows])
