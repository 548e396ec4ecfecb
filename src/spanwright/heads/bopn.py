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
    - The convolution sees which types are neighbours: the order of the labels belongs to the model, and is saved.
    - The two rules of section 3.3 are votes, as published: cells of one kind that point at the same entity.
    - The paper has no score for an entity. Here it is the probability that the entity's own cell is a centre. Of
      crossing entities the better one stays; ``overlap = "all"`` keeps both, as published.
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
from spanwright.nn.grid import Grid, column_of, convolve, grid_of, last_of, lowest_of
from spanwright.nn.offsets import Sides, annotate, offset_labels, votes
from spanwright.types import Entity, Labels, Sentence

Decode = Literal["rules", "centre", "all"]
DISTANCES = 19  # buckets of i - j: 0, nine of each sign, the last from 256 words on
EPSILON = 1e-12  # of the layer norms
FEW_TYPES = 16  # up to so many, one large matrix with zeros is faster than a small one for each type


@dataclass(frozen=True)
class BOPNInference(Inference):
    threshold: float = 0.0  # the offset labels decide; as the score is the centre's, a threshold undoes votes
    decode: Decode = "rules"  # which of the entities that cells point at are answered
    votes: int = 0  # "rules": cells that must point at an entity by one boundary, up to 2S; 0: max_offset of them
    max_width: int = 0  # words of the widest entity that is looked for; 0: as in training

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

    lasting = frozenset({
        "max_offset", "offsets", "type_input", "grid", "distance_size", "region_size", "scorer", "conv_layers",
    })  # fmt: skip

    @dataclass(frozen=True)
    class Config:
        max_offset: int = 2  # S; 0: only centres, no offsets
        offsets: Sides = "both"  # the boundaries whose offsets are labelled
        type_input: Literal["encoder", "embedding"] = "encoder"  # type tokens read by the encoder, or plain embeddings
        grid: Literal["upper", "full"] = "upper"  # spans i <= j, or also their mirror images
        max_width: int = 0  # words of the widest span scored; 0: all spans
        distance_size: int = 20  # of the embedding of i - j; 0: none
        region_size: int = 20  # of the embedding of the half; there is but one with grid = "upper"; 0: none
        scorer: Literal["conditional", "concatenated"] = "conditional"  # as published, or Eq. (3) alone
        biaffine_size: int = 150
        biaffine_dropout: float = 0.33
        conv_layers: Literal[0, 1, 2, 3] = 2  # with dilations 1, 2, 3
        conv_dropout: float = 0.2  # of whole offset labels
        label_smoothing: float = 0.01
        inference: BOPNInference = field(default_factory=BOPNInference)

        def __post_init__(self) -> None:
            check_choices(self)
            check_range(self, "max_offset", "max_width", "distance_size", "region_size", least=0)
            check_range(self, "biaffine_size", least=1)
            check_range(self, "biaffine_dropout", "conv_dropout", "label_smoothing", least=0.0, below=1.0)
            if self.inference.votes > 2 * self.max_offset:
                raise BadSetting(
                    f"inference.votes = {self.inference.votes}: expected at most {2 * self.max_offset}, twice "
                    "max_offset, for no more cells can point at an entity by one boundary."
                )
            if 0 < self.max_width < self.inference.max_width:
                raise BadSetting(
                    f"inference.max_width = {self.inference.max_width}: expected at most max_width = "
                    f"{self.max_width}, for wider spans are not taught."
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
            # They hold the weights; `convolve` computes.
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

    @property
    def band(self) -> int:
        """Words of the widest span that `forward` scores; 0: all. Those that are answered get the scores that they
        would get without a band after training: what votes for them and what the convolutions look at is there."""
        taught, asked = self.config.max_width, self.config.inference.max_width
        if not asked:
            return int(taught)
        beyond = self.config.max_offset + sum(2 * dilation for dilation in range(1, self.config.conv_layers + 1))
        return int(min(asked + beyond, taught or asked + beyond))

    @property
    def upper(self) -> bool:
        return bool(self.config.grid == "upper")

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
        grid = grid_of(states.mask, self.upper, self.config.max_width)
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
        m, i, j, label = offsets[row, at].unbind(1)
        gold[row, i, column_of(i, j, grid.lowest), m] = label
        if not self.upper:
            gold[row, j, column_of(j, i, grid.lowest), m] = label
        return gold

    def _logits(self, states: States, grid: Grid) -> Tensor:
        """Q^ [B, R, K, L, M]"""
        types = states.prefix if self._reads_types else self.types.expand(states.words.shape[0], -1, -1)  # H^Y
        scores = self._scores(types, states.words, grid)  # [B, C, L*M]
        q_hat = grid.lay_out(scores)  # what the convolutions find is added to it
        if self.config.conv_layers:
            q = grid.lay_out(
                F.gelu(per_type(self.stem.weight, self.stem.bias, self._dropped(scores), len(self.labels)))
            )
            inside = grid.inside.unsqueeze(3)
            parts = self.combine.weight.chunk(self.config.conv_layers, dim=1)  # Eq. (5) layer by layer
            for dilation, (kernel, part) in enumerate(zip(self.kernels, parts, strict=True), 1):
                assert isinstance(kernel, nn.Conv3d) and kernel.bias is not None
                q = F.gelu(convolve(q, kernel.weight.squeeze(1), kernel.bias, dilation, grid)) * inside  # Eq. (4)
                bias = self.combine.bias if dilation == 1 else None
                q_hat = q_hat + per_type(part, bias, q, len(self.labels)) * inside  # Eq. (5)
        return q_hat.unflatten(3, (-1, len(self.labels)))

    def _dropped(self, scores: Tensor) -> Tensor:
        """Whole offset labels are dropped, as [B, L, cells, M]."""
        labels_first = scores.unflatten(2, (-1, len(self.labels))).transpose(1, 2)
        return self.conv_dropout(labels_first).transpose(1, 2).flatten(2)

    def _scores(self, types: Tensor, words: Tensor, grid: Grid) -> Tensor:
        """C [B, C, L*M], contracted so that nothing of M x N x N x D is ever built."""
        places, bucket = self._places(grid)
        gain, shift = self.condition.gain(words), self.condition.shift(words)  # gamma_j, lambda_j
        normal = F.layer_norm(words, words.shape[-1:], eps=EPSILON).to(gain.dtype)  # bf16 under autocast
        i, j = grid.first, grid.last
        v = shift.index_select(1, j).addcmul(gain.index_select(1, j), normal.index_select(1, i))  # Eq. (1)  [B, C, D]
        width = words.shape[2]
        h_types = F.relu(self.left(self.biaffine_dropout(types)))  # Eq. (2)  [B, M, A]
        of_v, of_place = self.right.weight[:, :width], F.linear(places, self.right.weight[:, width:], self.right.bias)
        h_spans = F.relu(F.linear(self.biaffine_dropout(v), of_v) + of_place.index_select(0, bucket))  # Eq. (2)
        with_one = F.pad(h_types, (0, 1), value=1.0)
        of_types = torch.einsum("bma,lac->blmc", with_one, self.biaffine).flatten(1, 2)  # h'_m U and W  [B, L*M, A+1]
        scores = torch.bmm(h_spans, of_types[:, :, :-1].mT)  # Eq. (3)
        per_place = of_types[:, :, -1:].expand(-1, -1, len(places))  # what does not depend on v_ij  [B, L*M, places]
        if self.config.scorer == "conditional":
            matrix, constant = self._conditioned(types)
            scores = torch.baddbmm(scores, v, matrix[:, :, :width].mT)
            per_place = per_place + constant + matrix[:, :, width:] @ places.T
        return scores + per_place.mT.index_select(1, bucket)

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
        bucket = torch.where(away > 0, size - 1, torch.where(away < 0, size + 8, 18))  # 0 to 8: the lower half
        tables = [self.types.new_zeros(DISTANCES, 0)]
        if self.distance is not None:
            tables.append(self.distance.weight)
        if self.region is not None:
            is_lower = torch.arange(DISTANCES, device=bucket.device) < 9
            tables.append(self.region(is_lower.long()))  # [v_ij, e_up] or [v_ij, e_low]
        return torch.cat(tables, dim=1), bucket

    def forward(self, states: States) -> dict[str, Tensor]:
        """scores [B, N, K, L, M]: of i..j in column j, in a band `column_of`; 0 where there is no such span"""
        logits = self._logits(states, grid_of(states.mask, self.upper, self.band))
        if self.band and self.upper:  # always all columns of the band
            logits = F.pad(logits, (0, 0, 0, 0, 0, self.band - logits.shape[2]))
        return {"scores": logits}

    @torch.no_grad()
    def decode(self, scores: Mapping[str, Tensor], lengths: Sequence[int]) -> list[frozenset[Entity]]:
        logits = scores["scores"].detach()
        n_types, chosen = len(self.labels), self.config.inference
        row, m, i, j, label = self.cells(logits)
        found = votes(row * n_types + m, i, j, label, np.asarray(lengths)[row], self.offsets)
        answered = found.centre
        if chosen.decode != "centre" and self.config.max_offset:
            needed = 1 if chosen.decode == "all" else chosen.votes or self.config.max_offset
            answered = answered | (np.maximum(found.by_start, found.by_end) >= needed)
        if self.reach:
            answered = answered & (found.end - found.start < self.reach)
        group, start, end = (part[answered] for part in (found.group, found.start, found.end))
        score = self._centre(logits, group // n_types, group % n_types, start, end)
        sentences: list[list[Entity]] = [[] for _ in lengths]
        for g, first, last, sure in zip(*(part.tolist() for part in (group, start, end, score)), strict=True):
            sentences[g // n_types].append(Entity(first, last + 1, self.labels[g % n_types], sure))
        return [frozenset(entities) for entities in sentences]

    def cells(self, logits: Tensor) -> tuple[np.ndarray, ...]:
        """(row, type, i, j, offset label) of the cells i <= j whose most probable label is not "out of range"."""
        row, i, column, m = (logits[:, :, :, 1:].amax(3) > logits[:, :, :, 0]).nonzero(as_tuple=True)
        j = last_of(i, column, lowest_of(self.upper, self.band))
        label = logits[row, i, column, :, m].argmax(1)  # Eq. (6): softmax keeps the order
        return tuple(part[i <= j].cpu().numpy() for part in (row, m, i, j, label))

    def _centre(self, logits: Tensor, row: np.ndarray, m: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """[G] the probability that the cell of an entity is a centre."""
        b, kind, i, j = (torch.from_numpy(part).to(logits.device) for part in (row, m, start, end))
        labels = logits[b, i, column_of(i, j, lowest_of(self.upper, self.band)), :, kind]
        return labels.float().softmax(1)[:, self.offsets.centre].cpu().numpy()  # Eq. (6)


def feedforward(n_in: int, n_out: int) -> nn.Linear:
    """The linear layer of a feed-forward net with a ReLU behind it."""
    linear = nn.Linear(n_in, n_out)
    nn.init.kaiming_uniform_(linear.weight, nonlinearity="relu")
    nn.init.zeros_(linear.bias)
    return linear


def per_type(weight: Tensor, bias: Tensor | None, cells: Tensor, n_types: int) -> Tensor:
    """A linear layer over the labels of each type by itself: [..., L*M] -> [..., L'*M]."""
    biases = None if bias is None else bias.repeat_interleave(n_types)
    if n_types <= FEW_TYPES:
        return F.linear(cells, torch.kron(weight, torch.eye(n_types, dtype=weight.dtype, device=weight.device)), biases)
    found = (weight @ cells.unflatten(-1, (-1, n_types))).flatten(-2)
    return found if biases is None else found + biases
