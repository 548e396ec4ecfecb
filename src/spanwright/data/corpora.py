"""Corpora by name or by path, a part set aside, and the neighbours of a sentence."""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain, groupby
from pathlib import Path

from spanwright.data.read import OF_SUFFIX, whats_in, whats_near
from spanwright.types import Sentence, SpanwrightError

VARIABLE = "SPANWRIGHT_DATA"
ALSO_CALLED = {"dev": ("dev", "valid", "validation", "val")}
SUFFIXES = (*OF_SUFFIX, ".txt")


def find_corpus(name_or_path: str | Path, split: str = "train") -> Path:
    """The file of a split.

    A plain name is a corpus under $SPANWRIGHT_DATA, if one is there; anything else is the path of a folder that
    holds the splits, or of a file (which is then the answer, whatever the split).
    """
    path = Path(name_or_path)
    folder = _folder(name_or_path)
    if folder is None and path.exists() and not path.is_dir():  # a file, or a pipe
        return path
    folder = folder or path
    if not folder.is_dir():
        raise SpanwrightError(_nowhere(name_or_path))
    found = _candidates(folder).get(split, [])
    if len(found) > 1:
        both = " and ".join(path.name for path in found)
        raise SpanwrightError(f"{folder} has {both} for the {split} split; name the file that is meant")
    if not found:
        raise SpanwrightError(
            f"{folder} has no {split} split; expected {split}.jsonl or {split}.conll. {whats_in(folder)}"
        )
    return found[0]


def splits(name_or_path: str | Path) -> dict[str, Path]:
    """The files of a corpus by split: train, dev, test and whatever else is there. Nothing if there is no corpus."""
    folder = _folder(name_or_path) or Path(name_or_path)
    return {split: paths[0] for split, paths in _candidates(folder).items()} if folder.is_dir() else {}


def split_off(sentences: Sequence[Sentence], fraction: float, seed: int = 1) -> tuple[list[Sentence], list[Sentence]]:
    """(the rest, about `fraction` of the sentences), both in their order; the same seed gives the same parts.

    Whole documents go where there are documents, unless that would set aside less than half or more than twice as much.
    """
    if not 0 < fraction < 1:
        raise SpanwrightError(f"fraction is {fraction}; expected a number between 0 and 1")
    if len(sentences) < 2:
        raise SpanwrightError(
            f"a part was to be set aside, but there is only {len(sentences)} sentence; expected two or more"
        )
    wanted = min(max(1, round(fraction * len(sentences))), len(sentences) - 1)
    documents: dict[object, list[int]] = {}
    for i, sentence in enumerate(sentences):
        documents.setdefault(sentence.doc or i, []).append(i)
    aside = _drawn(list(documents.values()), wanted, seed)
    if not wanted / 2 <= len(aside) <= wanted * 2 or len(aside) == len(sentences):
        aside = _drawn([[i] for i in range(len(sentences))], wanted, seed)
    rest = [sentence for i, sentence in enumerate(sentences) if i not in aside]
    return rest, [sentences[i] for i in sorted(aside)]


def with_context(sentences: Iterable[Sentence], n: int) -> Iterator[Sentence]:
    """Each sentence with the words of up to `n` neighbours on each side, of the same document, as `left` and `right`.

    Only ``2 n + 1`` sentences are held. A sentence without a document has no neighbours.
    """
    if n < 0:
        raise ValueError(f"n is {n}; expected 0 or more sentences")
    for doc, members in groupby(sentences, key=lambda sentence: sentence.doc):
        if not doc:
            yield from (replace(sentence, left=(), right=()) for sentence in members)
            continue
        before: deque[Sentence] = deque(maxlen=n)
        after: deque[Sentence] = deque()
        for sentence in members:
            after.append(sentence)
            if len(after) > n:
                yield _between(before, after)
        while after:
            yield _between(before, after)


def _between(before: deque[Sentence], after: deque[Sentence]) -> Sentence:
    """The first of `after` with its neighbours; it moves on to `before`."""
    sentence = after.popleft()
    left, right = (tuple(chain.from_iterable(s.words for s in side)) for side in (before, after))
    before.append(sentence)
    return replace(sentence, left=left, right=right)


def _drawn(groups: list[list[int]], wanted: int, seed: int) -> set[int]:
    """Whole groups at random, as near to `wanted` as taking them in turn comes."""
    random.Random(seed).shuffle(groups)
    drawn: set[int] = set()
    for group in groups:
        if abs(len(drawn) + len(group) - wanted) < abs(len(drawn) - wanted):
            drawn.update(group)
    return drawn


def _candidates(folder: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        name = Path(path.name.removesuffix(".gz"))
        if name.suffix.lower() in SUFFIXES and path.is_file():
            split = next((split for split, names in ALSO_CALLED.items() if name.stem in names), name.stem)
            found.setdefault(split, []).append(path)
    return found


def _folder(name_or_path: str | Path) -> Path | None:
    """The folder of a corpus called by its name."""
    root, name = os.environ.get(VARIABLE, ""), str(name_or_path)
    if not root or not name or name != Path(name).name:
        return None
    folder = Path(root) / name
    return folder if folder.is_dir() else None


def _nowhere(name_or_path: str | Path) -> str:
    root = os.environ.get(VARIABLE, "")
    if not root:
        by_name = f"By name: ${VARIABLE} is not set; set it to a folder of corpora, <name>/train.jsonl."
    elif not Path(root).is_dir():
        by_name = f"By name: ${VARIABLE} is {root}, which is no folder."
    else:
        known = sorted(entry.name for entry in Path(root).iterdir() if entry.is_dir())
        close = get_close_matches(str(name_or_path), known, n=1, cutoff=0.5)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        by_name = f"By name: ${VARIABLE} ({root}) holds {', '.join(known) or 'nothing'}.{hint}"
    by_path = f"By path: there is no {name_or_path}. {whats_near(Path(name_or_path))}"
    looks_like_path = "/" in str(name_or_path) or Path(name_or_path).suffix
    ways = f"{by_path} {by_name}" if looks_like_path else f"{by_name} {by_path}"
    return f"there is no corpus {str(name_or_path)!r}. {ways}"
