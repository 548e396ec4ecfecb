"""Sentences longer than `max_words`: cut into parts that overlap, and the answers put together again.

Every span has one owner, the part that shows most words on the side of the span where it shows least. Parts overlap by
more than the widest entity, so the owner always holds the whole span, and nothing has to be voted on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from spanwright.types import Entity, Sentence

MARGIN_WORDS = 16  # what the owner of a widest entity at least shows beside it, half on each side


def ranges(n_words: int, max_words: int, widest: int) -> list[tuple[int, int]]:
    """Word ranges of at most `max_words` words; each shares `widest` words and a margin with the next."""
    if n_words <= max_words:
        return [(0, n_words)]
    step = max_words - min(widest + MARGIN_WORDS, max_words // 2)
    starts = [*range(0, n_words - max_words, step), n_words - max_words]
    return [(start, start + max_words) for start in starts]


def part(sentence: Sentence, start: int, end: int) -> Sentence:
    """Words `start:end` as a sentence of their own, with the entities that lie inside."""
    return replace(
        sentence,
        words=sentence.words[start:end],
        entities=frozenset(e.shifted(-start) for e in sentence.entities if start <= e.start and e.end <= end),
        left=sentence.left if start == 0 else (),
        right=sentence.right if end == len(sentence) else (),
        features={name: values[start:end] for name, values in sentence.features.items()},
        spaces=sentence.spaces[start:end],
    )


def parts(sentence: Sentence, max_words: int, widest: int) -> list[Sentence]:
    """The sentence itself where it is short enough."""
    if len(sentence) <= max_words:
        return [sentence]
    return [part(sentence, start, end) for start, end in ranges(len(sentence), max_words, widest)]


def owner(entity: Entity, n_words: int, places: Sequence[tuple[int, int]]) -> int:
    """The part that shows most around the entity; the sentence's own ends hide nothing. The first of equals."""

    def shown(place: tuple[int, int]) -> float:
        start, end = place
        before = float("inf") if start == 0 else entity.start - start
        after = float("inf") if end == n_words else end - entity.end
        return min(before, after)

    return max(range(len(places)), key=lambda i: (shown(places[i]), -i))


def merge(found: Sequence[Iterable[Entity]], n_words: int, places: Sequence[tuple[int, int]]) -> list[Entity]:
    """The candidates of the parts at `places` as candidates of the sentence: each from its owner."""
    merged = []
    for i, ((start, _), entities) in enumerate(zip(places, found, strict=True)):
        first = max(0, i - 2)  # parts share less than half of their words, so no span lies in more distant ones
        near = places[first : i + 3]
        shifted = (entity.shifted(start) for entity in entities)
        merged += [entity for entity in shifted if first + owner(entity, n_words, near) == i]
    return merged


def training_parts(sentence: Sentence, max_words: int) -> list[Sentence]:
    """For training: parts side by side, cut where no entity is cut if there is such a place in their second half."""
    parts_, start = [], 0
    while len(sentence) - start > max_words:
        inside = {i for e in sentence.entities for i in range(e.start + 1, e.end)}
        wanted = range(start + max_words, start + max_words // 2, -1)
        end = next((i for i in wanted if i not in inside), start + max_words)
        parts_.append(part(sentence, start, end))
        start = end
    return [*parts_, part(sentence, start, len(sentence)) if start else sentence]
