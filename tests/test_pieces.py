"""Words to rows of pieces: no word is lost, none is silent, and each is read where most is seen around it."""

from __future__ import annotations

import logging
from itertools import count, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spanwright import pieces
from spanwright.pieces import (
    SentencePieces,
    Specials,
    Tokenizer,
    encodable,
    hashed_tokenize,
    layout,
    n_cells,
    owners,
    trimmed_context,
    windows,
)

SPECIALS = Specials(first=1, last=2, pad=0, unknown=3)
LETTERS = {letter: 10 + i for i, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}

sizes_lists = st.lists(st.integers(1, 6), max_size=40)
rooms = st.integers(6, 25)  # the largest word of 6 pieces still fits


def by_letter(words: list[str]) -> list[list[int]]:
    """A tokenizer that knows small letters, and is silent about all else."""
    return [[LETTERS[letter] for letter in word if letter in LETTERS] for word in words]


def counted(sizes: list[int], numbers: count) -> list[list[int]]:
    """Words of those sizes, no piece like another."""
    return [[next(numbers) for _ in range(size)] for size in sizes]


def most_shown(sizes: list[int], ranges: list[tuple[int, int]], n: int) -> int:
    """The window that shows most pieces on the poorer side of word `n`, counted one by one."""
    best, best_shown = -1, -1.0
    for row, (first, last) in enumerate(ranges):
        if not first <= n < last:
            continue
        before = float("inf") if first == 0 else float(sum(sizes[first:n]))
        after = float("inf") if last == len(sizes) else float(sum(sizes[n + 1 : last]))
        if min(before, after) > best_shown:
            best, best_shown = row, min(before, after)
    return best


# -------------------------------------------------------------------------------------------------- the tokenizer


def test_no_word_is_silent() -> None:
    tokenizer = Tokenizer(by_letter, SPECIALS, longest=8)
    assert tokenizer(["ab", "\u00ad", "", "é", "b"]) == [[10, 11], [3], [3], [3], [11]]
    assert tokenizer([]) == []


def test_blobs_are_not_remembered() -> None:
    tokenizer = Tokenizer(by_letter, SPECIALS, longest=8)
    for i in range(20):
        tokenizer(["a" * 100_000 + str(i), "b"])
    assert sum(map(len, tokenizer._seen)) < 1000


def test_a_long_word_is_read_at_both_ends_and_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = Tokenizer(by_letter, SPECIALS, longest=8)
    word = "ab" * 1250 + "yz" * 1250
    with caplog.at_level(logging.WARNING):
        assert tokenizer([word]) == [[10, 11, 10, 11, 34, 35, 34, 35]]
        tokenizer([word, word])
    assert len(caplog.records) == 1  # once a word, not once a sentence
    assert "5000 characters" in caplog.text and "abab" in caplog.text and len(caplog.text) < 300


@pytest.mark.parametrize("longest", [2, 3, 7])
def test_no_word_is_longer_than_the_longest(longest: int) -> None:
    tokenizer = Tokenizer(by_letter, SPECIALS, longest)
    assert [len(ids) <= longest and len(ids) > 0 for ids in tokenizer(["a" * n for n in range(1, 20)])] == [True] * 19
    assert tokenizer(["a" * longest]) == [[10] * longest]  # whole as long as it fits


def test_every_word_is_tokenized_once() -> None:
    asked: list[str] = []

    def tokenize(words: list[str]) -> list[list[int]]:
        asked.extend(words)
        return by_letter(words)

    tokenizer = Tokenizer(tokenize, SPECIALS, longest=8)
    assert tokenizer(["a", "b", "a"]) == [[10], [11], [10]]
    assert tokenizer(["b", "c", "a"]) == [[11], [12], [10]]
    assert asked == ["a", "b", "c"]


def test_memory_of_words_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "CACHE_WORDS", 10)
    tokenizer = Tokenizer(by_letter, SPECIALS, longest=8)
    for first in LETTERS:
        assert tokenizer([first + second for second in LETTERS]) == [[LETTERS[first], i] for i in LETTERS.values()]
        assert len(tokenizer._seen) <= 10 + len(LETTERS)


@given(st.lists(st.text(st.characters(exclude_categories=()), max_size=9), max_size=5), st.sampled_from([20, 1024]))
def test_hashed_pieces_are_in_the_vocabulary(words: list[str], vocabulary: int) -> None:
    for word, ids in zip(words, hashed_tokenize(vocabulary, 4)(words), strict=True):
        assert len(ids) == -(-len(word) // 4)
        assert all(4 <= i < vocabulary for i in ids)


def test_hashed_pieces_tell_words_apart() -> None:
    tokenize = hashed_tokenize(1024, 4)
    assert tokenize(["Bergen"]) == tokenize(["Bergen"])
    assert len({tuple(ids) for ids in tokenize(["Bergen", "bergen", "Bergan", "Berg"])}) == 4
    assert tokenize(["Bergen"])[0][0] == tokenize(["Berg"])[0][0]


@given(st.text(st.characters(exclude_categories=()), max_size=6))
def test_every_word_can_be_encoded(word: str) -> None:
    assert encodable(word).encode("utf-8").decode("utf-8") == encodable(word)
    if not any(0xD800 <= ord(character) < 0xE000 for character in word):
        assert encodable(word) == word


def test_half_a_surrogate_pair_is_replaced() -> None:
    assert encodable("a\ud83db") == "a\ufffdb"
    assert encodable("\ud83d\ude00") == "😀"


# ---------------------------------------------------------------------------------------------------- the windows


@given(sizes_lists, rooms)
def test_windows_cover_all_words(sizes: list[int], capacity: int) -> None:
    ranges = windows(sizes, capacity)
    assert {n for first, last in ranges for n in range(first, last)} == set(range(len(sizes)))
    assert all(sum(sizes[first:last]) <= capacity for first, last in ranges)
    if sum(sizes) <= capacity:
        assert ranges == [(0, len(sizes))]


@given(sizes_lists, rooms)
def test_windows_overlap_and_move_on(sizes: list[int], capacity: int) -> None:
    ranges = windows(sizes, capacity)
    for (first, last), (next_first, next_last) in pairwise(ranges):
        assert first < next_first <= last < next_last
        may_share = last - first > 1 and sizes[last - 1] + sizes[last] <= capacity
        assert (next_first < last) == may_share  # words beside a seam are seen with a neighbour on both sides
        assert sum(sizes[first : last + 1]) > capacity  # as many words as fit


def test_neighbours_share_a_quarter() -> None:
    assert windows([1] * 100, 40) == [(0, 40), (30, 70), (60, 100)]
    assert windows([4] * 30, 48) == [(0, 12), (9, 21), (18, 30)]


def test_words_as_large_as_a_window() -> None:
    assert windows([10, 10, 10], 10) == [(0, 1), (1, 2), (2, 3)]
    assert windows([1, 10, 1], 10) == [(0, 1), (1, 2), (2, 3)]
    assert windows([5, 5, 5, 5], 10) == [(0, 2), (1, 3), (2, 4)]
    assert windows([], 10) == [(0, 0)]


@given(sizes_lists, rooms)
def test_every_word_has_the_owner_that_shows_most(sizes: list[int], capacity: int) -> None:
    ranges = windows(sizes, capacity)
    assert owners(sizes, ranges).tolist() == [most_shown(sizes, ranges, n) for n in range(len(sizes))]


def test_the_ends_of_the_sentence_hide_nothing() -> None:
    assert owners([1] * 14, [(0, 10), (4, 14)]).tolist() == [0] * 7 + [1] * 7


# ---------------------------------------------------------------------------------------------------- the context


@given(sizes_lists, st.lists(st.integers(1, 5), max_size=9), st.lists(st.integers(1, 5), max_size=9), rooms)
def test_context_is_trimmed_to_what_fits(words: list[int], left: list[int], right: list[int], room: int) -> None:
    numbers = count()
    sentence = SentencePieces(counted(words, numbers), counted(left, numbers), counted(right, numbers))
    capacity = sum(words) + room - 6
    kept_left, kept_right = trimmed_context(sentence, capacity)
    n_left, n_right = sum(map(len, kept_left)), sum(map(len, kept_right))
    assert kept_left == sentence.left[len(left) - len(kept_left) :]  # the nearest words
    assert kept_right == sentence.right[: len(kept_right)]
    assert sum(words) + n_left + n_right <= capacity
    if sentence.n_pieces <= capacity:
        assert (len(kept_left), len(kept_right)) == (len(left), len(right))
    half = (room - 6) // 2
    if len(kept_left) < len(left):  # each side has its half at least, down to a word
        assert n_left + left[-1 - len(kept_left)] > half
    if len(kept_right) < len(right):
        assert n_left + n_right + right[len(kept_right)] > room - 6


def test_a_short_side_leaves_its_room_to_the_other() -> None:
    sentence = SentencePieces([[9]], [[1], [2], [3], [4], [5]], [[6], [7]])
    assert trimmed_context(sentence, 7) == ([[2], [3], [4], [5]], [[6], [7]])
    assert trimmed_context(sentence, 5) == ([[4], [5]], [[6], [7]])
    assert trimmed_context(sentence, 2) == ([[5]], [])
    assert trimmed_context(sentence, 1) == ([], [])


# --------------------------------------------------------------------------------------------------------- layout


def check_layout(sentences: list[SentencePieces], capacity: int, first_only: bool) -> None:
    """`layout` against a word-by-word reading. No two pieces may be alike."""
    found = layout(sentences, capacity, SPECIALS, first_only)
    n_words = max(len(sentence.words) for sentence in sentences)
    nobody = len(sentences) * n_words
    assert found.ids.shape == found.mask.shape == found.word.shape
    rows: list[list[int]] = []
    readers: dict[int, tuple[int, int]] = {}  # piece -> (row, word)
    for row in range(len(found.ids)):
        size = int(found.mask[row].sum())
        assert found.mask[row].tolist() == [True] * size + [False] * (found.mask.shape[1] - size)
        assert set(found.ids[row, size:].tolist()) <= {SPECIALS.pad}
        assert size <= capacity + 2
        ids, word = found.ids[row, :size].tolist(), found.word[row].tolist()
        assert (ids[0], ids[-1]) == (SPECIALS.first, SPECIALS.last)
        assert {word[0], *word[size - 1 :]} == {nobody}
        rows.append(ids[1:-1])
        for piece, reader in zip(ids, word, strict=False):
            if reader != nobody:
                assert piece not in readers
                readers[piece] = row, reader
    expected_rows: list[list[int]] = []
    expected_readers: dict[int, tuple[int, int]] = {}
    for b, sentence in enumerate(sentences):
        sizes = list(map(len, sentence.words))
        ranges = windows(sizes, capacity)
        left, right = trimmed_context(sentence, capacity) if len(ranges) == 1 else ([], [])
        above = len(expected_rows)
        for first, last in ranges:
            expected_rows.append([i for word in [*left, *sentence.words[first:last], *right] for i in word])
        for n, ids in enumerate(sentence.words):
            for piece in ids[:1] if first_only else ids:
                expected_readers[piece] = above + most_shown(sizes, ranges, n), b * n_words + n
        assert found.words[b].tolist() == [n < len(sizes) for n in range(n_words)]
        assert found.sentence[above : len(expected_rows)].tolist() == [b] * len(ranges)
    assert rows == expected_rows
    assert readers == expected_readers


@given(
    st.lists(st.tuples(sizes_lists, st.lists(st.integers(1, 5), max_size=6)), min_size=1, max_size=4), rooms,
    st.booleans(),
)  # fmt: skip
def test_layout_equals_a_reading_word_by_word(
    sizes: list[tuple[list[int], list[int]]], capacity: int, first_only: bool
) -> None:
    numbers = count(10)
    sentences = [
        SentencePieces(counted(words, numbers), counted(around, numbers), counted(around[::-1], numbers))
        for words, around in sizes
    ]
    check_layout(sentences, capacity, first_only)


def test_layout_of_one_sentence() -> None:
    found = layout([SentencePieces([[10, 11], [12]], [[20]], [[21]])], 20, SPECIALS)
    assert found.ids.tolist() == [[1, 20, 10, 11, 12, 21, 2]]
    assert found.word.tolist() == [[2, 2, 0, 0, 1, 2, 2]]
    assert found.words.tolist() == [[True, True]]


def test_layout_does_not_depend_on_batch_mates() -> None:
    long, short = SentencePieces([[i, i + 100] for i in range(10, 60)]), SentencePieces([[200], [201, 202]])
    both, alone = layout([long, short], 30, SPECIALS), layout([short], 30, SPECIALS)
    row = int(torch.nonzero(both.sentence == 1))
    size = alone.ids.shape[1]
    assert torch.equal(both.ids[row, :size], alone.ids[0])
    assert not both.mask[row, size:].any()


def test_pieces_move_to_a_device_together() -> None:
    found = layout([SentencePieces([[10]])], 20, SPECIALS).to(torch.device("meta"))
    assert {getattr(found, name).device.type for name in ("ids", "mask", "word", "sentence", "words")} == {"meta"}


@given(sizes_lists, sizes_lists, rooms)
def test_the_budget_knows_the_cells_of_all_rows(words: list[int], around: list[int], capacity: int) -> None:
    numbers = count(10)
    sentence = SentencePieces(counted(words, numbers), counted(around, numbers))
    ids = layout([sentence], capacity, SPECIALS).ids
    cells = n_cells(sentence, capacity, n_around=2)
    if len(ids) == 1:
        assert ids.numel() <= cells <= capacity + 2
        assert ids.numel() == cells or sentence.n_pieces > capacity  # context that did not fit
    else:
        assert len(ids) * (capacity + 2) == cells
