"""How sure a score is: intervals and paired differences of micro F1 by bootstrap.

Whole documents are drawn where the corpus names them, for entities of one document are alike and sentences drawn
singly would promise too much; sentences are drawn where it does not, or names fewer than ten. What is drawn is a
weight for each unit (how often it came up), so that a thousand resamples are one product of matrices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spanwright.evaluate import Predicted, entities_in
from spanwright.types import Sentence, SpanwrightError

RESAMPLES = 2000
DOCUMENTS_AT_LEAST = 10  # fewer tell nothing of one another
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure, the bounds that hold `LEVEL` of its resamples, and what was drawn."""

    value: float
    low: float
    high: float
    units: int
    unit: str  # "documents" or "sentences"

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def f1_interval(gold: Sequence[Sentence], predicted: Iterable[Predicted], seed: int = 0) -> Interval:
    """Micro F1 (0 to 1) and its interval."""
    counts, unit = unit_counts(gold, predicted)
    return _interval(f1(counts.sum(0)), f1(draws(len(counts), seed) @ counts), len(counts), unit)


def f1_difference(
    gold: Sequence[Sentence], first: Iterable[Predicted], second: Iterable[Predicted], seed: int = 0
) -> Interval:
    """F1 of `second` less that of `first`, both scored on the same resamples."""
    (a, unit), (b, _) = unit_counts(gold, first), unit_counts(gold, second)
    weights = draws(len(a), seed)
    return _interval(f1(b.sum(0)) - f1(a.sum(0)), f1(weights @ b) - f1(weights @ a), len(a), unit)


def unit_counts(gold: Sequence[Sentence], predicted: Iterable[Predicted]) -> tuple[np.ndarray, str]:
    """True positives, predictions and gold of each unit that is drawn as one; and what the units are."""
    documents = {sentence.doc for sentence in gold}
    by_document = "" not in documents and len(documents) >= DOCUMENTS_AT_LEAST
    units: dict[str, int] = {}
    rows: list[list[int]] = []
    found = list(predicted)
    if len(found) != len(gold) or not gold:
        raise SpanwrightError(
            f"{len(gold)} gold sentences and {len(found)} predicted ones; expected as many, and at least one"
        )
    for number, (sentence, entities) in enumerate(zip(gold, found, strict=True)):
        row = units.setdefault(sentence.doc if by_document else str(number), len(units))
        if row == len(rows):
            rows.append([0, 0, 0])
        given = entities_in(sentence, entities)
        for column, entry in enumerate((sentence.entities & given, given, sentence.entities)):
            rows[row][column] += len(entry)
    return np.array(rows, float), "documents" if by_document else "sentences"


def draws(n_units: int, seed: int) -> np.ndarray:
    """How often each unit comes up in each resample of as many units.  # [resamples, units]"""
    return np.random.default_rng(seed).multinomial(n_units, np.full(n_units, 1 / n_units), RESAMPLES).astype(float)


def f1(counts: np.ndarray) -> Any:
    """From (..., true positives, predicted, gold); 0 where there is nothing at all, as in `evaluate`."""
    right, whole = 2 * counts[..., 0], counts[..., 1] + counts[..., 2]
    return np.divide(right, whole, out=np.zeros_like(whole), where=whole > 0)


def _interval(value: Any, resampled: np.ndarray, units: int, unit: str) -> Interval:
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(value), float(low), float(high), units, unit)
