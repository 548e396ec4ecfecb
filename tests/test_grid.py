"""The grid of spans: packing loses and doubles no cell, and the convolution is the plain one of three dimensions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from spanwright.nn.grid import Grid, column_of, convolve, grid_of, last_of

SHAPES: dict[str, dict[str, Any]] = {
    "square": {"upper": False},
    "triangle": {"upper": True},
    "band": {"upper": True, "max_width": 3},
    "narrowest band": {"upper": True, "max_width": 1},
    "mirrored band": {"upper": False, "max_width": 3},
    "band wider than the sentence": {"upper": True, "max_width": 50},
    "mirrored band wider than the sentence": {"upper": False, "max_width": 50},
}


def masked(*lengths: int) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def belongs(i: int, j: int, upper: bool, max_width: int = 0) -> bool:
    return (i <= j or not upper) and (not max_width or abs(i - j) < max_width)


def laid_out(grid: Grid, dense: Tensor) -> Tensor:
    """[B, N, N, X] -> [B, R, K, X] by way of the packed cells."""
    return grid.lay_out(dense[:, grid.first, grid.last])


def as_square(grid: Grid, laid: Tensor) -> Tensor:
    """[B, R, K, X] -> [B, N, N, X], 0 where the grid has no cell."""
    n = laid.shape[1]
    dense = laid.new_zeros(len(laid), n, n, laid.shape[3])
    for i in range(n):
        for j in range(n):
            column = int(column_of(torch.tensor(i), torch.tensor(j), grid.lowest))
            assert int(last_of(torch.tensor(i), torch.tensor(column), grid.lowest)) == j
            if 0 <= column < laid.shape[2]:
                dense[:, i, j] = laid[:, i, column]
    return dense


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lengths", [(1,), (2, 1), (7, 3, 5), (8, 8), (6, 2)])
def test_each_cell_is_laid_out_in_its_place(shape: str, lengths: tuple[int, ...]) -> None:
    grid, n = grid_of(masked(*lengths), **SHAPES[shape]), max(lengths)
    numbers = torch.arange(1.0, n * n + 1).view(1, n, n, 1).expand(len(lengths), -1, -1, -1)
    found = as_square(grid, laid_out(grid, numbers))[..., 0]
    for row, length in enumerate(lengths):
        for i in range(n):
            for j in range(n):
                there = belongs(i, j, **SHAPES[shape]) and max(i, j) < length
                assert found[row, i, j] == (n * i + j + 1 if there else 0)
    assert grid.inside.sum() == (found > 0).sum()


@pytest.mark.parametrize("n", range(1, 30))
def test_a_triangle_is_packed_without_waste(n: int) -> None:
    grid = grid_of(masked(n), upper=True)
    cells = list(zip(grid.first.tolist(), grid.last.tolist(), strict=True))
    assert set(cells) == {(i, j) for i in range(n) for j in range(i, n)}
    assert len(cells) - len(set(cells)) == (n + 1) // 2 * (n % 2)  # an odd middle row meets itself


def naive(volume: Tensor, weight: Tensor, bias: Tensor, dilation: int) -> Tensor:
    """torch's own convolution of three dimensions over [B, N, N, L*M]."""
    n_labels = len(weight)
    dense = volume.unflatten(3, (n_labels, -1)).permute(0, 3, 4, 1, 2)  # [B, L, M, N, N]
    found = F.conv3d(dense, weight.unsqueeze(1), bias, padding=dilation, dilation=dilation, groups=n_labels)
    return found.permute(0, 3, 4, 1, 2).flatten(3)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("n_types", [1, 2, 5])
@pytest.mark.parametrize("lengths", [(1,), (9, 4)])
def test_the_convolution_is_the_plain_one(shape: str, dilation: int, n_types: int, lengths: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    n_labels, n = 4, max(lengths)
    grid = grid_of(masked(*lengths), **SHAPES[shape])
    weight, bias = torch.randn(n_labels, 3, 3, 3, requires_grad=True), torch.randn(n_labels, requires_grad=True)
    dense = torch.randn(len(lengths), n, n, n_labels * n_types, requires_grad=True)
    volume, inside = laid_out(grid, dense), grid.inside.unsqueeze(3)
    found = as_square(grid, convolve(volume, weight, bias, dilation, grid) * inside)
    wanted = naive(as_square(grid, volume), weight, bias, dilation) * as_square(grid, inside.float())
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    upstream = torch.randn_like(wanted)
    leaves = (dense, weight, bias)
    gradients = (torch.autograd.grad(one, leaves, upstream, retain_graph=True) for one in (found, wanted))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("n", [33, 45])
def test_the_gradient_of_a_dilated_kernel_is_right_under_bf16(n: int) -> None:
    """torch 2.13 leaves memory as it finds it in this gradient, if the convolution itself runs in bf16 on the CPU."""
    torch.manual_seed(0)
    grid, weight, bias = grid_of(masked(n), upper=True), torch.randn(10, 3, 3, 3), torch.zeros(10)
    volume = laid_out(grid, torch.randn(1, n, n, 50))
    gradients = []
    for autocast in (False, True):
        rubbish = [torch.full((size,), torch.nan) for size in (1000, 9000, 18000, 36000, 100_000) for _ in range(4)]
        del rubbish
        leaf = weight.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            convolve(volume, leaf, bias, 2, grid).sum().backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)
