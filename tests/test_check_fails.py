"""The laws can fail: each of these heads has one fault, and the law against it refuses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toy_heads import Toy, ToyConfig, toy_oracle

from spanwright.check import LAWS, SLOW, check_bundle, check_head
from spanwright.head import Head, States
from spanwright.heads.bundle import Bundle
from spanwright.tagger import Tagger
from spanwright.types import Entity, Labels, Sentence

Losses = dict[str, tuple[Tensor, Tensor]]


class DeepPrefix(Toy):
    """Its prefix is no list of vectors."""

    def __init__(self, config: Any, labels: Labels, width: int, input_width: int) -> None:
        super().__init__(config, labels, width, input_width)
        self.hints = nn.Parameter(torch.randn(2, 1, input_width))

    def prefix(self) -> Tensor:
        return self.hints


class RandomTargets(Toy):
    """Drops gold at random, so a sentence is never the same twice."""

    def targets(self, sentence: Sentence) -> dict[str, np.ndarray]:
        gold = super().targets(sentence)["gold"]
        return {"gold": gold * (np.random.random(gold.shape) < 0.5).astype(np.float32)}


class OrderedTargets(Toy):
    """Lists gold in the order in which a set happens to yield it."""

    def targets(self, sentence: Sentence) -> dict[str, np.ndarray]:
        ends = [entity.end for entity in sentence.entities]
        return {**super().targets(sentence), "ends": np.array(ends, dtype=np.int64)}


class ListTargets(Toy):
    """Returns a list where an array is due."""

    def targets(self, sentence: Sentence) -> dict[str, Any]:
        return {**super().targets(sentence), "lengths": [len(sentence)]}


class IdleParameter(Toy):
    """Has a layer that nothing reads."""

    def __init__(self, config: Any, labels: Labels, width: int, input_width: int) -> None:
        super().__init__(config, labels, width, input_width)
        self.idle = nn.Linear(width, width)


class NoEntityNoNumber(Toy):
    """Divides by the number of entities, of which a sentence may have none."""

    def loss(self, states: States, targets: Mapping[str, Tensor]) -> Losses:
        total, count = super().loss(states, targets)["spans"]
        return {"spans": (total / targets["gold"].sum(), count)}


class LossOfPlace(Toy):
    """Weighs sentences by numbers drawn in the order of the batch."""

    def loss(self, states: States, targets: Mapping[str, Tensor]) -> Losses:
        weight = torch.rand(len(states.words), 1, 1)
        return super().loss(replace(states, words=states.words * weight), targets)


class LossOfPadding(Toy):
    """Counts the padding among the spans."""

    def loss(self, states: States, targets: Mapping[str, Tensor]) -> Losses:
        total, _ = super().loss(states, targets)["spans"]
        return {"spans": (total, torch.tensor(states.mask.numel() * self.longest))}


class HalfSums(Toy):
    """Adds up in whatever precision the layers answered in."""

    def loss(self, states: States, targets: Mapping[str, Tensor]) -> Losses:
        logits, spans = self.logits(states)
        wrong = (logits.sigmoid() - targets["gold"].to(logits.dtype)).square()
        return {"spans": ((wrong * spans).sum(), spans.sum())}


class ScoreAboveOne(Toy):
    """Calls a logit a score."""

    def forward(self, states: States) -> dict[str, Tensor]:
        logits, spans = self.logits(states)
        return {"spans": (logits + 5) * spans}

    def decode(self, scores: Mapping[str, Tensor], lengths: Sequence[int]) -> list[frozenset[Entity]]:
        found = super().decode(scores, lengths)
        return [frozenset(replace(entity, score=2.0) for entity in entities) for entities in found]


class SeesPadding(Toy):
    """Compares every word with the mean over the row, padding included."""

    def forward(self, states: States) -> dict[str, Tensor]:
        return super().forward(replace(states, words=states.words - states.words.mean(1, keepdim=True)))


class SeesNeighbours(Toy):
    """Normalises over the batch."""

    def forward(self, states: States) -> dict[str, Tensor]:
        return super().forward(replace(states, words=states.words / states.words.std()))


class RunsIntoPadding(Toy):
    """Scores spans that end behind the sentence."""

    def forward(self, states: States) -> dict[str, Tensor]:
        return {"spans": self.logits(states)[0].sigmoid()}


class ForgetsTable(Toy):
    """Keeps a random table that is not saved."""

    def __init__(self, config: Any, labels: Labels, width: int, input_width: int) -> None:
        super().__init__(config, labels, width, input_width)
        self.table = torch.randn(width)

    def logits(self, states: States) -> tuple[Tensor, Tensor]:
        return super().logits(replace(states, words=states.words + self.table))


class OneTooFar(Toy):
    """Takes the end of a span for inclusive."""

    def decode(self, scores: Mapping[str, Tensor], lengths: Sequence[int]) -> list[frozenset[Entity]]:
        found = super().decode(scores, lengths)
        return [
            frozenset(replace(entity, end=min(entity.end + 1, n)) for entity in entities)
            for entities, n in zip(found, lengths, strict=True)
        ]


class ClaimsAll(Toy):
    """Says that it represents entities that its table has no cell for."""

    def targets(self, sentence: Sentence) -> dict[str, np.ndarray]:
        return super().targets(replace(sentence, entities=super().representable(sentence)))

    def representable(self, sentence: Sentence) -> frozenset[Entity]:
        return frozenset(entity for entity in sentence.entities if len(entity) <= 4)


class ForgetsNeighbours(Toy):
    """Answers the first sentence of a batch alone; its scores are right."""

    def decode(self, scores: Mapping[str, Tensor], lengths: Sequence[int]) -> list[frozenset[Entity]]:
        found = super().decode(scores, lengths)
        return [*found[:1], *(frozenset() for _ in found[1:])]


class CountIsLearnt(Toy):
    """Its count depends on the weights."""

    def loss(self, states: States, targets: Mapping[str, Tensor]) -> Losses:
        total, count = super().loss(states, targets)["spans"]
        return {"spans": (total, count + 0 * self.score.bias.sum())}


class CountsInHalf(Toy):
    """Adds up its count in bf16, which knows no 257."""

    def loss(self, states: States, targets: Mapping[str, Tensor]) -> Losses:
        total, count = super().loss(states, targets)["spans"]
        return {"spans": (total, count.to(self.score(self.first(states.words)).dtype).float())}


class RoughSum(Toy):
    """Its exponentials leave bf16 far from the sum that they have in fp32."""

    def loss(self, states: States, targets: Mapping[str, Tensor]) -> Losses:
        total, count = super().loss(states, targets)["spans"]
        rough = self.first(states.words).dtype == torch.bfloat16
        return {"spans": (total * (2 if rough else 1), count)}


class InfiniteGradient(Toy):
    """The root of a difference that is zero: its value is finite, its gradient is not."""

    def loss(self, states: States, targets: Mapping[str, Tensor]) -> Losses:
        total, count = super().loss(states, targets)["spans"]
        return {"spans": (total + (self.score.bias - self.score.bias.detach()).sum().abs().sqrt(), count)}


class NoLoss(Toy):
    """Gives no loss where there is no entity."""

    def loss(self, states: States, targets: Mapping[str, Tensor]) -> Losses:
        return super().loss(states, targets) if targets["gold"].any() else {}


class InventsGold(Toy):
    """Says that it represents an entity that nobody annotated."""

    def representable(self, sentence: Sentence) -> frozenset[Entity]:
        return super().representable(sentence) | {Entity(0, 1, self.labels[0])}


class RepresentsNothing(Toy):
    """Gives up every entity, and so answers perfectly what is left."""

    def representable(self, sentence: Sentence) -> frozenset[Entity]:
        return frozenset()


class DrawsItsAnswer(Toy):
    """The same scores after loading, another answer."""

    def decode(self, scores: Mapping[str, Tensor], lengths: Sequence[int]) -> list[frozenset[Entity]]:
        found = super().decode(scores, lengths)
        return [frozenset(replace(entity, score=float(torch.rand(()))) for entity in entities) for entities in found]


class LearnsNothing(Toy):
    """Is told that nothing is an entity."""

    def loss(self, states: States, targets: Mapping[str, Tensor]) -> Losses:
        return super().loss(states, {**targets, "gold": torch.zeros_like(targets["gold"])})


class LoopsOverWords(Toy):
    """Its loop depends on the length, so an export holds for one length only."""

    def forward(self, states: States) -> dict[str, Tensor]:
        spans = super().forward(states)["spans"]
        return {"spans": torch.stack([spans[:, n] for n in range(spans.shape[1])], 1)}


BROKEN: list[tuple[type[Head], str, str]] = [
    (DeepPrefix, "prefix", "(2, 1, 32)"),
    (RandomTargets, "targets", "gold differs"),
    (OrderedTargets, "targets", "ends differs"),
    (ListTargets, "targets", "list"),
    (IdleParameter, "gradients", "idle.weight"),
    (InfiniteGradient, "gradients", "is not finite"),
    (NoEntityNoNumber, "finite", "spans = "),
    (NoLoss, "finite", "no loss at all"),
    (InfiniteGradient, "finite", "a gradient is not finite"),
    (LossOfPlace, "additive", "one by one"),
    (LossOfPadding, "additive", "one by one"),
    (HalfSums, "bf16", "bfloat16"),
    (CountIsLearnt, "bf16", "has a gradient"),
    (CountsInHalf, "bf16", "spans counts"),
    (RoughSum, "bf16", "spans sums to"),
    (ScoreAboveOne, "candidates", "score 2.0"),
    (RunsIntoPadding, "candidates", "words"),
    (SeesPadding, "independent", "spans is off by"),
    (SeesNeighbours, "independent", "spans is off by"),
    (ForgetsNeighbours, "independent", "alone, [] in a batch"),
    (ForgetsTable, "save", "spans differs after loading"),
    (DrawsItsAnswer, "save", "before,"),
    (OneTooFar, "oracle", "for the gold"),
    (ClaimsAll, "oracle", "for the gold"),
    (InventsGold, "oracle", "representable adds"),
    (RepresentsNothing, "oracle", "is not representable"),
    (LearnsNothing, "overfit", "steps"),
    (LoopsOverWords, "export", ""),
]
TRIALS = [
    pytest.param(head, law, seen, marks=[pytest.mark.slow] if law in SLOW else [], id=f"{head.__name__}-{law}")
    for head, law, seen in BROKEN
]


@pytest.mark.parametrize(("head", "law", "seen"), TRIALS)
def test_a_broken_head_is_refused(head: type[Head], law: str, seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanwright.check.laws.OVERFIT_STEPS", 60)  # it will not learn in 400 either
    with pytest.raises(AssertionError) as refusal:
        check_head(head, oracle=toy_oracle, nested=True, laws=[law])
    message = str(refusal.value)
    assert message.startswith(f"{head.__name__} breaks the law {law!r}.")
    assert seen in message.split("Seen: ")[1]


class Timid(Toy):
    """Sure that nothing is an entity until it is taught otherwise, as many detectors are."""

    def __init__(self, config: Any, labels: Labels, width: int, input_width: int) -> None:
        super().__init__(config, labels, width, input_width)
        nn.init.constant_(self.score.bias, -8.0)


def test_a_head_that_proposes_nothing_untrained_is_trained_first(monkeypatch: pytest.MonkeyPatch) -> None:
    check_head(Timid, oracle=toy_oracle, nested=True, laws=["independent"])
    monkeypatch.setattr("spanwright.check.laws.SCHOOL_STEPS", 1)
    with pytest.raises(AssertionError, match="not even after 1 steps of training"):
        check_head(Timid, oracle=toy_oracle, nested=True, laws=["independent"])


def test_every_law_has_been_broken() -> None:
    assert {law for _, law, _ in BROKEN} | {"encoder"} == set(LAWS)


def test_a_second_call_of_the_encoder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Tagger.scores

    def twice(self: Tagger, batch: Any) -> dict[str, Tensor]:
        plain(self, batch)
        return plain(self, batch)

    monkeypatch.setattr(Tagger, "scores", twice)
    with pytest.raises(AssertionError, match=r"'encoder'(.|\n)*2 calls of the encoder"):
        check_head(Toy, oracle=toy_oracle, nested=True, laws=["encoder"])


def test_nesting_must_be_claimed() -> None:
    with pytest.raises(AssertionError, match="nesting is not claimed"):
        check_head(Toy, oracle=toy_oracle, nested=False, laws=["oracle"])


def test_a_flat_head_may_not_claim_nesting() -> None:
    from spanwright.heads.seqner import SeqNER

    with pytest.raises(AssertionError, match="'overfit'"):
        check_head(SeqNER, oracle=toy_oracle, nested=True, laws=["overfit"])


def test_a_crash_names_the_law() -> None:
    with pytest.raises(AssertionError, match=r"Toy breaks the law 'oracle'(.|\n)*KeyError") as refusal:
        check_head(Toy, oracle=lambda head, sentence: {}, nested=True, laws=["oracle"])
    assert isinstance(refusal.value.__cause__, KeyError)


def test_an_unknown_law_is_an_error() -> None:
    with pytest.raises(KeyError, match="overfitt"):
        check_head(Toy, oracle=toy_oracle, laws=["overfitt"])


def swapped_slices(bundle: Bundle) -> None:
    names = list(bundle.prefixes)
    slices = list(bundle.prefixes.values())
    bundle.prefixes = dict(zip(names, slices[::-1], strict=True))


@pytest.fixture
def careless_bundle(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A bundle that hands its prefixes to the wrong heads."""
    plain = Bundle.__init__

    def careless(self: Bundle, *arguments: Any) -> None:
        plain(self, *arguments)
        swapped_slices(self)

    monkeypatch.setattr(Bundle, "__init__", careless)
    yield


@pytest.mark.usefixtures("careless_bundle")
def test_swapped_prefixes_are_refused() -> None:
    members: Any = {"one": (Toy, ToyConfig(hints=2)), "other": (Toy, ToyConfig(hints=2))}
    with pytest.raises(AssertionError, match="A bundle of Toy, Toy breaks the law 'own'"):
        check_bundle(members, laws=["own"])


def test_shared_twins_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Bundle.__init__

    def shared(self: Bundle, *arguments: Any) -> None:
        plain(self, *arguments)
        for name in self.heads:
            self.heads[name] = next(iter(self.heads.values()))

    monkeypatch.setattr(Bundle, "__init__", shared)
    with pytest.raises(AssertionError, match=r"'twins'(.|\n)*share their weights"):
        check_bundle({"toy": (Toy, None)}, laws=["twins"])


def test_a_bundle_that_weighs_its_only_head_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Bundle.loss

    def halved(self: Bundle, states: States, targets: Mapping[str, Tensor]) -> Losses:
        return {name: (total / 2, count) for name, (total, count) in plain(self, states, targets).items()}

    monkeypatch.setattr(Bundle, "loss", halved)
    with pytest.raises(AssertionError, match="breaks the law 'one'"):
        check_bundle({"toy": (Toy, None)}, laws=["one"])
