"""SpanNER: factored scores against the paper's concatenation, the loss written out, the sample, the width rule."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from spanwright.config import from_dict, to_dict
from spanwright.head import States
from spanwright.heads.spanner import FLOOR, SpanInference, SpanNER, covering_width
from spanwright.select import select
from spanwright.types import Entity, Labels, Sentence, SpanwrightError

GOLDEN = json.loads((Path(__file__).parent / "golden" / "bundling.json").read_text())
LABELS = Labels(["X", "Y", "Z"])
WIDTH = 6
REPRESENTATIONS = ("hybrid", "boundary", "pooling")


def head(**settings: Any) -> SpanNER:
    torch.manual_seed(0)
    return SpanNER(SpanNER.Config(**{"max_width": 4, "width_size": 3, **settings}), LABELS, WIDTH, WIDTH)


def states(lengths: list[int], padding: int = 0, seed: int = 1) -> States:
    torch.manual_seed(seed)
    n, longest = len(lengths), max(lengths)
    words, whole = torch.randn(n, longest, WIDTH), torch.randn(n, WIDTH)
    words = torch.cat([words, torch.full((n, padding, WIDTH), 7.0)], dim=1)
    mask = torch.arange(longest + padding) < torch.tensor(lengths)[:, None]
    return States(words, mask, torch.zeros(n, 0, WIDTH), whole)


def sentence(n_words: int, *entities: tuple[int, int, str]) -> Sentence:
    return Sentence(("w",) * n_words, frozenset(Entity(*entity) for entity in entities))


def padded(spans: list[list[list[int]]]) -> Tensor:
    """[B, G, 3], -1 where a sentence has fewer."""
    most = max(map(len, spans))
    rows = [[*row, *[[-1, -1, -1]] * (most - len(row))] for row in spans]
    return torch.tensor(rows, dtype=torch.int64).reshape(len(spans), most, 3)


def naive_logits(spanner: SpanNER, batch: States, row: int, start: int, end: int) -> Tensor:
    """Concatenate, then one linear layer: Eq. (13)-(16) as they stand."""
    words = batch.words[row]
    width = spanner.span_width.weight[end - start - 1]
    boundary = [words[start], words[end - 1]]
    pooling = [words[start:end].amax(0), batch.whole[row]]
    parts = {"boundary": boundary, "pooling": pooling, "hybrid": boundary + pooling}[spanner.config.representation]
    return spanner.classify(torch.cat([*parts, width]))


@pytest.mark.parametrize("representation", REPRESENTATIONS)
@pytest.mark.parametrize(("lengths", "max_width"), [([7, 3, 1], 4), ([2], 9), ([1], 1), ([5, 5], 1)])
def test_scores_are_those_of_the_naive_formula(representation: Any, lengths: list[int], max_width: int) -> None:
    spanner, batch = head(representation=representation, max_width=max_width).eval(), states(lengths, padding=2)
    scores = spanner(batch)["scores"]
    assert scores.shape == (len(lengths), max(lengths) + 2, max_width, 4)
    assert scores.isfinite().all()
    for row, length in enumerate(lengths):
        for start in range(scores.shape[1]):
            for width in range(1, max_width + 1):
                found = scores[row, start, width - 1]
                if start + width <= length:
                    expected = naive_logits(spanner, batch, row, start, start + width)
                    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
                else:
                    assert found.softmax(0).tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("representation", REPRESENTATIONS)
def test_loss_is_the_mean_over_gold_and_negatives(representation: Any) -> None:
    """With room for all negatives nothing is left to chance: every span of the batch counts once."""
    spanner, batch = head(representation=representation, dropout=0.0, negatives=1000), states([6, 2, 1])
    gold = [[[0, 3, 1], [1, 2, 3]], [[0, 2, 2]], []]
    total, count = spanner.loss(batch, {"spans": padded(gold), "key": torch.arange(3)})["spanner"]
    types = {(row, start, end): kind for row, spans in enumerate(gold) for start, end, kind in spans}
    expected, n_spans = 0.0, 0
    for row, length in enumerate([6, 2, 1]):
        for start in range(length):
            for end in range(start + 1, min(start + 4, length) + 1):
                logits = naive_logits(spanner, batch, row, start, end).tolist()
                shares = [math.exp(logit) for logit in logits]
                expected -= math.log(shares[types.get((row, start, end), 0)] / sum(shares))
                n_spans += 1
    assert total.item() == pytest.approx(expected, rel=1e-5)
    assert count.item() == n_spans


@pytest.mark.parametrize("case", GOLDEN["span_count"])
def test_as_many_spans_as_the_paper_counts(case: dict) -> None:
    spanner = head(max_width=case["eps"], negatives=10_000)
    mask = torch.ones(1, case["n"], dtype=torch.bool)
    rows, starts, ends, _ = spanner._spans(mask, padded([[]]), torch.tensor([0]))
    assert len(rows) == len(set(zip(starts.tolist(), ends.tolist(), strict=True))) == case["count"]
    with torch.no_grad():
        scores = spanner(states([case["n"]]))["scores"]
    assert (scores > -100).all(3).sum() == case["count"]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=4), st.integers(1, 12), st.integers(1, 60), st.integers(0, 50))
def test_the_sample_is_of_the_right_size_without_gold_and_duplicates(
    lengths: list[int], max_width: int, negatives: int, seed: int
) -> None:
    spanner = head(max_width=max_width, negatives=negatives)
    every = [
        [(start, end) for start in range(n) for end in range(start + 1, min(n, start + max_width) + 1)] for n in lengths
    ]
    gold = [[[*span, 1 + (i % 3)] for i, span in enumerate(spans[:: 1 + seed])] for spans in every]
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    keys = torch.arange(seed, seed + len(lengths))
    rows, starts, ends, types = (part.tolist() for part in spanner._spans(mask, padded(gold), keys))
    spans = list(zip(rows, starts, ends, types, strict=True))
    for row, possible in enumerate(every):
        drawn = [(start, end) for r, start, end, kind in spans if r == row and kind == 0]
        own = {(start, end, kind) for r, start, end, kind in spans if r == row and kind}
        assert own == {tuple(span) for span in gold[row]}
        rest = set(possible) - {(start, end) for start, end, _ in own}
        assert len(drawn) == len(set(drawn)) == min(len(rest), negatives)  # Eq. (20)
        assert set(drawn) <= rest


def test_the_sample_depends_on_the_key_alone() -> None:
    spanner = head(max_width=5, negatives=12)

    def negatives_of(lengths: list[int], keys: list[int], padding: int, row: int) -> set[tuple[int, int]]:
        mask = torch.arange(max(lengths) + padding) < torch.tensor(lengths)[:, None]
        gold = padded([[[0, 1, 1]] if i == row else [[0, 1, 2], [0, 2, 1]] for i in range(len(lengths))])
        rows, starts, ends, types = spanner._spans(mask, gold, torch.tensor(keys))
        chosen = (rows == row) & (types == 0)
        return set(zip(starts[chosen].tolist(), ends[chosen].tolist(), strict=True))

    alone = negatives_of([20], [-5], 0, 0)
    assert len(alone) == 12
    assert negatives_of([20], [-5], 40, 0) == alone
    assert negatives_of([3, 50, 20], [8, 9, -5], 0, 2) == alone
    assert negatives_of([20, 50], [-5, 3], 1, 0) == alone
    assert negatives_of([20], [-6], 0, 0) != alone


@pytest.mark.parametrize(
    ("widths", "expected"),
    [
        ([1] * 99 + [9], 9),  # 99 of 100 is not more than 99 %
        ([1] * 199 + [9], 1),
        ([1] * 990 + [5] * 5 + [7] * 5, 5),
        ([3], 3),
        ([], 1),
        ([2] * 693 + [4] * 7, 4),  # exactly 99 %
    ],
)
def test_width_rule(widths: list[int], expected: int) -> None:
    assert covering_width(widths) == expected


def test_fit_fills_in_the_width_unless_it_is_given() -> None:
    corpus = [sentence(9, (0, 2, "X"), (0, 6, "Y")), sentence(3)]
    assert SpanNER.fit(SpanNER.Config(), corpus).max_width == 6
    assert SpanNER.fit(SpanNER.Config(max_width=3), corpus).max_width == 3
    with pytest.raises(SpanwrightError, match=r"max_width is 0.*fit"):
        SpanNER(SpanNER.Config(), LABELS, WIDTH, WIDTH)


def test_only_what_can_be_answered_is_taught() -> None:
    gold = sentence(9, (0, 5, "X"), (1, 3, "Z"), (1, 3, "Y"), (2, 6, "X"), (8, 9, "unknown"))
    spanner = head(max_width=4)
    assert spanner.representable(gold) == {Entity(1, 3, "Y"), Entity(2, 6, "X")}
    assert spanner.targets(gold)["spans"].tolist() == [[1, 3, 2], [2, 6, 1]]
    assert spanner.targets(sentence(2))["spans"].shape == (0, 3)


def test_an_entity_that_is_too_wide_is_no_negative_either() -> None:
    spanner = head(max_width=2, negatives=100)
    gold = torch.from_numpy(spanner.targets(sentence(5, (0, 4, "X")))["spans"])[None]
    _, starts, ends, _ = spanner._spans(torch.ones(1, 5, dtype=torch.bool), gold, torch.tensor([0]))
    assert (ends - starts).max() == 2


def test_decode_lists_each_candidate_above_the_floor_with_its_probability() -> None:
    probabilities = torch.full((2, 3, 2, 4), 1e-6)
    probabilities[:, :, :, 0] = 1.0
    probabilities[0, 0, 1] = torch.tensor([0.1, 0.6, FLOOR + 0.01, 0.24])
    probabilities[0, 2, 0] = torch.tensor([0.97, FLOOR - 0.03, 0.005, 0.005])
    probabilities[1, 1, 0] = torch.tensor([0.0, 0.0, 1.0, 0.0])
    first, second = head(max_width=2).decode({"scores": probabilities.clamp(min=1e-9).log()}, [3, 2])
    scores = {(e.start, e.end, e.label): e.score for e in first}
    assert scores == pytest.approx({(0, 2, "X"): 0.6, (0, 2, "Y"): FLOOR + 0.01, (0, 2, "Z"): 0.24}, abs=1e-4)
    assert second == {Entity(1, 2, "Y")}
    assert next(iter(second)).score == pytest.approx(1.0)


def test_the_papers_rule_takes_a_spans_most_probable_type_and_no_other() -> None:
    """Eq. (17): "the highest response", however low it is; the span is no entity where that of None is."""
    probabilities = torch.full((1, 3, 2, 4), 1e-6)
    probabilities[:, :, :, 0] = 1.0
    probabilities[0, 0, 1] = torch.tensor([0.3, 0.1, 0.4, 0.2])
    probabilities[0, 1, 0] = torch.tensor([0.4, 0.3, 0.2, 0.1])
    probabilities[0, 2, 0] = torch.tensor([0.2, 0.25, 0.25, 0.3])
    inference = SpanInference(threshold=0.0, overlap="flat", types="best")
    (found,) = head(max_width=2, inference=inference).decode({"scores": probabilities.log()}, [3])
    assert {(e.start, e.end, e.label) for e in found} == {(0, 2, "Y"), (2, 3, "Z")}
    assert [e.score for e in found if e.label == "Y"] == pytest.approx([0.4])
    anything = torch.full((1, 1, 1, 4), float("nan"))
    assert head(max_width=1, inference=inference).decode({"scores": anything}, [1]) == [frozenset()]


@pytest.mark.parametrize("case", GOLDEN["overlap_removal"])
def test_flat_output_keeps_the_highest_probability_greedily(case: dict) -> None:
    spans = [(start, end + 1, probability) for start, end, probability in case["spans"]]
    widest, n_words = max(end - start for start, end, _ in spans), max(end for _, end, _ in spans)
    probabilities = torch.full((1, n_words, widest, 4), 1e-9)
    probabilities[:, :, :, 0] = 1.0
    for start, end, probability in spans:
        probabilities[0, start, end - start - 1, :2] = torch.tensor([1 - probability, probability])
    (candidates,) = head(max_width=widest).decode({"scores": probabilities.log()}, [n_words])
    kept = sorted([e.start, e.end - 1] for e in select(candidates, "flat"))
    assert kept == case["greedy_highest_probability"]


def test_dropout_acts_in_training_alone() -> None:
    one, given = head(dropout=0.5), states([5, 3])
    targets = {"spans": padded([[[0, 2, 1]], [[1, 2, 2]]]), "key": torch.tensor([1, 2])}
    losses = []
    for seed in range(2):
        torch.manual_seed(seed)
        losses.append(one.loss(given, targets)["spanner"][0].item())
    assert losses[0] != losses[1]
    one.eval()
    first, second = (one.loss(given, targets)["spanner"][0].item() for _ in range(2))
    assert first == second != losses[0]


@pytest.mark.parametrize(
    "settings",
    [
        {"representation": "maximum"},
        {"max_width": -1},
        {"negatives": 0},
        {"width_size": 0},
        {"dropout": 1.0},
        {"inference": {"types": "all"}},
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(settings: dict) -> None:
    with pytest.raises(SpanwrightError, match=rf"head\.{next(iter(settings))}.*expected"):
        from_dict(SpanNER.Config, settings)


def test_config_survives_a_table() -> None:
    config = from_dict(SpanNER.Config, {"representation": "pooling", "inference": {"overlap": "flat"}})
    assert config.inference.threshold == 0.5
    assert from_dict(SpanNER.Config, to_dict(config)) == config
