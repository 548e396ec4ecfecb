"""SeqNER: entities as BIO tags of words.

Ji, Yang, Li, Yu, Ma, Liu: *Win-Win Cooperation: Bundling Sequence and Span Models for Named Entity Recognition*,
section 3.1.2. Equation numbers are the paper's.

Notation
    e_i          states.words           word vectors from the encoder
    m, |L|       len(labels), 2m + 1    tags: O = 0, B-x = 1 + 2i, I-x = 2 + 2i for the i-th label x
    W, b         self.tag               Linear(D, 2m + 1)
    ê_i          emissions              scores of the tags
    A            self.transitions       from row to column; CRF only
    A[y_0, .]    self.start             the transitions out of the start state y_0; CRF only

Deviations
    - Eq. (9) adds psi where Eq. (8) multiplies it: psi is read as exp(W e_i + b + A). Only then is Eq. (8) a
      distribution. There is no end state, as in the paper.
    - Dropout before the tag layer: the paper gives its rate (0.1) but not its place.
    - Tags that are no legal BIO sequence occur and the paper is silent about them: `repair`. The default reads them as
      the CoNLL scorer does.
    - Nested gold is reduced to the outermost entities, of which the tags can hold all; what is lost counts in recall.
    - A score: the exact probability, under the model, that the label combiner yields this very entity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spanwright.config import check_choices, check_range
from spanwright.head import Head, Inference, Overlap, States
from spanwright.nn import crf
from spanwright.select import outermost
from spanwright.types import Entity, Labels, Sentence

Repair = Literal["conlleval", "strict", "discard"]


@dataclass(frozen=True)
class FlatInference(Inference):
    """The tags have decided already: all that the label combiner yields stays."""

    threshold: float = 0.0
    overlap: Overlap = "flat"


class SeqNER(Head):
    """Tags words; consecutive tags of one label make an entity. Flat."""

    @dataclass(frozen=True)
    class Config:
        tagging: Literal["softmax", "crf"] = "softmax"  # each word on its own, or the sequence as a whole
        # A stray I (after O or another label) begins an entity; counts as O; counts as O and spoils the entity before.
        repair: Repair = "conlleval"
        dropout: float = 0.1
        inference: FlatInference = field(default_factory=FlatInference)

        def __post_init__(self) -> None:
            check_choices(self)
            check_range(self, "dropout", least=0.0, below=1.0)

    def __init__(self, config: Any, labels: Labels, width: int, input_width: int) -> None:
        super().__init__(config, labels, width, input_width)
        n_tags = 2 * len(labels) + 1
        self.dropout = nn.Dropout(config.dropout)
        self.tag = nn.Linear(width, n_tags)
        if config.tagging == "crf":
            # At zero the CRF is the softmax tagger, and no transition is favoured before the data speak.
            self.transitions = nn.Parameter(torch.zeros(n_tags, n_tags))
            self.start = nn.Parameter(torch.zeros(n_tags))

    def targets(self, sentence: Sentence) -> dict[str, np.ndarray]:
        """tags [N]"""
        tags = np.zeros(len(sentence), dtype=np.int64)
        for entity in self.representable(sentence):
            first = 1 + 2 * self.labels.index(entity.label)
            tags[entity.start] = first
            tags[entity.start + 1 : entity.end] = first + 1
        return {"tags": tags}

    def representable(self, sentence: Sentence) -> frozenset[Entity]:
        """The outermost entities: the longer first, then the one that starts earlier, then alphabetical order."""
        return outermost(entity for entity in sentence.entities if entity.label in self.labels)

    def loss(self, states: States, targets: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        # Eq. (5). In full precision, for softmax and CRF lose their sums in half.
        emissions = self.tag(self.dropout(states.words)).float()  # [B, N, 2m+1]
        tags = targets["tags"]
        if self.config.tagging == "softmax":
            total = F.cross_entropy(emissions.flatten(0, 1), tags.flatten(), ignore_index=-1, reduction="sum")
            return {"seqner": (total, states.mask.sum())}  # Eq. (6), (7)
        losses = crf.negative_log_likelihood(emissions, tags, states.mask, self.transitions, self.start)
        return {"seqner": (losses.sum(), losses.new_tensor(len(losses)))}  # Eq. (8), (9), (10)

    def forward(self, states: States) -> dict[str, Tensor]:
        """emissions [B, N, 2m+1]; the CRF adds transitions [1, 2m+1, 2m+1] and start [1, 2m+1]"""
        scores = {"emissions": self.tag(states.words)}  # Eq. (5)
        if self.config.tagging == "crf":
            scores |= {"transitions": self.transitions.unsqueeze(0), "start": self.start.unsqueeze(0)}
        return scores

    @torch.no_grad()
    def decode(self, scores: Mapping[str, Tensor], lengths: Sequence[int]) -> list[frozenset[Entity]]:
        emissions = scores["emissions"].detach().cpu().double()
        mask = torch.arange(emissions.shape[1]) < torch.as_tensor(lengths)[:, None]
        if self.config.tagging == "crf":
            transitions, start = (scores[name][0].detach().cpu().double() for name in ("transitions", "start"))
            tags = crf.viterbi(emissions, mask, transitions, start).numpy()  # Eq. (11)
            spans = combine(tags, self.config.repair)
            found = self._crf_scores(emissions, mask, transitions, start, spans)
        else:
            tags = (emissions.argmax(2) * mask).numpy()
            spans = combine(tags, self.config.repair)
            probabilities = emissions.softmax(2).numpy()  # Eq. (6)
            found = softmax_scores(probabilities, spans, np.asarray(lengths), self.config.repair)
        return self._entities(spans, found, len(lengths))

    def _entities(self, spans: np.ndarray, scores: np.ndarray, n_sentences: int) -> list[frozenset[Entity]]:
        sentences: list[list[Entity]] = [[] for _ in range(n_sentences)]
        for (row, start, end, label), score in zip(spans.tolist(), scores.tolist(), strict=True):
            sentences[row].append(Entity(start, end, self.labels[label], min(score, 1.0)))
        return [frozenset(entities) for entities in sentences]

    def _crf_scores(
        self, emissions: Tensor, mask: Tensor, transitions: Tensor, start: Tensor, spans: np.ndarray
    ) -> np.ndarray:
        """[K] the probability that the label combiner yields each span, over all tag sequences."""
        row, begin, end, label = torch.from_numpy(spans).unbind(1)
        first, inner = 1 + 2 * label, 2 + 2 * label
        tags = torch.arange(emissions.shape[2])
        if self.config.repair == "discard":
            may_follow = ((tags == 0) | (tags % 2 == 1)).expand(len(spans), -1)
        else:
            may_follow = tags != inner[:, None]
        events = torch.stack([row, begin, end, first, inner], dim=1)
        stray = self.config.repair == "conlleval"
        found = crf.span_log_probabilities(emissions, mask, transitions, start, events, may_follow, stray)
        return np.asarray(found.exp().numpy())


def combine(tags: np.ndarray, repair: Repair) -> np.ndarray:
    """The label combiner: tags [B, N], 0 in the padding -> [K, 4] (row, start word, end word, label index)."""
    n_words = tags.shape[1]
    flat = np.pad(tags, ((0, 0), (0, 1))).ravel()  # an O after each row, so that no entity runs into the next
    before = np.roll(flat, 1)  # the first word's is the O that ends the last row
    label, is_first = (flat - 1) // 2, flat % 2 == 1
    opens = (flat > 0) & (is_first | (before == 0) | ((before - 1) // 2 != label))
    start = np.flatnonzero(opens)
    edges = np.flatnonzero(opens | (flat == 0))
    end = edges[np.searchsorted(edges, start, side="right")]
    keep = np.ones(len(start), dtype=bool) if repair == "conlleval" else is_first[start]
    if repair == "discard":
        keep &= (flat[end] == 0) | is_first[end]
    start, end = start[keep], end[keep]
    row = start // (n_words + 1)
    offset = row * (n_words + 1)
    return np.stack([row, start - offset, end - offset, label[start]], axis=1).astype(np.int64)


def softmax_scores(probabilities: np.ndarray, spans: np.ndarray, lengths: np.ndarray, repair: Repair) -> np.ndarray:
    """[K] the probability that the label combiner yields each span, the tags [B, N, 2m+1] being independent."""
    row, start, end, label = spans.T
    first, inner = 1 + 2 * label, 2 + 2 * label
    opens = probabilities[row, start, first]
    if repair == "conlleval":
        previous = probabilities[row, np.maximum(start - 1, 0)]
        taken = np.take_along_axis(previous, np.stack([first, inner], axis=1), axis=1).sum(1)
        opens = opens + probabilities[row, start, inner] * np.where(start > 0, 1 - taken, 1.0)
    inside = np.pad(np.log(np.maximum(probabilities[:, :, 2::2], 1e-300)), ((0, 0), (1, 0), (0, 0))).cumsum(1)
    goes_on = np.exp(inside[row, end, label] - inside[row, start + 1, label])
    follows = probabilities[row, np.minimum(end, probabilities.shape[1] - 1)]
    stray = follows[:, 2::2].sum(1) if repair == "discard" else np.take_along_axis(follows, inner[:, None], 1)[:, 0]
    return np.asarray(opens * goes_on * np.where(end < lengths[row], 1 - stray, 1.0))
