"""SpanNER: every span up to a width is classified, entities nested or flat.

Ji, Yang, Li, Yu, Ma, Liu: *Win-Win Cooperation: Bundling Sequence and Span Models for Named Entity Recognition*,
sections 3.1.3 and 3.2. Equation numbers are the paper's.

Notation
    e_i, e_0     states.words, states.whole    word vectors and the [CLS] vector
    epsilon      config.max_width              words in the widest span
    W_{j+1}      self.span_width               embedding of a span's width j + 1
    W, b         self.classify                 Linear(size of E_S, m + 1); class 0 is None
    E_S          the parts of `PARTS`          span representation; concatenated in `loss`, never in `forward`
    D            the sample of `_spans`        negative spans of a sentence

Deviations
    - Eq. (16) in `forward` is factored: the layer over concatenated parts is a sum of layers over the parts, so words
      are projected once and added span by span. The numbers are those of the formula (tested).
    - The size of W_{j+1} is not given: 25, as in SpERT, whose sampling the paper follows. Dropout 0.1 on E_S: the
      paper gives the rate but not the place.
    - An entity wider than epsilon is no positive and no negative; one span with two labels is taught the first in the
      order of the labels. `representable` leaves the rest out, recall does not.
    - An answer must have a probability of 0.5, where the paper takes the most probable type, and nested entities are
      kept (its data are flat). Its own rules: ``inference = { types = "best", threshold = 0, overlap = "flat" }``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spanwright.config import check_choices, check_range
from spanwright.head import Head, Inference, States
from spanwright.nn.draw import sample
from spanwright.nn.spans import growing_max, pool_max, take
from spanwright.types import Entity, Labels, Sentence, SpanwrightError

PARTS = {
    "boundary": ("start", "end", "width"),  # Eq. (13)
    "pooling": ("max", "whole", "width"),  # Eq. (14)
    "hybrid": ("start", "end", "max", "whole", "width"),  # Eq. (15)
}
COVERAGE = 99  # per cent of the training entities; `max_width` covers more
FLOOR = 0.05  # candidates with a lower probability are not worth listing
IMPOSSIBLE = -1e4  # the logit of a type where there is no span; finite, and fits half precision


@dataclass(frozen=True)
class SpanInference(Inference):
    types: Literal["any", "best"] = "any"  # of a span: all types above the threshold; the one that beats None and all


class SpanNER(Head):
    """Classifies all spans of up to `max_width` words. Nested."""

    @dataclass(frozen=True)
    class Config:
        representation: Literal["hybrid", "boundary", "pooling"] = "hybrid"
        max_width: int = 0  # in words; 0: `fit` takes the smallest that covers more than 99 % of the training entities
        width_size: int = 25
        negatives: int = 100  # a sentence, at most
        dropout: float = 0.1
        inference: SpanInference = field(default_factory=SpanInference)

        def __post_init__(self) -> None:
            check_choices(self)
            check_range(self, "max_width", least=0)
            check_range(self, "width_size", "negatives", least=1)
            check_range(self, "dropout", least=0.0, below=1.0)

    @classmethod
    def fit(cls, config: Any, sentences: Sequence[Sentence]) -> Any:
        """With `max_width` 0: the smallest width that covers more than 99 % of the entities (1 if there are none)."""
        if config.max_width:
            return config
        return replace(config, max_width=covering_width([len(e) for sentence in sentences for e in sentence.entities]))

    def __init__(self, config: Any, labels: Labels, width: int, input_width: int) -> None:
        super().__init__(config, labels, width, input_width)
        if not config.max_width:
            raise SpanwrightError(
                "max_width is 0, which leaves it to the training data: expected a max_width of 1 or more, or a config "
                "that `SpanNER.fit(config, sentences)` has filled in."
            )
        sizes = {"start": width, "end": width, "max": width, "whole": width, "width": config.width_size}
        self.sizes = {part: sizes[part] for part in PARTS[config.representation]}
        self.span_width = nn.Embedding(config.max_width, config.width_size)
        self.dropout = nn.Dropout(config.dropout)
        self.classify = nn.Linear(sum(self.sizes.values()), len(labels) + 1)
        no_span = torch.full((len(labels) + 1,), IMPOSSIBLE)
        no_span[0] = 0.0
        self.register_buffer("no_span", no_span, persistent=False)
        self.no_span: Tensor

    @property
    def reach(self) -> int:
        return int(self.config.max_width)

    def representable(self, sentence: Sentence) -> frozenset[Entity]:
        """Entities of up to `max_width` words; of several labels on a span the first."""
        first: dict[tuple[int, int], Entity] = {}
        for entity in sorted((e for e in sentence.entities if e.label in self.labels), key=self._place):
            if len(entity) <= self.config.max_width:
                first.setdefault((entity.start, entity.end), entity)
        return frozenset(first.values())

    def _place(self, entity: Entity) -> tuple[int, int, int]:
        return entity.start, entity.end, self.labels.index(entity.label)

    def targets(self, sentence: Sentence) -> dict[str, np.ndarray]:
        """spans [G, 3] as (start word, end word, 1 + label index)"""
        gold = [self._place(entity) for entity in self.representable(sentence)]
        spans = np.array(sorted(gold), dtype=np.int64).reshape(-1, 3)
        spans[:, 2] += 1
        return {"spans": spans}

    def loss(self, states: States, targets: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        rows, starts, ends, types = self._spans(states.mask, targets["spans"], targets["key"])
        parts: dict[str, Callable[[], Tensor]] = {
            "start": lambda: take(states.words, rows, starts),
            "end": lambda: take(states.words, rows, ends - 1),
            "max": lambda: pool_max(states.words, rows, starts, ends, self.config.max_width),
            "whole": lambda: states.whole.index_select(0, rows),
            "width": lambda: self.span_width(ends - starts - 1),
        }
        span = torch.cat([parts[part]() for part in self.sizes], dim=1)  # Eq. (13)-(15)  [S, size of E_S]
        logits = self.classify(self.dropout(span))  # Eq. (16)
        total = F.cross_entropy(logits.float(), types, reduction="sum")  # Eq. (17), (18)
        return {"spanner": (total, total.new_tensor(len(types)))}

    def _spans(self, mask: Tensor, gold: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gold [B, G, 3] and sampled negatives of a batch, as (rows, start words, end words, types), each [S]."""
        max_width = self.config.max_width
        n_words = mask.shape[1]
        cell = torch.arange(n_words * max_width, device=mask.device)  # start word x width: padding only adds cells
        fits = cell // max_width + cell % max_width < mask.sum(1, keepdim=True)  # Eq. (12)  [B, N*W]
        gold_row, gold_at = (gold[:, :, 0] >= 0).nonzero(as_tuple=True)
        starts, ends, types = gold[gold_row, gold_at].unbind(1)
        negative = fits.clone()
        negative[gold_row, starts * max_width + ends - starts - 1] = False
        drawn, taken = sample(keys, negative, self.config.negatives)  # Eq. (20)
        row, at = taken.nonzero(as_tuple=True)
        start, size = drawn[row, at] // max_width, drawn[row, at] % max_width + 1
        rows = torch.cat([gold_row, row])
        starts, ends = torch.cat([starts, start]), torch.cat([ends, start + size])
        return rows, starts, ends, torch.cat([types, torch.zeros_like(row)])

    def forward(self, states: States) -> dict[str, Tensor]:
        """scores [B, N, W, m+1]: logits of the spans ``i:i+w+1``. Class 0 is None, and sure where there is no span"""
        weight = dict(zip(self.sizes, torch.split(self.classify.weight, list(self.sizes.values()), dim=1), strict=True))
        max_width = self.config.max_width
        words, n_words = states.words, states.words.shape[1]
        per_sentence: Tensor = self.classify.bias
        if "whole" in weight:
            per_sentence = per_sentence + F.linear(states.whole, weight["whole"]).unsqueeze(1)  # [B, 1, m+1]
        if "start" in weight:
            per_sentence = per_sentence + F.linear(words, weight["start"])  # [B, N, m+1]
            ends = F.pad(F.linear(words, weight["end"]), (0, 0, 0, max_width - 1))  # [B, N+W-1, m+1]
        per_width = F.linear(self.span_width.weight, weight["width"])  # [W, m+1]
        pooled = growing_max(words, max_width) if "max" in weight else iter(())
        columns = []
        for w in range(max_width):
            logits = per_sentence + per_width[w]  # Eq. (16), part by part
            if "start" in weight:
                logits = logits + ends[:, w : w + n_words]
            if "max" in weight:
                logits = logits + F.linear(next(pooled), weight["max"])
            columns.append(logits)  # [B, N, m+1]
        start, width = torch.arange(n_words, device=words.device), torch.arange(max_width, device=words.device)
        fits = (start[:, None] + width) < states.mask.sum(1)[:, None, None]  # [B, N, W]
        return {"scores": torch.where(fits.unsqueeze(3), torch.stack(columns, dim=2), self.no_span)}

    @torch.no_grad()
    def decode(self, scores: Mapping[str, Tensor], lengths: Sequence[int]) -> list[frozenset[Entity]]:
        probabilities = scores["scores"].detach().cpu().float().softmax(3).numpy()  # Eq. (17)  [B, N, W, m+1]
        if self.config.inference.types == "best":
            best = probabilities.argmax(3)[..., None]  # "the highest response"
            candidates = best == np.arange(1, probabilities.shape[3])
        else:
            candidates = probabilities[:, :, :, 1:] > FLOOR
        rows, starts, widths, types = np.nonzero(candidates)
        found = probabilities[:, :, :, 1:][candidates].tolist()
        sentences: list[list[Entity]] = [[] for _ in lengths]
        places = zip(rows.tolist(), starts.tolist(), (starts + widths + 1).tolist(), types.tolist(), strict=True)
        for (row, start, end, label), score in zip(places, found, strict=True):
            sentences[row].append(Entity(start, end, self.labels[label], score))
        return [frozenset(entities) for entities in sentences]


def covering_width(widths: Sequence[int]) -> int:
    """The smallest width that covers more than 99 % of `widths`; 1 if there are none."""
    counts = np.bincount(np.asarray(widths, dtype=np.int64), minlength=2)
    enough = 100 * np.cumsum(counts) > COVERAGE * len(widths)
    return max(1, int(np.argmax(enough)))
