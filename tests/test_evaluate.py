"""Scores, held against hand counts and against seqeval."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.v1 import precision_recall_fscore_support
from seqeval.scheme import IOB2

from spanwright.evaluate import Score, Scorer, evaluate
from spanwright.select import select
from spanwright.types import Document, Entity, Mention, Sentence, SpanwrightError


def sentence(length: int, *entities: tuple[int, int, str]) -> Sentence:
    return Sentence(("w",) * length, frozenset(Entity(*e) for e in entities))


def entities(*found: tuple[int, int, str]) -> list[Entity]:
    return [Entity(*e) for e in found]


@st.composite
def annotated(draw: st.DrawFn) -> list[tuple[Sentence, frozenset[Entity]]]:
    """Some sentences with gold and predicted entities of any kind: nested, crossing, two labels on a span."""

    def some(length: int) -> frozenset[Entity]:
        def one() -> Entity:
            start = draw(st.integers(0, length - 1))
            return Entity(start, draw(st.integers(start + 1, length)), draw(st.sampled_from("ABC")))

        return frozenset(one() for _ in range(draw(st.integers(0, 4))))

    lengths = draw(st.lists(st.sampled_from((1, 3, 12)), min_size=1, max_size=4))
    return [(Sentence(("w",) * n, some(n)), some(n)) for n in lengths]


def iob2(length: int, flat: frozenset[Entity]) -> list[str]:
    tags = ["O"] * length
    for entity in flat:
        tags[entity.start : entity.end] = [f"B-{entity.label}"] + [f"I-{entity.label}"] * (len(entity) - 1)
    return tags


# Three spans of gold lie in one another, two labels share a span, and the last sentence has nothing to find.
# The words of the first sentence:
#   gold       [[[a]X b]Y c d e f g h i j]Z   k   [l m]X [l m]Y
#   predicted  [[[a]X b]X c d e f g h i j]Z   [k]Y  [l m]X   [c d]Y
NESTED = [
    sentence(13, (0, 1, "X"), (0, 2, "Y"), (0, 10, "Z"), (11, 13, "X"), (11, 13, "Y")),
    sentence(60, (4, 9, "X")),
    sentence(3),
]
FOUND = [
    entities((0, 1, "X"), (0, 2, "X"), (0, 10, "Z"), (10, 11, "Y"), (11, 13, "X"), (2, 4, "Y")),
    entities((4, 9, "X")),
    entities((0, 3, "W")),
]


def test_a_nested_case_counted_by_hand() -> None:
    report = evaluate(NESTED, FOUND)
    assert report.sentences == 3
    assert report.micro == Score(4 / 8, 4 / 6, 8 / 14, true_positives=4, predicted=8, gold=6)
    assert report.per_label == {
        "W": Score.of(0, 1, 0),
        "X": Score.of(3, 4, 3),
        "Y": Score.of(0, 2, 2),
        "Z": Score.of(1, 1, 1),
    }
    # The mean of W, X, Y and Z: as in seqeval, W counts although gold does not have it.
    assert report.macro == Score((0 + 3 / 4 + 0 + 1) / 4, (0 + 1 + 0 + 1) / 4, (0 + 6 / 7 + 0 + 1) / 4, 4, 8, 6)
    assert report.by_length == {
        "1": Score.of(1, 2, 1),
        "2": Score.of(1, 3, 3),
        "3": Score.of(0, 1, 0),
        "4": Score.of(0, 0, 0),
        "5-6": Score.of(1, 1, 1),
        "7-9": Score.of(0, 0, 0),
        "10+": Score.of(1, 1, 1),
    }
    # In gold 0:10 holds 0:2 (and c d), 0:2 holds 0:1; 11:13 lies in no other span, for its two labels share it.
    assert report.by_depth == {
        "0": Score.of(3, 5, 4),
        "1": Score.of(0, 2, 1),
        "2": Score.of(1, 1, 1),
        "3+": Score.of(0, 0, 0),
    }
    assert report.by_nesting == {
        "flat": Score.of(2, 4, 3),
        "outer": Score.of(1, 1, 1),
        "middle": Score.of(0, 1, 1),
        "inner": Score.of(1, 2, 1),
    }
    assert {name: s for name, s in report.by_sentence_length.items() if s.gold or s.predicted} == {
        "1-10": Score.of(0, 1, 0),
        "11-20": Score.of(3, 6, 5),
        "51+": Score.of(1, 1, 1),
    }


@pytest.mark.parametrize(
    ("words", "bucket"),
    [(1, "1"), (2, "2"), (3, "3"), (4, "4"), (5, "5-6"), (6, "5-6"), (7, "7-9"), (9, "7-9"), (10, "10+"), (50, "10+")],
)
def test_an_entity_is_in_the_bucket_of_its_length(words: int, bucket: str) -> None:
    report = evaluate([sentence(50, (0, words, "A"))], [[]])
    assert [name for name, score in report.by_length.items() if score.gold] == [bucket]


@pytest.mark.parametrize(("words", "bucket"), [(1, "1-10"), (10, "1-10"), (11, "11-20"), (50, "41-50"), (51, "51+")])
def test_an_entity_is_in_the_bucket_of_its_sentence(words: int, bucket: str) -> None:
    report = evaluate([sentence(words, (0, 1, "A"))], [[]])
    assert [name for name, score in report.by_sentence_length.items() if score.gold] == [bucket]


def test_a_deeply_nested_entity_is_in_the_last_bucket() -> None:
    report = evaluate([sentence(5, *((0, end, "A") for end in range(1, 6)))], [[]])
    assert {name: score.gold for name, score in report.by_depth.items()} == {"0": 1, "1": 1, "2": 1, "3+": 2}


def test_crossing_spans_do_not_lie_in_each_other() -> None:
    report = evaluate([sentence(5, (0, 3, "A"), (2, 5, "A"))], [[]])
    assert report.by_nesting["flat"].gold == 2


@given(annotated())
def test_every_way_of_telling_apart_adds_up_to_the_whole(pairs: list[tuple[Sentence, frozenset[Entity]]]) -> None:
    report = evaluate([gold for gold, _ in pairs], [found for _, found in pairs])
    whole = report.micro
    assert whole.gold == sum(len(gold.entities) for gold, _ in pairs)
    assert whole.predicted == sum(len(found) for _, found in pairs)
    assert whole.true_positives == sum(len(gold.entities & found) for gold, found in pairs)
    for part in (
        report.per_label,
        report.by_length,
        report.by_depth,
        report.by_nesting,
        report.by_sentence_length,
    ):
        for count in ("true_positives", "predicted", "gold"):
            assert sum(getattr(score, count) for score in part.values()) == getattr(whole, count)
        assert all(score == Score.of(score.true_positives, score.predicted, score.gold) for score in part.values())


@given(annotated(), st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_matter(
    pairs: list[tuple[Sentence, frozenset[Entity]]], random_: random.Random
) -> None:
    report = evaluate([gold for gold, _ in pairs], [found for _, found in pairs])
    shuffled = [(gold, [*found, *(Entity(e.start, e.end, e.label, 0.25) for e in found)]) for gold, found in pairs]
    random_.shuffle(shuffled)
    for _, found in shuffled:
        random_.shuffle(found)
    assert evaluate((gold for gold, _ in shuffled), (iter(found) for _, found in shuffled)) == report


@given(annotated())
def test_gold_against_itself_is_all_right(pairs: list[tuple[Sentence, frozenset[Entity]]]) -> None:
    report = evaluate([gold for gold, _ in pairs], [gold.entities for gold, _ in pairs])
    perfect = 1.0 if any(gold.entities for gold, _ in pairs) else 0.0
    assert (report.micro.precision, report.micro.recall, report.micro.f1) == (perfect,) * 3
    assert report.macro.f1 == perfect


@given(annotated())
def test_flat_data_scores_as_seqeval_in_strict_mode(pairs: list[tuple[Sentence, frozenset[Entity]]]) -> None:
    gold = [Sentence(s.words, select(s.entities, "flat")) for s, _ in pairs]
    found = [select(entities_, "flat") for _, entities_ in pairs]
    labels = sorted({e.label for s in gold for e in s.entities} | {e.label for entities_ in found for e in entities_})
    report = evaluate(gold, found)
    tags = [iob2(len(s), s.entities) for s in gold], [iob2(len(s), f) for s, f in zip(gold, found, strict=True)]
    for average, score in (("micro", report.micro), ("macro", report.macro)):
        if labels:
            expected = precision_recall_fscore_support(*tags, average=average, scheme=IOB2, zero_division=0)[:3]
            assert (score.precision, score.recall, score.f1) == pytest.approx(expected, abs=1e-12)
    if labels:
        each = precision_recall_fscore_support(*tags, average=None, scheme=IOB2, zero_division=0)
        for label, *expected in zip(labels, *each, strict=True):
            ours = report.per_label[label]
            assert (ours.precision, ours.recall, ours.f1, ours.gold) == pytest.approx(expected, abs=1e-12)


def test_given_labels_say_what_macro_is_the_mean_of_and_nothing_else() -> None:
    report = evaluate(NESTED, FOUND, labels=["X", "W", "never seen"])
    assert report.macro.f1 == pytest.approx((6 / 7 + 0 + 0) / 3)
    assert report.per_label["never seen"] == Score.of(0, 0, 0)
    assert report.per_label["Z"] == Score.of(1, 1, 1)
    assert report.micro == evaluate(NESTED, FOUND).micro


def test_nothing_to_divide_by_is_zero() -> None:
    nothing = Score(0.0, 0.0, 0.0, true_positives=0, predicted=0, gold=0)
    report = evaluate([], [])
    assert report.micro == report.macro == nothing
    assert report.per_label == {}
    assert evaluate([sentence(2, (0, 1, "A"))], [[]]).micro == Score(0.0, 0.0, 0.0, 0, predicted=0, gold=1)
    assert evaluate([sentence(2)], [entities((0, 1, "A"))]).micro == Score(0.0, 0.0, 0.0, 0, predicted=1, gold=0)


@pytest.mark.parametrize(
    ("n_gold", "n_predicted", "message"),
    [(3, 2, "predicted ends after 2 sentences and gold goes on"), (0, 1, "gold ends after 0 sentences and predicted")],
)
def test_another_number_of_sentences_is_an_error(n_gold: int, n_predicted: int, message: str) -> None:
    with pytest.raises(SpanwrightError, match=message):
        evaluate([sentence(1)] * n_gold, iter([[]] * n_predicted))


class Tracked:
    """One prediction that a weak reference can follow."""

    def __iter__(self) -> Iterator[Entity]:
        yield Entity(0, 1, "A")


def test_what_was_scored_is_let_go() -> None:
    alive: WeakSet[Tracked] = WeakSet()
    most = 0

    def predictions() -> Iterator[Tracked]:
        nonlocal most
        for _ in range(500):
            found = Tracked()
            alive.add(found)
            most = max(most, len(alive))
            yield found
            del found

    report = evaluate((sentence(4, (0, 1, "A")) for _ in range(500)), predictions())
    assert report.micro == Score.of(500, 500, 500)
    assert most <= 2


def test_a_scorer_tells_how_far_it_is() -> None:
    scorer = Scorer()
    scorer.add(NESTED[0], FOUND[0])
    assert scorer.report() == evaluate(NESTED[:1], FOUND[:1])
    scorer.add(NESTED[1], FOUND[1])
    scorer.add(NESTED[2], FOUND[2])
    assert scorer.report() == evaluate(NESTED, FOUND)


def test_the_report_is_json() -> None:
    row = json.loads(json.dumps(evaluate(NESTED, FOUND).to_dict()))
    assert row["micro"] == {
        "precision": 4 / 8,
        "recall": 4 / 6,
        "f1": 8 / 14,
        "true_positives": 4,
        "predicted": 8,
        "gold": 6,
    }
    assert row["sentences"] == 3
    assert list(row["by_length"]) == ["1", "2", "3", "4", "5-6", "7-9", "10+"]
    assert row["per_label"]["Z"]["f1"] == row["by_depth"]["2"]["f1"] == 1.0


def test_the_table_shows_percentages_and_leaves_empty_buckets_out() -> None:
    lines = evaluate(NESTED, FOUND).table().splitlines()
    assert lines[0].split() == ["precision", "recall", "F1", "gold", "predicted", "right"]
    cells = [line.split() for line in lines]
    assert ["micro", "50.00", "66.67", "57.14", "6", "8", "4"] in cells
    assert ["X", "75.00", "100.00", "85.71", "3", "4", "3"] in cells
    assert ["W", "0.00", "0.00", "0.00", "0", "1", "0"] in cells
    assert not any(row[:1] == ["7-9"] for row in cells)
    assert "0.00 stands also where nothing was predicted" in lines[-1]
    assert "3 sentences" in lines[-1]


def test_the_table_keeps_its_columns_whatever_the_labels() -> None:
    names = ("地名", "a\nb\x1b[31m", "a label that is rather long, longer than any")
    gold = [sentence(3, *((i, i + 1, name) for i, name in enumerate(names)))]
    lines = evaluate(gold, [gold[0].entities]).table().splitlines()
    start = lines.index("label") + 1
    rows = lines[start : start + 3]
    # A Chinese character takes two columns, so its row has as many characters less.
    assert {len(row) + 2 * ("地名" in row) for row in rows} == {len(lines[0])}
    assert "\x1b" not in "".join(lines)


def test_a_table_of_nothing_is_still_a_table() -> None:
    assert ["micro", "0.00", "0.00", "0.00", "0", "0", "0"] in [
        line.split() for line in evaluate([], []).table().splitlines()
    ]


def test_a_document_in_one_sentence_is_scored_in_linear_time() -> None:
    gold = frozenset(Entity(i, i + 1 + i % 5, "X") for i in range(0, 20_000, 2))
    started = time.process_time()
    report = evaluate([Sentence(("w",) * 20_010, gold)], [gold])
    assert report.micro.f1 == 1.0
    assert time.process_time() - started < 2.0  # a tenth of it here; comparing every pair took half a minute


def test_mentions_and_documents_count_as_their_words() -> None:
    """What a tagger answers may be scored as it is; they are other objects than gold's, and not wrong for that."""
    gold = [Sentence(("Ada", "left", "Oslo"), frozenset({Entity(0, 1, "A"), Entity(2, 3, "B")}))]
    mentions = (Mention(0, 3, "A", "Ada", 0.9, 0, 1), Mention(4, 8, "B", "left", 0.9, 1, 2))
    document = Document("Ada left Oslo", ((0, 3), (4, 8), (9, 13)), ((0, 3),), mentions)
    for predicted in (mentions, document, [Entity(0, 1, "A"), Entity(1, 2, "B")]):
        micro = evaluate(gold, [predicted]).micro
        assert (micro.true_positives, micro.predicted, micro.gold) == (1, 2, 2)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ([("Ada", 0, 1)], "expected Entity"),
        ("Ada", "expected Entity"),
        ([Mention(0, 3, "A", "Ada")], "counted in words"),
        (Document("Bo left", ((0, 2), (3, 7)), ((0, 2),)), "expected the same words"),
        (3, "expected its entities"),
    ],
)
def test_what_is_no_prediction_is_refused(wrong: Any, told: str) -> None:
    with pytest.raises(SpanwrightError, match=told):
        evaluate([Sentence(("Ada", "left"), frozenset({Entity(0, 1, "A")}))], [wrong])
