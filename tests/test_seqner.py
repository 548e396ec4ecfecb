"""SeqNER: targets, the loss written out, the label combiner word by word, scores by enumeration."""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB2, Entities
from torch import Tensor
from torchcrf import CRF

from spanwright.config import from_dict, to_dict
from spanwright.head import States
from spanwright.heads.seqner import SeqNER, combine
from spanwright.types import Entity, Labels, Sentence, SpanwrightError

LABELS = Labels(["X", "Y"])
REPAIRS = ("conlleval", "strict", "discard")
NAMES = ("O", "B-X", "I-X", "B-Y", "I-Y")


def head(width: int = 8, **settings: Any) -> SeqNER:
    torch.manual_seed(0)
    return SeqNER(SeqNER.Config(**settings), LABELS, width, width)


def states(lengths: list[int], width: int = 8) -> States:
    torch.manual_seed(1)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    n = len(lengths)
    return States(torch.randn(n, max(lengths), width), mask, torch.zeros(n, 0, width), torch.randn(n, width))


def sentence(n_words: int, *entities: tuple[int, int, str]) -> Sentence:
    return Sentence(("w",) * n_words, frozenset(Entity(*entity) for entity in entities))


def read_off(tags: tuple[int, ...], repair: str) -> set[tuple[int, int, int]]:
    """The label combiner as a person would run it: word after word, one open entity at a time."""
    found = set()
    start = label = -1  # of the open entity; -1: none is open
    spoilt = False
    for i, tag in enumerate([*tags, 0]):
        kind, this = ("O", -1) if tag == 0 else ("B" if tag % 2 else "I", (tag - 1) // 2)
        if kind == "I" and start >= 0 and this == label:
            continue
        if start >= 0 and not (repair == "discard" and (spoilt or kind == "I")):
            found.add((start, i, label))
        spoilt = kind == "I"
        opens = kind == "B" or (kind == "I" and repair != "strict")
        start, label = (i, this) if opens else (-1, -1)
    return found


def test_nested_gold_becomes_its_outermost_entities() -> None:
    gold = sentence(9, (0, 4, "Y"), (1, 2, "X"), (5, 6, "X"), (6, 8, "X"))
    assert head().targets(gold)["tags"].tolist() == [3, 4, 4, 4, 0, 1, 1, 2, 0]
    assert head().representable(gold) == gold.entities - {Entity(1, 2, "X")}


@pytest.mark.parametrize(
    ("entities", "kept"),
    [
        ([(0, 3, "X"), (2, 6, "X")], (2, 6, "X")),  # crossing: the longer
        ([(1, 4, "X"), (0, 3, "X")], (0, 3, "X")),  # as long: the earlier
        ([(0, 3, "Y"), (0, 3, "X")], (0, 3, "X")),  # the same span: the first label
        ([(0, 3, "X"), (0, 4, "unknown")], (0, 3, "X")),  # a label that the model does not have
    ],
)
def test_what_tags_cannot_hold_is_left_out_in_a_fixed_way(entities: list, kept: tuple) -> None:
    for order in (entities, entities[::-1]):
        gold = sentence(6, *order)
        assert head().representable(gold) == {Entity(*kept)}
        assert np.flatnonzero(head().targets(gold)["tags"]).tolist() == list(range(kept[0], kept[1]))


def test_softmax_loss_is_the_papers_formula() -> None:
    tagger, batch = head(dropout=0.0), states([5, 2])
    tags = torch.tensor([[0, 1, 2, 3, 0], [4, 0, -1, -1, -1]])
    total, count = tagger.loss(batch, {"tags": tags})["seqner"]
    logits = batch.words @ tagger.tag.weight.T + tagger.tag.bias
    expected = 0.0
    for row, length in enumerate([5, 2]):
        for i in range(length):
            exponents = [math.exp(value) for value in logits[row, i].tolist()]
            expected -= math.log(exponents[tags[row, i]] / sum(exponents))
    assert total.item() == pytest.approx(expected, rel=1e-5)
    assert count.item() == 7


def test_crf_loss_is_that_of_pytorch_crf_without_end_transitions() -> None:
    tagger, batch = head(dropout=0.0, tagging="crf"), states([5, 2, 1])
    other = CRF(5, batch_first=True)
    with torch.no_grad():
        for parameter in (tagger.transitions, tagger.start):
            parameter.normal_()
        other.transitions.copy_(tagger.transitions)
        other.start_transitions.copy_(tagger.start)
        other.end_transitions.zero_()
    tags = torch.tensor([[0, 1, 2, 3, 0], [4, 0, -1, -1, -1], [1, -1, -1, -1, -1]])
    total, count = tagger.loss(batch, {"tags": tags})["seqner"]
    expected = -other(tagger.tag(batch.words), tags.clamp(min=0), mask=batch.mask)
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)
    assert count.item() == 3


@pytest.mark.parametrize("repair", REPAIRS)
def test_combiner_equals_reading_word_by_word(repair: Any) -> None:
    for length in range(1, 5):
        every = list(product(range(5), repeat=length))
        spans = combine(np.array(every), repair)
        found: list[set] = [set() for _ in every]
        for row, start, end, label in spans.tolist():
            found[row].add((start, end, label))
        assert found == [read_off(tags, repair) for tags in every]


def test_combiner_agrees_with_seqeval() -> None:
    """`conlleval` is what seqeval reads by default, `strict` what it reads in strict mode."""
    for tags in product(range(5), repeat=4):
        words = [NAMES[tag] for tag in tags]
        by_default = {(start, end + 1, "XY".index(label)) for label, start, end in get_entities(words)}
        assert {tuple(row[1:]) for row in combine(np.array([tags]), "conlleval").tolist()} == by_default
        strictly = {(e.start, e.end, "XY".index(e.tag)) for e in Entities([words], IOB2).entities[0]}
        assert {tuple(row[1:]) for row in combine(np.array([tags]), "strict").tolist()} == strictly


@pytest.mark.parametrize("repair", REPAIRS)
@pytest.mark.parametrize("tagging", ["softmax", "crf"])
def test_a_score_is_the_probability_that_the_combiner_yields_the_entity(tagging: Any, repair: Any) -> None:
    tagger = head(tagging=tagging, repair=repair)
    random = torch.Generator().manual_seed(7)
    lengths = [4, 1, 4, 2]
    scores = {"emissions": 1.5 * torch.randn(4, 4, 5, generator=random)}
    moves, start = torch.zeros(5, 5), torch.zeros(5)
    if tagging == "crf":
        moves, start = torch.randn(5, 5, generator=random), torch.randn(5, generator=random)
        scores |= {"transitions": moves[None], "start": start[None]}
    answers = tagger.decode(scores, lengths)
    assert any(answers)
    for row, length in enumerate(lengths):
        weights = weights_of_all(scores["emissions"][row, :length], moves, start)
        best = max(weights, key=weights.__getitem__)
        assert {(e.start, e.end, LABELS.index(e.label)) for e in answers[row]} == read_off(best, repair)
        for entity in answers[row]:
            place = (entity.start, entity.end, LABELS.index(entity.label))
            chosen = [weight for tags, weight in weights.items() if place in read_off(tags, repair)]
            assert entity.score == pytest.approx(sum(chosen) / sum(weights.values()), rel=1e-4)


def weights_of_all(emissions: Tensor, moves: Tensor, start: Tensor) -> dict[tuple[int, ...], float]:
    """exp(score) of every tag sequence of a sentence; the product of Eq. (8)."""
    weights = {}
    for tags in product(range(5), repeat=len(emissions)):
        moved = start[tags[0]].item() + sum(moves[a, b].item() for a, b in pairwise(tags))
        weights[tags] = math.exp(moved + sum(emissions[i, tag].item() for i, tag in enumerate(tags)))
    return weights


def test_dropout_acts_in_training_alone() -> None:
    one, given = head(dropout=0.5), states([5, 3])
    targets = {"tags": torch.tensor([[0, 1, 2, 0, 3], [0, 0, 1, -1, -1]])}
    losses = []
    for seed in range(2):
        torch.manual_seed(seed)
        losses.append(one.loss(given, targets)["seqner"][0].item())
    assert losses[0] != losses[1]
    one.eval()
    first, second = (one.loss(given, targets)["seqner"][0].item() for _ in range(2))
    assert first == second != losses[0]


def test_padding_yields_no_entity() -> None:
    for tagging in ("softmax", "crf"):
        tagger = head(tagging=tagging)
        scores = {"emissions": torch.zeros(2, 6, 5), "transitions": torch.zeros(1, 5, 5), "start": torch.zeros(1, 5)}
        scores["emissions"][:, :, 1] = 9.0
        short, long = tagger.decode(scores, [2, 6])
        assert {(e.start, e.end) for e in short} == {(0, 1), (1, 2)}
        assert len(long) == 6


def test_sentences_without_entities_are_answered_with_nothing() -> None:
    for tagging in ("softmax", "crf"):
        scores = {"emissions": torch.zeros(2, 3, 5), "transitions": torch.zeros(1, 5, 5), "start": torch.zeros(1, 5)}
        scores["emissions"][:, :, 0] = 9.0
        assert head(tagging=tagging).decode(scores, [3, 1]) == [frozenset(), frozenset()]


def test_inference_is_flat_and_drops_nothing() -> None:
    assert (head().inference.threshold, head().inference.overlap) == (0.0, "flat")
    assert len(head(tagging="crf").state_dict()) == 4


@pytest.mark.parametrize(
    "settings",
    [{"tagging": "viterbi"}, {"repair": "conll"}, {"dropout": 1.0}, {"dropout": -0.1}, {"inference": {"overlap": "x"}}],
)
def test_settings_that_make_no_sense_are_refused_by_name(settings: dict) -> None:
    with pytest.raises(SpanwrightError, match=rf"head\.{next(iter(settings))}.*expected"):
        from_dict(SeqNER.Config, settings)


def test_config_survives_a_table() -> None:
    config = from_dict(SeqNER.Config, {"tagging": "crf", "inference": {"threshold": 0.25}})
    assert config.inference.overlap == "flat"
    assert from_dict(SeqNER.Config, to_dict(config)) == config
