"""Bootstrap intervals, by brute force over the same draws and by what an interval promises."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from spanwright.evaluate import evaluate
from spanwright.resample import draws, f1, f1_difference, f1_interval
from spanwright.types import Entity, Sentence, SpanwrightError

WORDS = ("a", "b", "c", "d", "e", "f")


def entities(rng: np.random.Generator, most: int = 3) -> frozenset[Entity]:
    starts = rng.integers(0, len(WORDS), size=rng.integers(0, most + 1))
    return frozenset(Entity(int(at), int(at) + 1, "XY"[int(rng.integers(2))]) for at in starts)


def corpus(n: int, seed: int, n_documents: int = 0) -> tuple[list[Sentence], list[frozenset[Entity]]]:
    rng = np.random.default_rng(seed)
    docs = [f"doc{i % n_documents}" if n_documents else "" for i in range(n)]
    gold = [Sentence(WORDS, entities(rng), doc=doc) for doc in docs]
    found = [sentence.entities if rng.random() < 0.6 else entities(rng) for sentence in gold]
    return gold, found


def resampled_by_hand(gold: Sequence[Sentence], found: Sequence[frozenset[Entity]], seed: int) -> list[float]:
    """Whole corpora built anew, each scored by `evaluate`."""
    names = list(dict.fromkeys(sentence.doc or str(i) for i, sentence in enumerate(gold)))
    scores = []
    for weights in draws(len(names), seed)[:50]:
        rows = [
            i
            for name, times in zip(names, weights, strict=True)
            for _ in range(int(times))
            for i, sentence in enumerate(gold)
            if (sentence.doc or str(i)) == name
        ]
        scores.append(evaluate([gold[i] for i in rows], [found[i] for i in rows]).micro.f1)
    return scores


@pytest.mark.parametrize("n_documents", [0, 12])
def test_resamples_are_whole_corpora_scored_anew(n_documents: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanwright.resample.RESAMPLES", 50)
    gold, found = corpus(30, seed=3, n_documents=n_documents)
    interval = f1_interval(gold, found, seed=5)
    scores = resampled_by_hand(gold, found, seed=5)
    assert interval.value == pytest.approx(evaluate(gold, found).micro.f1)
    assert [interval.low, interval.high] == pytest.approx(list(np.quantile(scores, [0.025, 0.975])))
    assert (interval.units, interval.unit) == ((12, "documents") if n_documents else (30, "sentences"))


def test_a_difference_is_taken_on_the_same_resamples() -> None:
    gold, found = corpus(200, seed=1)
    worse = [entities if i % 4 else frozenset() for i, entities in enumerate(found)]
    forth, back = f1_difference(gold, worse, found), f1_difference(gold, found, worse)
    assert forth.value == pytest.approx(evaluate(gold, found).micro.f1 - evaluate(gold, worse).micro.f1)
    assert (back.low, back.high) == pytest.approx((-forth.high, -forth.low))
    assert forth.low > 0 and forth.excludes_zero and back.excludes_zero
    alone = f1_interval(gold, found)
    assert forth.high - forth.low < alone.high - alone.low  # what both share cancels
    same = f1_difference(gold, found, found)
    assert (same.low, same.value, same.high) == (0, 0, 0) and not same.excludes_zero


def test_a_perfect_answer_and_an_empty_one_are_sure() -> None:
    gold = [Sentence(WORDS, frozenset({Entity(i % 5, i % 5 + 1, "X")})) for i in range(20)]
    perfect = f1_interval(gold, [sentence.entities for sentence in gold])
    assert (perfect.low, perfect.value, perfect.high) == (1, 1, 1)
    empty = f1_interval(gold, [() for _ in gold])
    assert (empty.low, empty.value, empty.high) == (0, 0, 0)
    nothing = f1_interval([Sentence(WORDS)], [()])
    assert nothing.value == 0


def test_the_interval_holds_the_truth_about_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 corpora of 150 sentences whose true F1 is known: each sentence's one entity is found with chance 0.7."""
    monkeypatch.setattr("spanwright.resample.RESAMPLES", 400)
    rng = np.random.default_rng(0)
    right, wrong = frozenset({Entity(0, 1, "X")}), frozenset({Entity(0, 1, "Y")})
    gold = [Sentence(WORDS, right)] * 150
    held = 0
    for _ in range(300):
        interval = f1_interval(gold, [right if hit else wrong for hit in rng.random(len(gold)) < 0.7])
        held += interval.low <= 0.7 <= interval.high
    assert 0.91 <= held / 300 <= 0.98


def test_a_few_documents_tell_nothing_of_one_another() -> None:
    gold, found = corpus(50, seed=4, n_documents=1)
    interval = f1_interval(gold, found)
    assert (interval.units, interval.unit) == (50, "sentences")
    assert interval.low < interval.value < interval.high


def test_sentences_of_one_document_are_drawn_together() -> None:
    """Ten documents of twenty like sentences are ten pieces of evidence, not two hundred."""
    right = frozenset({Entity(0, 1, "X")})
    found = [right if i // 20 < 7 else frozenset() for i in range(200)]
    by_document = f1_interval([Sentence(WORDS, right, doc=str(i // 20)) for i in range(200)], found)
    by_sentence = f1_interval([Sentence(WORDS, right) for _ in range(200)], found)
    assert by_document.high - by_document.low > 3 * (by_sentence.high - by_sentence.low)


def test_the_same_seed_gives_the_same_interval() -> None:
    gold, found = corpus(50, seed=2)
    assert f1_interval(gold, found, seed=1) == f1_interval(gold, found, seed=1) != f1_interval(gold, found, seed=2)


def test_f1_of_nothing_is_zero() -> None:
    assert list(f1(np.array([[0.0, 0, 0], [1, 1, 1], [1, 2, 2]]))) == [0, 1, 0.5]


@pytest.mark.parametrize(("n_gold", "n_found"), [(2, 1), (1, 2), (0, 0)])
def test_lists_that_do_not_match_are_refused(n_gold: int, n_found: int) -> None:
    with pytest.raises(SpanwrightError, match=rf"{n_gold} gold sentences and {n_found} predicted"):
        f1_interval([Sentence(WORDS)] * n_gold, [()] * n_found)
