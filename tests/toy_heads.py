"""A small honest head, to be broken by `test_check_fails` and bundled by `test_bundle_laws`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spanwright.head import Head, Inference, States
from spanwright.types import Entity, Labels, Sentence


@dataclass(frozen=True)
class ToyInference(Inference):
    floor: float = 0.01  # candidates with a lower score are not listed


@dataclass(frozen=True)
class ToyConfig:
    hints: int = 0  # prefix vectors; their mean states are added to every word
    inference: ToyInference = field(default_factory=ToyInference)


class Toy(Head):
    """Every span of at most three words is a sum of its first and last word; each label has a sigmoid of its own."""

    Config = ToyConfig
    longest = 3

    def __init__(self, config: Any, labels: Labels, width: int, input_width: int) -> None:
        super().__init__(config, labels, width, input_width)
        self.first = nn.Linear(width, 32)
        self.last = nn.Linear(width, 32)
        self.score = nn.Linear(32, len(labels))
        if config.hints:
            self.hints = nn.Parameter(torch.randn(config.hints, input_width))

    def prefix(self) -> Tensor | None:
        return self.hints if self.config.hints else None

    def targets(self, sentence: Sentence) -> dict[str, np.ndarray]:
        gold = np.zeros((len(sentence), self.longest, len(self.labels)), dtype=np.float32)
        for entity in self.representable(sentence):
            gold[entity.start, len(entity) - 1, self.labels.index(entity.label)] = 1
        return {"gold": gold}

    def representable(self, sentence: Sentence) -> frozenset[Entity]:
        return frozenset(entity for entity in sentence.entities if len(entity) <= self.longest)

    def logits(self, states: States) -> tuple[Tensor, Tensor]:
        """[B, N, W, L], and which of the spans lie in their sentence, [B, N, W, 1]."""
        words = states.words
        if self.config.hints:
            words = words + states.prefix.mean(1, keepdim=True)
        last, real = self.last(words), states.mask
        pairs, spans = [], []
        for width in range(self.longest):
            pairs.append(self.first(words) + nn.functional.pad(last, (0, 0, 0, width))[:, width:])
            spans.append(real & nn.functional.pad(real, (0, width))[:, width:])
        return self.score(torch.stack(pairs, 2).tanh()), torch.stack(spans, 2)[..., None]

    def loss(self, states: States, targets: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        logits, spans = self.logits(states)
        losses = nn.functional.binary_cross_entropy_with_logits(logits.float(), targets["gold"], reduction="none")
        return {"spans": ((losses * spans).sum(), spans.sum())}

    def forward(self, states: States) -> dict[str, Tensor]:
        logits, spans = self.logits(states)
        return {"spans": logits.sigmoid() * spans}

    def decode(self, scores: Mapping[str, Tensor], lengths: Sequence[int]) -> list[frozenset[Entity]]:
        found: list[list[Entity]] = [[] for _ in lengths]
        likely = (scores["spans"] > self.config.inference.floor).nonzero()
        values = scores["spans"][likely.unbind(1)].clamp(max=1.0)
        for (b, start, width, label), value in zip(likely.tolist(), values.tolist(), strict=True):
            found[b].append(Entity(start, start + width + 1, self.labels[label], value))
        return list(map(frozenset, found))


def toy_oracle(head: Head, sentence: Sentence) -> dict[str, Tensor]:
    return {"spans": torch.from_numpy(head.targets(sentence)["gold"])[None]}
