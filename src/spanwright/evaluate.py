"""Exact match: a predicted entity counts if its start, end and label are those of a gold entity.

What the buckets mean:

- *length*: the words of the entity.
- *depth*: how many different gold spans the entity lies in (0: in none). *Nesting*: ``flat`` lies in none and holds
  none, ``outer`` only holds, ``inner`` only lies in one, ``middle`` does both. Both are measured against gold for
  predictions too: a bucket's gold is then the same for every model, and a right answer is right in one bucket.
- *sentence length*: the words of the sentence.

A ratio without anything below the line (precision where nothing was predicted, recall where nothing was to be
found) is 0.0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

from spanwright.terminal import pad, visible, width
from spanwright.types import Document, Entity, Mention, Sentence, SpanwrightError, shown

# Each bucket by the largest number that it holds; the last one holds the rest.
LENGTHS = {1: "1", 2: "2", 3: "3", 4: "4", 6: "5-6", 9: "7-9", None: "10+"}
DEPTHS = {0: "0", 1: "1", 2: "2", None: "3+"}
SENTENCE_LENGTHS = {10: "1-10", 20: "11-20", 30: "21-30", 40: "31-40", 50: "41-50", None: "51+"}
NESTING = ("flat", "outer", "middle", "inner")


Predicted = Iterable[Entity] | Iterable[Mention] | Document  # for one sentence


@dataclass(frozen=True, slots=True)
class Score:
    """Precision, recall and F1 from 0 to 1, and the counts they come from."""

    precision: float
    recall: float
    f1: float
    true_positives: int
    predicted: int
    gold: int

    @classmethod
    def of(cls, true_positives: int, predicted: int, gold: int) -> Score:
        return cls(
            precision=_ratio(true_positives, predicted),
            recall=_ratio(true_positives, gold),
            f1=_ratio(2 * true_positives, predicted + gold),
            true_positives=true_positives,
            predicted=predicted,
            gold=gold,
        )


@dataclass(frozen=True, slots=True)
class Report:
    """What `evaluate` found. Every bucket is there, also where it is empty."""

    sentences: int
    micro: Score
    macro: Score  # the plain mean over labels of precision, recall and F1, beside the counts of `micro`
    per_label: dict[str, Score]
    by_length: dict[str, Score]
    by_depth: dict[str, Score]
    by_nesting: dict[str, Score]
    by_sentence_length: dict[str, Score]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def table(self) -> str:
        """For people: percentages with two decimals, empty buckets left out."""
        parts = [
            ("", {"micro": self.micro, "macro": self.macro}),
            ("label", self.per_label),
            ("words in the entity", self.by_length),
            ("depth in gold", self.by_depth),
            ("nesting in gold", self.by_nesting),
            ("words in the sentence", self.by_sentence_length),
        ]
        return _table(self.sentences, parts)


class Scorer:
    """Counts sentence by sentence; it holds counts only, however many sentences there are."""

    def __init__(self) -> None:
        self.sentences = 0
        # (what is told apart, bucket) -> number of entities
        self._gold: Counter[tuple[str, str]] = Counter()
        self._predicted: Counter[tuple[str, str]] = Counter()
        self._right: Counter[tuple[str, str]] = Counter()

    def add(self, gold: Sentence, predicted: Predicted) -> None:
        """One sentence and the entities predicted for it; an entity named twice counts once."""
        self.sentences += 1
        found = entities_in(gold, predicted)
        spans = sorted({(entity.start, entity.end) for entity in gold.entities})
        widest = max((end - start for start, end in spans), default=0)
        sentence_length = _bucket(SENTENCE_LENGTHS, len(gold))
        for entity in gold.entities | found:
            is_gold, is_predicted = entity in gold.entities, entity in found
            for key in _keys(entity, spans, widest, sentence_length):
                self._gold[key] += is_gold
                self._predicted[key] += is_predicted
                self._right[key] += is_gold and is_predicted

    def report(self, labels: Iterable[str] | None = None) -> Report:
        """`labels`: those that `macro` is the mean of, by default all labels of gold and of predictions."""
        per_label = self._scores("label", sorted({name for what, name in self._gold if what == "label"}))
        averaged = sorted(set(labels)) if labels is not None else list(per_label)
        per_label |= self._scores("label", averaged)
        micro = self._score("all", "")
        return Report(
            sentences=self.sentences,
            micro=micro,
            macro=_mean([per_label[name] for name in averaged], micro),
            per_label=dict(sorted(per_label.items())),
            by_length=self._scores("length", LENGTHS.values()),
            by_depth=self._scores("depth", DEPTHS.values()),
            by_nesting=self._scores("nesting", NESTING),
            by_sentence_length=self._scores("sentence length", SENTENCE_LENGTHS.values()),
        )

    def _scores(self, what: str, names: Iterable[str]) -> dict[str, Score]:
        return {name: self._score(what, name) for name in names}

    def _score(self, what: str, name: str) -> Score:
        key = what, name
        return Score.of(self._right[key], self._predicted[key], self._gold[key])


def evaluate(gold: Iterable[Sentence], predicted: Iterable[Predicted], labels: Iterable[str] | None = None) -> Report:
    """Scores the entities predicted for each sentence, sentence by sentence in the same order.

    What is predicted may also be the document of each sentence's words, ``tagger(words=sentence.words)``.
    Both are read once, side by side, and nothing but counts is kept. All entities count, whatever their label;
    `labels` only says which labels `macro` is the mean of (by default those of gold and of predictions, as in seqeval).
    """
    scorer = Scorer()
    for sentence, found in zip_longest(gold, predicted):
        if sentence is None or found is None:
            short, long = ("gold", "predicted") if sentence is None else ("predicted", "gold")
            raise SpanwrightError(
                f"{short} ends after {scorer.sentences} sentences and {long} goes on; expected as many sentences in "
                f"one as in the other, in the same order (a sentence without entities has an empty set)"
            )
        scorer.add(sentence, found)
    return scorer.report(labels)


def entities_in(gold: Sentence, predicted: Predicted) -> frozenset[Entity]:
    """Mentions by their words; whatever is neither them nor entities is refused, for it would count as wrong."""
    if isinstance(predicted, Document):
        if predicted.words != tuple(gold.words):
            raise SpanwrightError(
                f"a document of the words {shown(predicted.words)} stands beside the gold sentence "
                f"{shown(gold.words)}; expected the same words: tagger(words=sentence.words)"
            )
        predicted = predicted.entities
    if not isinstance(predicted, Iterable):
        raise SpanwrightError(f"predicted is {shown(predicted)} for a sentence; expected its entities")
    return frozenset(map(_entity, predicted))


def _entity(given: object) -> Entity:
    if isinstance(given, Entity):
        return given
    if isinstance(given, Mention) and given.start >= 0:
        return Entity(given.start, given.end, given.label, given.score)
    raise SpanwrightError(f"predicted {shown(given)}; expected Entity(start, end, label), counted in words")


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _mean(scores: list[Score], counts: Score) -> Score:
    n = len(scores)
    return Score(
        precision=_ratio(sum(score.precision for score in scores), n),
        recall=_ratio(sum(score.recall for score in scores), n),
        f1=_ratio(sum(score.f1 for score in scores), n),
        true_positives=counts.true_positives,
        predicted=counts.predicted,
        gold=counts.gold,
    )


def _bucket(buckets: Mapping[int | None, str], number: int) -> str:
    return next(name for largest, name in buckets.items() if largest is None or number <= largest)


def _keys(
    entity: Entity, spans: list[tuple[int, int]], widest: int, sentence_length: str
) -> tuple[tuple[str, str], ...]:
    """Every bucket that the entity counts in; `spans` are those of gold, in order, and `widest` words at most."""
    start, end = entity.start, entity.end
    first = bisect_left(spans, (end - widest,))  # whatever begins before is too short to hold the entity
    here = bisect_left(spans, (start,))
    behind = bisect_left(spans, (end,))
    depth = sum(e >= end for s, e in spans[first : bisect_left(spans, (start + 1,))] if (s, e) != (start, end))
    holds = any(e <= end for s, e in spans[here:behind] if (s, e) != (start, end))
    return (
        ("all", ""),
        ("label", entity.label),
        ("length", _bucket(LENGTHS, end - start)),
        ("depth", _bucket(DEPTHS, depth)),
        ("nesting", ("middle" if holds else "inner") if depth else ("outer" if holds else "flat")),
        ("sentence length", sentence_length),
    )


def _table(sentences: int, parts: list[tuple[str, dict[str, Score]]]) -> str:
    """Each part under its heading; the first column as wide as its widest name."""
    rows = [
        (head, [("  " + visible(name), score) for name, score in scores.items() if score.gold or score.predicted])
        for head, scores in parts
    ]
    rows[0] = ("", [("  " + name, score) for name, score in parts[0][1].items()])  # shown also without any entity
    first = max(width(name) for head, scores in rows for name in (head, *(name for name, _ in scores)))
    lines = [" " * first + "  precision     recall         F1       gold  predicted      right"]
    for head, scores in rows:
        lines += ["", head] if head and scores else []
        lines += [_row(pad(name, first), score) for name, score in scores]
    note = "Percentages; 0.00 stands also where nothing was predicted (precision) or nothing was to be found (recall)."
    return "\n".join([*lines, "", f"{sentences} sentences, exact match. {note}"])


def _row(name: str, score: Score) -> str:
    ratios = "".join(f"{100 * ratio:11.2f}" for ratio in (score.precision, score.recall, score.f1))
    return f"{name}{ratios}{score.gold:11}{score.predicted:11}{score.true_positives:11}"
