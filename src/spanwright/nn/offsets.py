"""Boundary offsets: the labels of BOPN, which cells of the grid carry them, and how cells vote for entities.

A cell ``(i, j)`` is the span of the words i to j, both inclusive, as in the paper. ``s:w`` says that the entity begins
w words before the cell and ends with it; ``e:w`` that it begins with the cell and ends w words before; ``c:0`` that
the cell is the entity. The label 0 is "out of range". Numpy only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

Sides = Literal["both", "start", "end"]
OUT, CENTRE, START, END = range(4)  # kinds of labels


@dataclass(frozen=True)
class OffsetLabels:
    """The ``4S + 2`` labels in their order, or ``2S + 2`` where one side alone is annotated."""

    max_offset: int  # S
    sides: Sides
    names: tuple[str, ...]
    kinds: np.ndarray  # [L]
    offsets: np.ndarray  # [L] w

    def __len__(self) -> int:
        return len(self.names)

    @property
    def centre(self) -> int:
        return int(np.flatnonzero(self.kinds == CENTRE)[0])


def offset_labels(max_offset: int, sides: Sides) -> OffsetLabels:
    """Out of range first, then from -S to S, the start before the end."""
    kept = {"both": (START, END), "start": (START,), "end": (END,)}[sides]
    labels = [(OUT, 0)]
    for w in range(-max_offset, max_offset + 1):
        labels += [(kind, w) for kind in kept] if w else [(CENTRE, 0)]
    kinds, offsets = np.array(labels, dtype=np.int64).T
    names = tuple("pad" if kind == OUT else f"{' cse'[kind]}:{w}" for kind, w in labels)
    return OffsetLabels(max_offset, sides, names, kinds, offsets)


def annotate(spans: Iterable[tuple[int, int]], n_words: int, labels: OffsetLabels) -> list[tuple[int, int, int]]:
    """(i, j, label) of every cell ``i <= j`` that is not out of range, for the entities i to j of one type.

    A cell takes the nearest of the entities with which it shares a boundary; of two that are equally near, the first.
    """
    nearest: dict[tuple[int, int], tuple[int, int]] = {}  # cell -> (|w|, label)
    for start, end in sorted(set(spans)):
        for label, (kind, w) in enumerate(zip(labels.kinds.tolist(), labels.offsets.tolist(), strict=True)):
            i, j = start + w * (kind == START), end + w * (kind == END)
            if kind == OUT or not 0 <= i <= j < n_words:
                continue
            if (i, j) not in nearest or abs(w) < nearest[i, j][0]:
                nearest[i, j] = abs(w), label
    return [(i, j, label) for (i, j), (_, label) in sorted(nearest.items())]


@dataclass(frozen=True)
class Votes:
    """What a set of cells proposes: G distinct entities, each with the cells that point at it."""

    group: np.ndarray  # [G] of the cells' own groups (sentence, type)
    start: np.ndarray  # [G]
    end: np.ndarray  # [G] inclusive
    centre: np.ndarray  # [G] whether a centre span says so
    by_start: np.ndarray  # [G] cells that say so by a start offset
    by_end: np.ndarray  # [G] cells that say so by an end offset


def votes(
    group: np.ndarray, i: np.ndarray, j: np.ndarray, label: np.ndarray, n_words: np.ndarray, labels: OffsetLabels
) -> Votes:
    """Where the cells (i, j) of `group` point with their labels; what lies outside the sentence is left out."""
    kind, w = labels.kinds[label], labels.offsets[label]
    start, end = i - w * (kind == START), j - w * (kind == END)
    sound = (kind != OUT) & (start >= 0) & (start <= end) & (end < n_words)
    proposals = np.stack([group, start, end], axis=1)[sound]
    distinct, member = np.unique(proposals, axis=0, return_inverse=True)
    centres, by_start, by_end = (
        np.bincount(member.reshape(-1), kind[sound] == one, len(distinct)) for one in (CENTRE, START, END)
    )
    return Votes(distinct[:, 0], distinct[:, 1], distinct[:, 2], centres > 0, by_start, by_end)
