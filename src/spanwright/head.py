"""The head contract. One paper is one head in one file; `check_head` tests the laws that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor, nn

from spanwright.config import BadSetting, check_choices, check_range
from spanwright.types import Entity, Labels, Sentence

Overlap = Literal["all", "nested", "flat", "optimal"]


@dataclass(frozen=True)
class States:
    """What the encoder says of a batch: B sentences, N words (padded), P prefix vectors, D wide."""

    words: Tensor  # [B, N, D]
    mask: Tensor  # [B, N] True where there is a word
    prefix: Tensor  # [B, P, D], P = 0 for a head without prefix
    whole: Tensor  # [B, D], the [CLS] vector


@dataclass(frozen=True)
class Inference:
    """What may change after training. A head with more to offer derives from this."""

    threshold: float = 0.5  # candidates with a lower score are dropped
    overlap: Overlap = "nested"  # which of the overlapping candidates stay; see `select`

    def __post_init__(self) -> None:
        check_choices(self)
        check_range(self, "threshold", least=0.0)
        if self.threshold > 1:
            raise BadSetting(f"threshold = {self.threshold}: expected at most 1, for scores are probabilities.")


class Head(nn.Module):
    """Scores the words of a batch and reads entities off the scores.

    `targets` and `decode` are plain functions of data; `loss` and `forward` are tensors to tensors.
    """

    Config: ClassVar[type]  # a frozen dataclass; its defaults are the paper's table; it has `inference: Inference`
    lasting: ClassVar[frozenset[str]] = frozenset()  # settings that say what the weights mean: never changed later

    def __init__(self, config: Any, labels: Labels, width: int, input_width: int) -> None:
        """`width`: of the word states. `input_width`: of the encoder's input embeddings, where `prefix` enters."""
        super().__init__()
        self.config = config
        self.labels = labels

    @classmethod
    def fit(cls, config: Any, sentences: Sequence[Sentence]) -> Any:
        """The config with what only the training data can tell filled in (SpanNER's widest span)."""
        return config

    @property
    def inference(self) -> Inference:
        return self.config.inference

    def set_inference(self, **options: Any) -> None:
        """Changes what may change after training; an unknown option is a TypeError."""
        self.config = replace(self.config, inference=replace(self.config.inference, **options))

    def prefix(self) -> Tensor | None:
        """[P, input_width] vectors that the encoder reads before the words, or None."""
        return None

    def targets(self, sentence: Sentence) -> dict[str, np.ndarray]:
        """Gold as numpy arrays; deterministic. Batching pads integers with -1, floats with 0, booleans with False."""
        raise NotImplementedError

    def loss(self, states: States, targets: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        """Named (sum, count), weight included; the trainer divides. The only place with randomness.

        ``targets["key"]`` [B] is an int64 made from (seed, epoch, sentence): whatever is drawn is drawn from it,
        never from the place in the batch. (Dropout alone uses torch's generator.)
        """
        raise NotImplementedError

    def forward(self, states: States) -> dict[str, Tensor]:
        """Scores for `decode`: exportable, and no sentence sees another one or the padding."""
        raise NotImplementedError

    def decode(self, scores: Mapping[str, Tensor], lengths: Sequence[int]) -> list[frozenset[Entity]]:
        """Every candidate above a low floor, score in [0, 1], the best score for each (span, label)."""
        raise NotImplementedError

    def members(self) -> Mapping[str, Head]:
        """The heads that training teaches, by name: a bundle's children, else this head alone."""
        return {"": self}

    @property
    def reach(self) -> int | None:
        """Words of the widest entity that the head can answer; None: it has no limit of its own."""
        return None

    def representable(self, sentence: Sentence) -> frozenset[Entity]:
        """The gold entities of `sentence` that this head can be taught and can answer."""
        return sentence.entities
