"""BOPN: how far every span is off the boundaries of the nearest entity of each type. Nested.

Tang, He, Xu, Xu, Zhang, Lin: *A Boundary Offset Prediction Network for Named Entity Recognition*, sections 2 and 3.
Equation numbers are the paper's. The BiLSTM of section 3.1 belongs to the encoder: ``encoder.lstm = 256``.

Notation
    N, M, S, L          words, labels, config.max_offset, len(self.offsets)
    P = {p_m}           self.types          type tokens, which the encoder reads before the words
    H^X, H^Y            words, types        states of the words and of the type tokens
    gamma_j, lambda_j   self.condition      gain and shift of Eq. (1), from the last word
    e_up, e_low         self.region         rows 0 and 1
    v_ij                v                   a span; `_places` has what makes it v^_ij
    h'_m, v^'_ij        h_types, h_spans    Eq. (2)
    U, W, b             self.biaffine       Eq. (3): a constant 1 beside each vector lets one tensor hold all three
    C, Q, Q^            scores, q, `_logits`
    O                   targets["offsets"]  cells (i, j) of the words i to j, both inclusive

Deviations (reasons and measurements: docs/papers/bopn.md)
    - Norm in Eq. (1) is a layer norm, the offsets reach up to and including S, a tie goes to the first entity, and a
      distance embedding stands beside the region's: as published.
    - Eq. (3) has a second path, a linear layer over CLN(h_m, v^_ij), as published; ``scorer = "concatenated"`` is
      Eq. (3) as it stands. Both are contracted to one matrix product a type (tested against the formulas).
    - Eq. (4) and (5) have a 1 x 1 layer before and a residual around them, and each offset label has kernels of its
      own, as published. Other than published, cells outside the sentence are 0 before every convolution.
    - Only spans i <= j are scored. ``grid = "full"`` adds their mirror images, as the paper does, and the region
      embedding that tells the halves apart.
    - Labels are smoothed, and Eq. (7) is a mean over the cells of a batch, not of each sentence: as published.
    - Dropout before the layer of Eq. (2) falls on v_ij, not on what its place says.
    - The two rules of section 3.3 are votes, as published: cells of one kind that point at the same entity.
    - The paper has no score for an entity. Here it is the probability that the entity's own cell is a centre.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spanwright.config import BadSetting, check_choices, check_range
from spanwright.head import Head, Inference, States
from spanwright.nn.grid import Grid, convolve, grid_of
from spanwright.nn.offsets import annotate, offset_labels, votes
from spanwright.types import Entity, Labels, Sentence

DISTANCES = 19  # buckets of i - j: 0, nine of each sign, the last from 256 words on
EPSILON = 1e-12  # of the layer norms


@dataclass(frozen=True)
class BOPNInference(Inference):
    threshold: float = 0.0  # the offset labels decide, not the score
    decode: Literal["rules", "centre", "all"] = "rules"  # which of the entities that cells point at are answered
    votes: int = 0  # "rules": cells of one kind that must point at an entity without a centre; 0: as many as max_offset
    max_width: int = 0  # spans of more words are not looked at; 0: as in training

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "votes", "max_width", least=0)


class ConditionalNorm(nn.Module):
    """CLN: a layer norm whose gain and shift depend on a condition. It starts as a plain layer norm."""

    def __init__(self, size: int, condition_size: int) -> None:
        super().__init__()
        self.gain = nn.Linear(condition_size, size)
        self.shift = nn.Linear(condition_size, size)
        nn.init.zeros_(self.gain.weight)
        nn.init.ones_(self.gain.bias)
        nn.init.zeros_(self.shift.weight)
        nn.init.zeros_(self.shift.bias)


class BOPN(Head):
    """Predicts boundary offsets for all spans and types, and reads entities off them. Nested."""

    @dataclass(frozen=True)
    class Config:
        max_offset: int = 2  # S; 0: only centres, no offsets
        offsets: Literal["both", "start", "end"] = "both"  # the boundaries whose offsets are labelled
        type_input: Literal["encoder", "embedding"] = "encoder"  # type tokens read by the encoder, or plain embeddings
        grid: Literal["upper", "full"] = "upper"  # spans i <= j, or also their mirror images
        max_width: int = 0  # words of the widest span scored; 0: all spans
        distance_size: int = 20  # of the embedding of i - j; 0: none
        region_size: int = 20  # of the embedding of the half; there is but one with grid = "upper"; 0: none
        scorer: Literal["conditional", "concatenated"] = "conditional"  # as published, or Eq. (3) alone
        biaffine_size: int = 150
        biaffine_dropout: float = 0.33
        conv_layers: int = 2  # with dilations 1, 2, ...; 0: none
        conv_dropout: float = 0.2  # of whole offset labels
        label_smoothing: float = 0.01
        inference: BOPNInference = field(default_factory=BOPNInference)

        def __post_init__(self) -> None:
            check_choices(self)
            check_range(self, "max_offset", "max_width", "distance_size", "region_size", "conv_layers", least=0)
            check_range(self, "biaffine_size", least=1)
            check_range(self, "biaffine_dropout", "conv_dropout", "label_smoothing", least=0.0, below=1.0)
            if self.inference.votes > self.max_offset:
                raise BadSetting(
                    f"inference.votes = {self.inference.votes}: expected at most max_offset = {self.max_offset}, for "
                    "no more cells of one kind can point at an entity."
                )

    def __init__(self, config: Any, labels: Labels, width: int, input_width: int) -> None:
        super().__init__(config, labels, width, input_width)
        self.offsets = offset_labels(config.max_offset, config.offsets)
        n_labels, size = len(self.offsets), config.biaffine_size
        self.types = nn.Parameter(torch.randn(len(labels), input_width if self._reads_types else width))
        self.condition = ConditionalNorm(width, width)  # of Eq. (1)
        self.distance = nn.Embedding(DISTANCES, config.distance_size) if config.distance_size else None
        regions = config.region_size if config.grid == "full" else 0  # i <= j all over the triangle
        self.region = nn.Embedding(2, regions) if regions else None
        place_size = config.distance_size + regions
        self.biaffine_dropout = nn.Dropout(config.biaffine_dropout)
        self.left = feedforward(width, size)
        self.right = feedforward(width + place_size, size)
        self.biaffine = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_labels, size + 1, size + 1)))
        if config.scorer == "conditional":
            self.type_condition = ConditionalNorm(width, width + place_size)
            self.score = nn.Linear(width, n_labels)
        if config.conv_layers:
            self.stem = nn.Linear(n_labels, n_labels)
            self.conv_dropout = nn.Dropout2d(config.conv_dropout)
            kernels = (nn.Conv3d(n_labels, n_labels, 3, groups=n_labels) for _ in range(config.conv_layers))
            self.kernels = nn.ModuleList(kernels)
            self.combine = nn.Linear(config.conv_layers * n_labels, n_labels)

    @property
    def _reads_types(self) -> bool:
        return bool(self.config.type_input == "encoder")

    def prefix(self) -> Tensor | None:
        """[M, input_width] the type tokens."""
        return self.types if self._reads_types else None

    @property
    def reach(self) -> int | None:
        widths = [width for width in (self.config.max_width, self.config.inference.max_width) if width]
        return min(widths, default=None)

    def representable(self, sentence: Sentence) -> frozenset[Entity]:
        """All entities but those wider than the band."""
        reach = self.reach or len(sentence)
        return frozenset(e for e in sentence.entities if e.label in self.labels and len(e) <= reach)

    def targets(self, sentence: Sentence) -> dict[str, np.ndarray]:
        """offsets [K, 4]: (type, i, j, label) of the cells i <= j that are not out of range"""
        cells = []
        widest = self.config.max_width or len(sentence)
        for m, name in enumerate(self.labels):
            spans = [(e.start, e.end - 1) for e in sentence.entities if e.label == name and len(e) <= widest]
            cells += [(m, *cell) for cell in annotate(spans, len(sentence), self.offsets) if cell[1] - cell[0] < widest]
        return {"offsets": np.array(cells, dtype=np.int64).reshape(-1, 4)}

    def loss(self, states: States, targets: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        grid = grid_of(states.mask, self.config.grid == "upper", self.config.max_width)
        logits = self._logits(states, grid)  # [B, R, K, L, M]
        gold = self._annotated(grid, targets["offsets"])  # [B, R, K, M]
        cells = grid.inside.flatten().nonzero().squeeze(1)
        chosen, labels = logits.flatten(0, 2).index_select(0, cells), gold.flatten(0, 2).index_select(0, cells)
        smoothing = self.config.label_smoothing
        total = F.cross_entropy(chosen.float(), labels, reduction="sum", label_smoothing=smoothing)  # Eq. (6), (7)
        return {"bopn": (total, total.new_tensor(labels.numel()))}

    def _annotated(self, grid: Grid, offsets: Tensor) -> Tensor:
        """O [B, R, K, M]; where the grid has a lower half, it mirrors the upper one."""
        gold = grid.inside.new_zeros(*grid.inside.shape, len(self.labels), dtype=torch.int64)
        row, at = (offsets[:, :, 0] >= 0).nonzero(as_tuple=True)
        kind, first, last, label = offsets[row, at].unbind(1)
        gold[row, first, grid.columns(first, last), kind] = label
        if self.config.grid == "full":
            gold[row, last, grid.columns(last, first), kind] = label
        return gold

    def _logits(self, states: States, grid: Grid) -> Tensor:
        """Q^ [B, R, K, L, M]"""
        types = states.prefix if self._reads_types else self.types.expand(states.words.shape[0], -1, -1)  # H^Y
        scores = self._scores(types, states.words, grid)  # [B, C, L*M]
        if not self.config.conv_layers:
            return grid.lay_out(scores).unflatten(3, (-1, len(self.labels)))
        q = F.gelu(per_type(self.stem, self._dropped(scores), len(self.labels)))
        q, found = grid.lay_out(q), grid.lay_out(scores)
        inside, layers = grid.inside.unsqueeze(3), []
        for dilation, kernel in enumerate(self.kernels, 1):
            assert isinstance(kernel, nn.Conv3d) and kernel.bias is not None
            q = F.gelu(convolve(q, kernel.weight.squeeze(1), kernel.bias, dilation, grid)) * inside  # Eq. (4)
            layers.append(q)
        found = found + per_type(self.combine, torch.cat(layers, dim=3), len(self.labels)) * inside  # Eq. (5)
        return found.unflatten(3, (-1, len(self.labels)))

    def _dropped(self, scores: Tensor) -> Tensor:
        """Whole offset labels are dropped, as [B, L, cells, M]."""
        labels_first = scores.unflatten(2, (-1, len(self.labels))).transpose(1, 2)
        return self.conv_dropout(labels_first).transpose(1, 2).flatten(2)

    def _scores(self, types: Tensor, words: Tensor, grid: Grid) -> Tensor:
        """C [B, C, L*M], contracted so that nothing of M x N x N x D is ever built."""
        places, code = self._places(grid)
        gain, shift = self.condition.gain(words), self.condition.shift(words)  # gamma_j, lambda_j
        normal = F.layer_norm(words, words.shape[-1:], eps=EPSILON).to(gain.dtype)  # bf16 under autocast
        first, last = grid.first, grid.last
        v = gain.index_select(1, last) * normal.index_select(1, first) + shift.index_select(1, last)  # Eq. (1)
        width = words.shape[2]
        h_types = F.relu(self.left(self.biaffine_dropout(types)))  # Eq. (2)  [B, M, A]
        of_v, of_place = self.right.weight[:, :width], F.linear(places, self.right.weight[:, width:], self.right.bias)
        h_spans = F.relu(F.linear(self.biaffine_dropout(v), of_v) + of_place.index_select(0, code))  # Eq. (2)
        with_one = F.pad(h_types, (0, 1), value=1.0)
        factor = torch.einsum("bma,lac->blmc", with_one, self.biaffine).flatten(1, 2)  # h'_m U and W  [B, L*M, A+1]
        scores = torch.bmm(h_spans, factor[:, :, :-1].mT)  # Eq. (3)
        per_place = factor[:, :, -1:].expand(-1, -1, len(places))  # what does not depend on v_ij  [B, L*M, places]
        if self.config.scorer == "conditional":
            matrix, constant = self._conditioned(types)
            scores = scores + torch.bmm(v, matrix[:, :, :width].mT)
            per_place = per_place + constant + matrix[:, :, width:] @ places.T
        return scores + per_place.mT.index_select(1, code)

    def _conditioned(self, types: Tensor) -> tuple[Tensor, Tensor]:
        """A linear layer over CLN(h_m, v^), which is A (n_m * (G v^ + g) + B v^ + b) + a: matrix and constant."""
        n = F.layer_norm(types, types.shape[-1:], eps=EPSILON)
        gain, shift, linear = self.type_condition.gain, self.type_condition.shift, self.score
        scaled = torch.einsum("ld,bmd->blmd", linear.weight, n)  # A n_m
        matrix = scaled @ gain.weight + (linear.weight @ shift.weight)[:, None]  # [B, L, M, size of v^]
        constant = scaled @ gain.bias + (linear.weight @ shift.bias + linear.bias)[:, None]  # [B, L, M]
        return matrix.flatten(1, 2), constant.flatten(1, 2).unsqueeze(2)

    def _places(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """What v^_ij says beside v_ij: a table [19, E] for the buckets of i - j, and the bucket of each cell."""
        away = grid.first - grid.last
        size = torch.stack([away.abs() >= 1 << k for k in range(9)]).sum(0)  # 1, 2-3, 4-7, ..., 256 and more
        code = torch.where(away > 0, size - 1, torch.where(away < 0, size + 8, 18))
        tables = [self.types.new_zeros(DISTANCES, 0)]
        if self.distance is not None:
            tables.append(self.distance.weight)
        if self.region is not None:
            is_lower = torch.arange(DISTANCES, device=code.device) < 9
            tables.append(self.region(is_lower.long()))  # [v_ij, e_up] or [v_ij, e_low]
        return torch.cat(tables, dim=1), code

    def forward(self, states: States) -> dict[str, Tensor]:
        """scores [B, N, K, L, M]: of the span i..j in column j, or j - i in a band; 0 where there is no such span"""
        logits = self._logits(states, grid_of(states.mask, self.config.grid == "upper", self.reach or 0))
        if self.reach and self.config.grid == "upper":  # always all columns of the band
            logits = F.pad(logits, (0, 0, 0, 0, 0, self.reach - logits.shape[2]))
        return {"scores": logits}

    @torch.no_grad()
    def decode(self, scores: Mapping[str, Tensor], lengths: Sequence[int]) -> list[frozenset[Entity]]:
        logits = scores["scores"].detach().cpu().float()
        n_types, chosen = len(self.labels), self.config.inference
        row, kind, i, j, label = self.cells(logits)
        found = votes(row * n_types + kind, i, j, label, np.asarray(lengths)[row], self.offsets)
        answered = found.centre
        if chosen.decode != "centre" and self.config.max_offset:
            needed = 1 if chosen.decode == "all" else chosen.votes or self.config.max_offset
            answered = answered | (np.maximum(found.by_start, found.by_end) >= needed)
        if self.reach:
            answered = answered & (found.end - found.start < self.reach)
        group, start, end = (part[answered] for part in (found.group, found.start, found.end))
        row, kind = group // n_types, group % n_types
        score = self._centre(logits, row, kind, start, end)
        sentences: list[list[Entity]] = [[] for _ in lengths]
        for b, m, i, j, sure in zip(*(part.tolist() for part in (row, kind, start, end, score)), strict=True):
            sentences[b].append(Entity(i, j + 1, self.labels[m], sure))
        return [frozenset(entities) for entities in sentences]

    def cells(self, logits: Tensor) -> tuple[np.ndarray, ...]:
        """(row, type, i, j, offset label) of the cells i <= j whose most probable label is not "out of range"."""
        row, i, column, kind = (logits[:, :, :, 1:].amax(3) > logits[:, :, :, 0]).nonzero().T.numpy()
        j = column + i + lowest_of(logits, self.config.grid) if self.reach else column
        row, i, column, kind, j = (part[i <= j] for part in (row, i, column, kind, j))
        label = logits.numpy()[row, i, column, :, kind].argmax(1)  # Eq. (6): softmax keeps the order
        return row, kind, i, j, label

    def _centre(self, logits: Tensor, row: np.ndarray, kind: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """[G] the probability that the cell of an entity is a centre."""
        column = j - i - lowest_of(logits, self.config.grid) if self.reach else j
        labels = torch.from_numpy(logits.numpy()[row, i, column, :, kind]).softmax(1)  # Eq. (6)
        return labels[:, self.offsets.centre].numpy()


def lowest_of(logits: Tensor, grid: str) -> int:
    """j - i in the first column of a band."""
    return 0 if grid == "upper" else -(logits.shape[2] // 2)


def feedforward(n_in: int, n_out: int) -> nn.Linear:
    """The linear layer of a feed-forward net with a ReLU behind it."""
    linear = nn.Linear(n_in, n_out)
    nn.init.kaiming_uniform_(linear.weight, nonlinearity="relu")
    nn.init.zeros_(linear.bias)
    return linear


def per_type(linear: nn.Linear, cells: Tensor, n_types: int) -> Tensor:
    """A linear layer over the labels of each type by itself: [..., L*M] -> [..., L'*M], as one matrix product."""
    matrix = torch.kron(linear.weight, torch.eye(n_types, dtype=linear.weight.dtype, device=linear.weight.device))
    return F.linear(cells, matrix, linear.bias.repeat_interleave(n_types))
