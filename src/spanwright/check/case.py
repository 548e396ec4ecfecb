"""What the laws stand on: a head on trial, sentences for it, and comparisons."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from spanwright.batch import Batch
from spanwright.config import EncoderConfig
from spanwright.encoder import build_encoder
from spanwright.head import Head, States
from spanwright.heads import HEADS, name_of
from spanwright.select import select
from spanwright.tagger import Tagger
from spanwright.types import Entity, Labels, Sentence, SpanwrightError

Oracle = Callable[[Head, Sentence], Mapping[str, Tensor]]

CLOSE = 1e-5  # scores that differ by less are the same in fp32


@dataclass(frozen=True)
class Case:
    """A head on trial: what every law is given."""

    head_class: type[Head]
    config: Any
    labels: Labels
    sentences: tuple[Sentence, ...]  # with gold; the last one is far longer than the others
    oracle: Oracle | None = None
    nested: bool = False  # the head claims that it can answer with nested entities

    @property
    def title(self) -> str:
        return self.head_class.__name__

    def tagger(self) -> Tagger:
        """The same weights at every call, over TinyEncoder; ready to predict."""
        torch.manual_seed(0)
        encoder = build_encoder(EncoderConfig(name="tiny"))
        head = self.head_class(self.config, self.labels, encoder.width, encoder.input_width)
        encoder.eval()
        head.eval()
        return Tagger(encoder, head)


def make_case(
    head_class: type[Head], config: Any, *, labels: Sequence[str], oracle: Oracle | None = None, nested: bool = False
) -> Case:
    sentences = (*random_sentences(64, labels), *tangled_sentences(labels), long_sentence(labels))
    config = head_class.fit(head_class.Config() if config is None else config, sentences)
    return Case(head_class, config, Labels(labels), sentences, oracle, nested)


@contextmanager
def registered(*head_classes: type[Head]) -> Iterator[None]:
    """Heads without a name get one meanwhile, for a head is saved and bundled by its name."""
    nameless = {}
    for kind in head_classes:
        try:
            name_of(kind)
        except SpanwrightError:
            place = f"{kind.__module__}:{kind.__qualname__}"
            nameless[place] = place
    with mock.patch.dict(HEADS, nameless):
        yield


def expect(condition: bool, seen: str) -> None:
    """An assertion that stays when Python drops its own (`python -O`)."""
    if not condition:
        raise AssertionError(seen)


# Sentences


def random_sentences(count: int, labels: Sequence[str], seed: int = 0, longest: int = 12) -> list[Sentence]:
    """Sentences of 1 to `longest` words, entities of 1 to 5 words, nested but never crossing; always the same."""
    draw = random.Random(seed)
    return [_random_sentence(draw, draw.randint(1, longest), labels, f"random-{seed}-{i}") for i in range(count)]


def tangled_sentences(labels: Sequence[str]) -> list[Sentence]:
    """What real corpora have here and there: crossing entities, and two labels on one span."""
    a, b = labels[0], labels[-1]
    golds = {
        "crossing": [Entity(0, 3, a), Entity(2, 5, b)],
        "twice": [Entity(1, 3, label) for label in labels],
        "both": [Entity(0, 4, a), Entity(2, 6, b), Entity(1, 3, a), *(Entity(6, 7, label) for label in labels)],
    }
    words = ("ab", "cde", "f", "ghi", "jk", "lmnop", "a", "bc")
    return [Sentence(words, frozenset(gold), id=name) for name, gold in golds.items()]


def long_sentence(labels: Sequence[str]) -> Sentence:
    """Ten times longer than the random ones are on average."""
    return _random_sentence(random.Random(1), 70, labels, "long")


def _random_sentence(draw: random.Random, n_words: int, labels: Sequence[str], name: str) -> Sentence:
    words = tuple(draw.choice("abcdefghijklmnop") * draw.randint(1, 7) for _ in range(n_words))
    entities: dict[tuple[int, int], Entity] = {}
    for _ in range(draw.randint(0, 1 + n_words // 3)):
        start = draw.randrange(n_words)
        entity = Entity(start, min(n_words, start + draw.randint(1, 5)), draw.choice(labels))
        if not any(entity.crosses(other) for other in entities.values()):
            entities[entity.start, entity.end] = entity
    return Sentence(words, frozenset(entities.values()), id=name)


def lesson(labels: Sequence[str]) -> list[Sentence]:
    """Five sentences to learn by heart: nested, alone, none, side by side, whole."""
    a, b = labels[0], labels[-1]
    golds: list[list[Entity]] = [
        [Entity(0, 4, a), Entity(1, 3, b)],
        [Entity(2, 3, b)],
        [],
        [Entity(1, 3, a), Entity(3, 4, a)],
        [Entity(0, 2, b), Entity(0, 1, a)],
    ]
    sizes = (6, 4, 3, 5, 2)
    return [
        Sentence(tuple(f"word{i}{n}" for n in range(size)), frozenset(gold), id=f"lesson-{i}")
        for i, (size, gold) in enumerate(zip(sizes, golds, strict=True))
    ]


def every_small_gold(labels: Sequence[str]) -> Iterator[Sentence]:
    """All sentences of up to five words with up to two entities; two have the first and the last label between them."""
    ends = {labels[0], labels[-1]}
    for n_words in range(1, 6):
        words = tuple(f"w{n}" for n in range(n_words))
        possible = [Entity(*span, label) for span in combinations(range(n_words + 1), 2) for label in labels]
        pairs = combinations([entity for entity in possible if entity.label in ends], 2)
        for gold in ((), *((entity,) for entity in possible), *pairs):
            yield Sentence(words, frozenset(gold))


# What the laws share


def collate(tagger: Tagger, sentences: Sequence[Sentence], first_key: int = 0) -> Batch:
    return tagger.collate(sentences, keys=range(first_key, first_key + len(sentences)))


def mean_loss(losses: Mapping[str, tuple[Tensor, Tensor]]) -> Tensor:
    """One number to learn from, as the trainer makes it."""
    return torch.stack([total / count.clamp(min=1) for total, count in losses.values()]).sum()


def scores_of(tagger: Tagger, sentences: Sequence[Sentence]) -> dict[str, Tensor]:
    with torch.inference_mode():
        return dict(tagger.scores(tagger.collate(sentences)))


def compare_scores(alone: Mapping[str, Tensor], together: Mapping[str, Tensor], row: int, where: str) -> None:
    """The cells that a sentence has when it is alone, against the same cells of its row in a batch."""
    for name, scores in alone.items():
        full = together[name][min(row, len(together[name]) - 1)]  # a learned table is [1, ...]
        cells = full[tuple(slice(0, size) for size in scores.shape[1:])]
        shapes = f"{tuple(scores.shape[1:])} alone, {tuple(full.shape)} in the batch"
        expect(cells.shape == scores.shape[1:], f"{name}: {shapes}, {where}")
        expect(not scores.isnan().any(), f"{name} is NaN, {where}")
        if not scores[0].isclose(cells, rtol=CLOSE, atol=CLOSE).all():
            off = (scores[0] - cells).abs().nan_to_num(torch.inf).max().item()
            expect(False, f"{name} is off by {off:.2g} for a sentence of {where}")


def decision_is_close(tagger: Tagger, sentence: Sentence, scores: Mapping[str, Tensor]) -> bool:
    """Whether noise of the size that is allowed changes what is decided."""

    def decided(noise: float, seed: int) -> frozenset[Entity]:
        draw = torch.Generator().manual_seed(seed)
        noisy = {
            name: value + noise * torch.randn(value.shape, generator=draw) if value.is_floating_point() else value
            for name, value in scores.items()
        }
        (found,) = tagger.head.decode(noisy, [len(sentence)])
        return select(found, tagger.head.inference.overlap, tagger.head.inference.threshold)

    return len({decided(noise, seed) for noise in (0.0, CLOSE) for seed in range(20)}) > 1


def states_given(head: Head) -> list[States]:
    """A list that fills with the states that the head's `loss` and `forward` are given."""
    seen: list[States] = []
    for name in ("loss", "forward"):
        plain = getattr(head, name)

        def recorded(states: States, *rest: Any, plain: Callable[..., Any] = plain) -> Any:
            seen.append(states)
            return plain(states, *rest)

        setattr(head, name, recorded)
    return seen


@contextmanager
def no_dropout() -> Iterator[None]:
    """Every kind of dropout passes its input through, whoever calls it."""
    kinds = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
    with ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(mock.patch(f"torch.nn.functional.{kind}", lambda given, *_, **__: given))
        yield
