"""Offset labels and their annotation: the published labels, and a slow literal transcription of the rule."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanwright.nn.offsets import CENTRE, END, OUT, START, OffsetLabels, Sides, annotate, offset_labels, votes

GOLDEN = json.loads((Path(__file__).parent / "golden" / "bopn.json").read_text(encoding="utf-8"))
SIDES: tuple[Sides, ...] = ("both", "start", "end")


def grid(n_words: int, cells: list[tuple[int, int, int]]) -> np.ndarray:
    """The cells with their mirror images."""
    labels = np.zeros((n_words, n_words), dtype=int)
    for i, j, label in cells:
        labels[i, j] = labels[j, i] = label
    return labels


def literal(spans: list[tuple[int, int]], n_words: int, labels: OffsetLabels) -> list[tuple[int, int, int]]:
    """The rule as the notes state it, cell by cell: a centre; else the smallest offset, the first entity winning."""
    cells = []
    for i in range(n_words):
        for j in range(i, n_words):
            if (i, j) in spans:
                cells.append((i, j, labels.names.index("c:0")))
                continue
            candidates = []
            for start, end in spans:
                if end == j and 0 < abs(i - start) <= labels.max_offset and labels.sides in ("both", "start"):
                    candidates.append((abs(i - start), (start, end), f"s:{i - start}"))
                if start == i and 0 < abs(j - end) <= labels.max_offset and labels.sides in ("both", "end"):
                    candidates.append((abs(j - end), (start, end), f"e:{j - end}"))
            if candidates:
                cells.append((i, j, labels.names.index(min(candidates)[2])))
    return cells


@pytest.mark.parametrize("setting", GOLDEN["meta"]["label_ids"])
def test_labels_are_numbered_as_published(setting: str) -> None:
    largest, sides = (part.split("=")[1] for part in setting.split(","))
    labels = offset_labels(int(largest), sides)  # type: ignore[arg-type]
    assert {name: number for number, name in enumerate(labels.names)} == GOLDEN["meta"]["label_ids"][setting]
    assert len(labels) == (4 if sides == "both" else 2) * int(largest) + 2
    assert labels.names[labels.centre] == "c:0"
    for number, (kind, w) in enumerate(zip(labels.kinds, labels.offsets, strict=True)):
        assert labels.names[number] == {OUT: "pad", CENTRE: "c:0", START: f"s:{w}", END: f"e:{w}"}[kind]


@pytest.mark.parametrize("case", GOLDEN["annotation"], ids=lambda case: f"{case['mode']}-S{case['S']}-N{case['N']}")
def test_annotation_is_the_published_one(case: dict) -> None:
    labels = offset_labels(case["S"], case["mode"])
    for kind in range(case["n_types"]):
        spans = [(start, end) for start, end, own in case["entities"] if own == kind]
        found = grid(case["N"], annotate(spans, case["N"], labels))
        assert found.tolist() == case["labels"][kind]


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("max_offset", range(4))
def test_annotation_of_every_small_gold(sides: Sides, max_offset: int) -> None:
    labels = offset_labels(max_offset, sides)
    for n_words in range(1, 6):
        possible = [(i, j) for i in range(n_words) for j in range(i, n_words)]
        for spans in ([], *([span] for span in possible), *map(list, combinations(possible, 2))):
            for order in (spans, spans[::-1]):
                assert annotate(order, n_words, labels) == literal(spans, n_words, labels)


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=6), st.integers(0, 3))
def test_annotation_of_tangled_gold(n_words: int, drawn: list[tuple[int, int]], max_offset: int) -> None:
    spans = [(min(span), max(span)) for span in drawn if max(span) < n_words]
    labels = offset_labels(max_offset, "both")
    assert annotate(spans, n_words, labels) == literal(spans, n_words, labels)


@given(st.integers(1, 9), st.lists(st.integers(0, 9), min_size=81, max_size=81))
def test_votes_are_counted_cell_by_cell(n_words: int, drawn: list[int]) -> None:
    labels = offset_labels(2, "both")
    cells = [(i, j, drawn[9 * i + j]) for i in range(n_words) for j in range(i, n_words)]
    wanted: dict[tuple[int, int], list[int]] = {}
    for i, j, label in cells:
        kind, w = int(labels.kinds[label]), int(labels.offsets[label])
        start, end = i - w * (kind == START), j - w * (kind == END)
        if kind != OUT and 0 <= start <= end < n_words:
            wanted.setdefault((start, end), [0, 0, 0, 0])[kind] += 1
    i, j, label = np.array(cells).T
    found = votes(np.full_like(i, 7), i, j, label, np.full_like(i, n_words), labels)
    assert found.group.tolist() == [7] * len(wanted)
    rows = zip(found.start, found.end, found.centre, found.by_start, found.by_end, strict=True)
    assert {(s, e): [0, int(c), a, b] for s, e, c, a, b in rows} == wanted
