"""The grid of spans (first word i, last word j): which cells there are, packed for algebra, laid out for convolution.

Scores of single cells are computed over a packed list, in which no cell is computed in vain; a convolution wants rows
and columns. A square has all N x N cells. A triangle has those with i <= j, laid out as N x N with zeros below. A band
of width W has, for each i, the columns j = i, ..., i + W - 1 as N x W; mirrored, also those before i, as N x (2W - 1).
All is plain arithmetic on N, so that `torch.export` does not fix the length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Grid:
    """C packed cells, and the R x K layout of a convolution."""

    first: Tensor  # [C] i of each packed cell
    last: Tensor  # [C] j
    place: Tensor | None  # [R*K] the packed cell at each place; None: they are in the same order
    inside: Tensor  # [B, R, K] whether there is a cell, and in the sentence
    lowest: int | None = None  # of a band: j - i in the first column; None: columns are j

    def lay_out(self, packed: Tensor) -> Tensor:
        """[B, C, X] -> [B, R, K, X], 0 where there is no cell."""
        laid = packed if self.place is None else packed.index_select(1, self.place)
        return laid.view(*self.inside.shape, packed.shape[2]) * self.inside.unsqueeze(3)


def column_of(first: Tensor, last: Tensor, lowest: int | None) -> Tensor:
    """The column of cells; `lowest` as in `Grid`."""
    return last if lowest is None else last - first - lowest


def last_of(first: Tensor, column: Tensor, lowest: int | None) -> Tensor:
    """The last word of the cells in a column."""
    return column if lowest is None else column + first + lowest


def grid_of(mask: Tensor, upper: bool, max_width: int = 0) -> Grid:
    """The cells of a batch with the words `mask` [B, N]; `max_width` words make it a band, 0 does not."""
    if max_width:
        return band(mask, upper, max_width)
    return triangle(mask) if upper else square(mask)


def lowest_of(upper: bool, max_width: int) -> int | None:
    """j - i in the first column of a band, None without one."""
    if not max_width:
        return None
    return 0 if upper else 1 - max_width


def square(mask: Tensor) -> Grid:
    n = mask.shape[1]
    cell = torch.arange(n * n, device=mask.device)
    return Grid(cell // n, cell % n, None, mask.unsqueeze(2) & mask.unsqueeze(1))


def triangle(mask: Tensor) -> Grid:
    """Row r of the packed list holds the n - r spans of r + 1 words and the r + 1 spans of n - r words."""
    n = mask.shape[1]
    rows = (n + 1) // 2
    cell = torch.arange(rows * (n + 1), device=mask.device)
    row, column = cell // (n + 1), cell % (n + 1)
    wide = column >= n - row
    first = torch.where(wide, column - (n - row), column)
    last = first + torch.where(wide, n - 1 - row, row)
    word = torch.arange(n, device=mask.device)
    more = word - word.unsqueeze(1)  # [N, N] j - i
    folded = torch.where(more < rows, more * (n + 1), (n - 1 - more) * (n + 1) + more + 1)
    place = torch.where(more >= 0, folded + word.unsqueeze(1), 0).flatten()
    return Grid(first, last, place, mask.unsqueeze(2) & mask.unsqueeze(1) & (more >= 0))


def band(mask: Tensor, upper: bool, max_width: int) -> Grid:
    n = mask.shape[1]
    lowest = lowest_of(upper, max_width)
    assert lowest is not None
    columns = max_width - lowest
    if upper and not torch.compiler.is_compiling():  # a graph for all lengths has all columns
        columns = min(columns, n)
    cell = torch.arange(n * columns, device=mask.device)
    first = cell // columns
    last = first + cell % columns + lowest
    there = mask.index_select(1, first) & mask.index_select(1, last.clamp(0, n - 1)) & (last >= 0) & (last < n)
    return Grid(first, last.clamp(0, n - 1), None, there.view(mask.shape[0], n, columns), lowest)


def convolve(volume: Tensor, weight: Tensor, bias: Tensor, dilation: int, grid: Grid) -> Tensor:
    """A depthwise 3D convolution of [B, R, K, L*M] over M, i and j with kernels [L, 3, 3, 3]; zeros lie around it.

    Computed as one of two dimensions with L groups of M channels, several times faster than `conv3d`: along M a kernel
    is a matrix with three diagonals. In a band the neighbour (i + a, j + b) lies b - a columns away: the same nine
    weights, sheared into 3 x 5.
    """
    n_types, beside = volume.shape[3] // len(weight), dilation
    if grid.lowest is not None:
        weight = torch.cat([F.pad(weight[:, :, a, None], (2 - a, a)) for a in range(3)], dim=2)
        beside = 2 * dilation
    kind = torch.arange(n_types, device=volume.device)
    away = kind - kind.unsqueeze(1)  # [M, M] from the type that is computed to the one that is read
    tap = torch.where((away.abs() <= dilation) & (away % dilation == 0), away // dilation + 1, 3)  # 3: none
    matrices = F.pad(weight, (0, 0, 0, 0, 0, 1))[:, tap].flatten(0, 1)  # [L*M, M, 3, 3 or 5]
    channels_first = volume.permute(0, 3, 1, 2)  # in memory the channels stay last, which is what makes it fast
    padding = (dilation, beside)
    biases = bias.repeat_interleave(n_types)
    with torch.autocast("cpu", enabled=False):  # in bf16 its gradients are wrong, see docs/decisions/0009
        found = F.conv2d(channels_first.float(), matrices, biases, 1, padding, dilation, groups=len(weight))
    return found.permute(0, 2, 3, 1)
