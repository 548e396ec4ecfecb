"""Sentences longer than `max_words`: cut into parts that overlap, and the answers put together again.

Every span has one owner, the part that shows most words on the side of the span where it shows least. Parts overlap by
more than the widest entity, so the owner always holds the whole span, and nothing has to be voted on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

from spanwright.types import Entity, Sentence

MARGIN_WORDS = 16  # what the owner of a widest entity shows beside it, half on each side, where there is room
MOST_PARTS = 8  # parts that a word may lie in: an entity nearly as wide as `max_words` would want one part a word


def ranges(n_words: int, max_words: int, widest: int) -> list[tuple[int, int]]:
    """Word ranges of at most `max_words` words; each shares `widest` words, and a margin if it fits, with the next.

    Where `widest` is more than 7/8 of `max_words`, they share only so much.
    """
    if n_words <= max_words:
        return [(0, n_words)]
    shared = max(widest, min(widest + MARGIN_WORDS, max_words // 2))
    step = max_words - min(shared, max_words - max(1, max_words // MOST_PARTS))
    starts = [*range(0, n_words - max_words, step), n_words - max_words]
    return [(start, start + max_words) for start in starts]


def part(sentence: Sentence, start: int, end: int, entities: Sequence[Entity]) -> Sentence:
    """Words `start:end` as a sentence of their own, with those of `entities`, in order, that lie inside."""
    first, last = (bisect_left(entities, edge, key=lambda entity: entity.start) for edge in (start, end))
    return replace(
        sentence,
        words=sentence.words[start:end],
        entities=frozenset(entity.shifted(-start) for entity in entities[first:last] if entity.end <= end),
        left=sentence.left if start == 0 else (),
        right=sentence.right if end == len(sentence) else (),
        features={name: values[start:end] for name, values in sentence.features.items()},
        spaces=sentence.spaces[start:end],
    )


def parts(sentence: Sentence, max_words: int, widest: int) -> list[Sentence]:
    """The sentence itself where it is short enough."""
    if len(sentence) <= max_words:
        return [sentence]
    entities = sorted(sentence.entities)
    return [part(sentence, start, end, entities) for start, end in ranges(len(sentence), max_words, widest)]


def owner(entity: Entity, n_words: int, places: Sequence[tuple[int, int]]) -> int:
    """The part that shows most around the entity; the sentence's own ends hide nothing. The first of equals."""

    def shown(i: int) -> float:
        start, end = places[i]
        before = float("inf") if start == 0 else entity.start - start
        after = float("inf") if end == n_words else end - entity.end
        return min(before, after)

    first = bisect_left(places, entity.end, key=lambda place: place[1])  # the parts that hold the whole entity
    last = bisect_right(places, entity.start, key=lambda place: place[0])
    return max(range(first, last), key=lambda i: (shown(i), -i))


def merge(found: Sequence[Iterable[Entity]], n_words: int, places: Sequence[tuple[int, int]]) -> list[Entity]:
    """The candidates of the parts at `places` as candidates of the sentence: each from its owner."""
    merged = []
    for i, ((start, _), entities) in enumerate(zip(places, found, strict=True)):
        shifted = (entity.shifted(start) for entity in entities)
        merged += [entity for entity in shifted if owner(entity, n_words, places) == i]
    return merged


def training_parts(sentence: Sentence, max_words: int) -> list[Sentence]:
    """For training: parts side by side, cut where no entity is cut if there is such a place in their second half."""
    if len(sentence) <= max_words:
        return [sentence]
    parts_, start = [], 0
    entities = sorted(sentence.entities)
    inside = {i for entity in entities for i in range(entity.start + 1, entity.end)}
    while len(sentence) - start > max_words:
        wanted = range(start + max_words, start + max_words // 2, -1)
        end = next((i for i in wanted if i not in inside), start + max_words)
        parts_.append(part(sentence, start, end, entities))
        start = end
    return [*parts_, part(sentence, start, len(sentence), entities)]
