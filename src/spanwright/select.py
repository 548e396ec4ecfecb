"""Which of the proposed entities to keep: the one place where candidates compete.

Ties between equal scores are settled by the spans alone, never by the order of the input: the longer span goes
first, then the one that starts earlier, then the label that comes first in the alphabet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from spanwright.types import Entity, SpanwrightError

MODES = ("all", "nested", "flat", "optimal")


def select(candidates: Iterable[Entity], overlap: str = "nested", threshold: float = 0.0) -> frozenset[Entity]:
    """The candidates that stay. Those with ``score >= threshold`` compete, each (span, label) with its best score.

    ``all``: every one of them stays.
    ``nested``: the better score first; what crosses a span that was kept is dropped; one label a span.
    ``flat``: the better score first; what overlaps a span that was kept is dropped (the papers' rule).
    ``optimal``: of all sets without overlap, the one with the best total score; among equals the one that covers
    more words, then the one with fewer entities.
    """
    if overlap not in MODES:
        raise SpanwrightError(f"overlap is {overlap!r}; expected one of {', '.join(map(repr, MODES))}")
    if not 0 <= threshold <= 1:
        raise SpanwrightError(f"threshold is {threshold!r}; expected a number from 0 to 1, for scores lie there")
    best = _best(candidates, threshold)
    if overlap == "all":
        return frozenset(best)
    if overlap == "optimal":
        return frozenset(_optimal(best))
    ranked = sorted(best, key=_rank)
    return frozenset(_without_crossing(ranked) if overlap == "nested" else _without_overlap(ranked))


def outermost(entities: Iterable[Entity]) -> frozenset[Entity]:
    """A flat set that prefers outer entities: the longer first, then the better score, then as in `select`."""
    return frozenset(_without_overlap(sorted(entities, key=lambda e: (e.start - e.end, _rank(e)))))


def _rank(entity: Entity) -> tuple[float, int, int, str]:
    return -entity.score, entity.start - entity.end, entity.start, entity.label


def _best(candidates: Iterable[Entity], threshold: float) -> list[Entity]:
    """One entity for each (span, label), with its best score; a score that is no number never passes."""
    best: dict[Entity, Entity] = {}
    for entity in candidates:
        if entity.start >= entity.end:
            raise ValueError(f"a candidate must hold at least one word, got {entity}")
        if entity.score >= threshold:
            rival = best.get(entity)
            if rival is None or entity.score > rival.score:
                best[entity] = entity
    return list(best.values())


def _without_crossing(ranked: Iterable[Entity]) -> list[Entity]:
    """Each in its turn, unless it crosses one that was kept or its span has a label.

    Kept spans never cross, so those that lie over a place between two words form a chain, one inside the other. A
    newcomer crosses a kept span exactly if it does not lie inside the smallest one over its start, or the smallest
    one over its end: two look-ups, however many were kept.
    """
    kept: list[Entity] = []
    spans: set[tuple[int, int]] = set()
    smallest: dict[int, tuple[int, int]] = {}  # place between two words -> the smallest kept span over it
    for entity in ranked:
        start, end = entity.start, entity.end
        if (start, end) in spans:
            continue
        over_start, over_end = smallest.get(start), smallest.get(end)
        if (over_start and over_start[1] < end) or (over_end and over_end[0] > start):
            continue
        kept.append(entity)
        spans.add((start, end))
        for place in range(start + 1, end):
            now = smallest.get(place)
            if now is None or now[1] - now[0] > end - start:
                smallest[place] = (start, end)
    return kept


def _without_overlap(ranked: Iterable[Entity]) -> list[Entity]:
    """Each in its turn, unless it overlaps one that was kept."""
    kept: list[Entity] = []  # in order of place, as are its starts and ends
    starts: list[int] = []
    ends: list[int] = []
    for entity in ranked:
        at = bisect_right(starts, entity.start)
        if (at and ends[at - 1] > entity.start) or (at < len(starts) and starts[at] < entity.end):
            continue
        kept.insert(at, entity)
        starts.insert(at, entity.start)
        ends.insert(at, entity.end)
    return kept


def _optimal(entities: Sequence[Entity]) -> list[Entity]:
    """Weighted interval scheduling: ``totals[i]`` is the best that the first i spans, by their end, can give."""
    by_end = sorted(entities, key=lambda e: (e.end, e.start, _rank(e)))
    ends = [entity.end for entity in by_end]
    totals = [(0.0, 0, 0)]  # score, words, minus the number of entities
    previous: list[int] = []  # for each span, how many spans end where it starts or before
    for i, entity in enumerate(by_end):
        previous.append(bisect_right(ends, entity.start, 0, i))
        score, words, count = totals[previous[i]]
        totals.append(max(totals[i], (score + entity.score, words + len(entity), count - 1)))
    kept = []
    i = len(by_end)
    while i:
        if totals[i] == totals[i - 1]:
            i -= 1
        else:
            kept.append(by_end[i - 1])
            i = previous[i - 1]
    return kept
