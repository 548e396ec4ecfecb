"""BOPN by its formulas as they stand, for `speed.py` to measure against: nothing contracted, nothing packed.

All N x N cells, CLN for every cell and every type (an array of M x N x N x D), convolutions of three dimensions. The
weights are those of ``BOPN`` with ``grid = "full"``, and so are the scores.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spanwright.head import States
from spanwright.heads.bopn import BOPN, EPSILON, ConditionalNorm
from spanwright.nn.grid import Grid


class NaiveBOPN(BOPN):
    def _logits(self, states: States, grid: Grid) -> Tensor:
        n_words, n_labels = states.words.shape[1], len(self.offsets)
        places, code = self._places(grid)
        v = cln(self.condition, states.words[:, :, None], states.words[:, None])  # Eq. (1)  [B, N, N, D]
        place = places[code].view(1, n_words, n_words, -1).expand(len(v), -1, -1, -1)
        wide = torch.cat([v, place], dim=3)
        h_types = F.relu(self.left(self.biaffine_dropout(states.prefix)))  # Eq. (2)
        h_spans = F.relu(self.right(self.biaffine_dropout(wide)))
        x, y = (F.pad(part, (0, 1), value=1.0) for part in (h_types, h_spans))
        scores = torch.einsum("bma,lac,bijc->blmij", x, self.biaffine, y)  # Eq. (3)
        both = cln(self.type_condition, states.prefix[:, :, None, None], wide[:, None])  # [B, M, N, N, D]
        scores = scores + self.score(both).permute(0, 4, 1, 2, 3)
        inside = grid.inside[:, None, None]
        scores = scores * inside
        q = F.gelu(pointwise(self.stem, self.conv_dropout(scores.flatten(3)).view_as(scores))) * inside
        layers = []
        for dilation, kernel in enumerate(self.kernels, 1):
            assert isinstance(kernel, nn.Conv3d)
            q = F.conv3d(q, kernel.weight, kernel.bias, padding=dilation, dilation=dilation, groups=n_labels)
            q = F.gelu(q) * inside  # Eq. (4)
            layers.append(q)
        scores = scores + pointwise(self.combine, torch.cat(layers, dim=1)) * inside  # Eq. (5)
        return scores.permute(0, 3, 4, 1, 2)


def cln(norm: ConditionalNorm, x: Tensor, condition: Tensor) -> Tensor:
    normal = F.layer_norm(x, x.shape[-1:], eps=EPSILON)
    return norm.gain(condition) * normal + norm.shift(condition)


def pointwise(linear: nn.Linear, volume: Tensor) -> Tensor:
    return F.conv3d(volume, linear.weight[:, :, None, None, None], linear.bias)
