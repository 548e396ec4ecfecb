"""Entities as one tag a word, in the schemes people use, and back.

All the schemes share one decoder, because no legal sequence of one means something else in another: B, S and U start
an entity, E, L, S and U end one, I and M go on, and whatever is illegal is mended as conlleval does it (a tag
that has nothing to go on with starts an entity of its own). The scheme decides what counts as illegal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from spanwright.data.findings import BadRecord, Findings
from spanwright.types import Entity, SpanwrightError, shown

Tag = tuple[str, str]  # a letter of B I E S O, a label ("" for O)

SCHEMES = ("iob1", "iob2", "bioes", "bilou", "bmes")
ALSO_CALLED = {"bio": "iob2", "iobes": "bioes", "bmeso": "bmes", "bmoes": "bmes"}
LETTERS = {"iob1": "BI", "iob2": "BI", "bioes": "BIES", "bilou": "BILU", "bmes": "BMES", "auto": "BIESLUM"}
COMMON = str.maketrans("MLU", "IES")  # every scheme's letters as those of BIOES
# The letters of the first, an inner and the last word, and of the only word of an entity. IOB1 is IOB2 but for B.
FORMS = {
    "iob1": ("B", "I", "I", "B"),
    "iob2": ("B", "I", "I", "B"),
    "bioes": ("B", "I", "E", "S"),
    "bilou": ("B", "I", "L", "U"),
    "bmes": ("B", "M", "E", "S"),
}
OUTSIDE: Tag = ("O", "")

SHAPE = re.compile(r"([A-Z])[-_](.+)", re.DOTALL)


def scheme_of(name: str) -> str:
    """The scheme of that name, "auto" included, or a SpanwrightError."""
    low = name.lower()
    low = ALSO_CALLED.get(low, low)
    if low in LETTERS:
        return low
    close = get_close_matches(low, [*LETTERS, *ALSO_CALLED], n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise SpanwrightError(f"scheme is {name!r}; expected one of {', '.join(map(repr, ['auto', *SCHEMES]))}.{hint}")


def parse_tag(text: str, scheme: str) -> Tag:
    """``"B-protein"`` -> ``("B", "protein")``, the letter as in BIOES; a BadRecord where `scheme` knows no such tag."""
    if text == "O":
        return OUTSIDE
    letters = LETTERS[scheme]
    match = SHAPE.fullmatch(text)
    if match is None or match[1] not in letters:
        named = "" if scheme == "auto" else f" in {scheme.upper()}"
        raise BadRecord(
            f"unknown tag {shown(text)}", f"O, or one of {', '.join(letters)} with a label (B-LABEL){named}"
        )
    return match[1].translate(COMMON), match[2]


def decode(tags: Sequence[Tag]) -> frozenset[Entity]:
    """The entities of one sentence."""
    found = []
    start = 0
    before = OUTSIDE
    for i, tag in enumerate([*tags, OUTSIDE]):
        if _open(before) and not _goes_on(before, tag):
            found.append(Entity(start, i, before[1]))
        if tag[0] != "O" and not _goes_on(before, tag):
            start = i
        if tag[0] in "ES":
            found.append(Entity(start, i + 1, tag[1]))
        before = tag
    return frozenset(found)


def encode(length: int, entities: Iterable[Entity], scheme: str) -> list[str]:
    """The tags of a sentence of `length` words; `entities` must not overlap."""
    tags = ["O"] * length
    for entity in sorted(entities):
        letters = _letters(len(entity), scheme)
        if scheme == "iob1" and (entity.start == 0 or tags[entity.start - 1][2:] != entity.label):
            letters = "I" + letters[1:]
        for place, letter in enumerate(letters, entity.start):
            if tags[place] != "O":
                raise ValueError(f"{entity} overlaps another entity")
            tags[place] = f"{letter}-{entity.label}"
    return tags


class Mended:
    """Counts the tags that had to be mended. Under "auto" the file is held to the scheme that it breaks least."""

    def __init__(self, scheme: str, file: str):
        self._scheme = scheme
        self._file = file
        self._closed = False
        self._found = {kind: Findings() for kind in ("iob1", "iob2", "closed")}

    def add(self, tags: Sequence[Tag], lines: Sequence[int]) -> None:
        """One sentence: its tags, and the line of each."""
        self._closed = self._closed or any(letter in "ES" for letter, _ in tags)
        for i, (before, tag) in enumerate(zip([OUTSIDE, *tags], [*tags, OUTSIDE], strict=True)):
            for kind in _broken(before, tag):
                where = f"{self._file}:{lines[min(i, len(tags) - 1)]}"
                after = _text(before) if i else "the start"
                self._found[kind].add(where, f"{_text(tag) if i < len(tags) else 'the end'} after {after}")

    def findings(self) -> Findings:
        """Of the scheme in force."""
        if self._scheme in ("iob1", "iob2"):
            return self._found[self._scheme]
        if self._closed or self._scheme != "auto":
            return self._found["closed"]
        return min(self._found["iob2"], self._found["iob1"], key=len)


def _open(tag: Tag) -> bool:
    return tag[0] in "BI"


def _goes_on(before: Tag, tag: Tag) -> bool:
    """`tag` belongs to the entity that `before` belongs to."""
    return tag[0] in "IE" and _open(before) and before[1] == tag[1]


def _letters(length: int, scheme: str) -> str:
    start, inner, last, single = FORMS[scheme]
    return single if length == 1 else start + inner * (length - 2) + last


def _broken(before: Tag, tag: Tag) -> list[str]:
    """The kinds of scheme in which `tag` may not follow `before`."""
    goes_on = _goes_on(before, tag)
    same = _open(before) and before[1] == tag[1]
    broken = []
    if tag[0] == "B" and not same:
        broken.append("iob1")
    if tag[0] == "I" and not goes_on:
        broken.append("iob2")
    if _open(before) != goes_on or (tag[0] in "IE" and not goes_on):
        broken.append("closed")
    return broken


def _text(tag: Tag) -> str:
    return "-".join(tag) if tag[1] else tag[0]
