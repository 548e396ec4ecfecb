"""Span pooling against loops over the words."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from spanwright.nn.spans import pool_max, pool_mean, take, widths


def states(lengths: list[int], size: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    words = torch.randn(len(lengths), max(lengths), size, generator=torch.Generator().manual_seed(seed))
    return words, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def pooled(words: Tensor, reduce: str) -> Tensor:
    return words.amax(0) if reduce == "max" else words.mean(0)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 12), st.sampled_from(["max", "mean"]))
def test_widths_equal_a_loop(lengths: list[int], max_width: int, reduce: Literal["max", "mean"]) -> None:
    words, mask = states(lengths)
    found = widths(words, mask, max_width, reduce)
    assert found.shape == (len(lengths), max(lengths), max_width, 5)
    for row, length in enumerate(lengths):
        for start in range(max(lengths)):
            for width in range(1, max_width + 1):
                inside = words[row, start : min(start + width, length)]
                expected = pooled(inside, reduce) if len(inside) else torch.zeros(5)
                torch.testing.assert_close(found[row, start, width - 1], expected, atol=1e-5, rtol=1e-5)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=4), st.integers(1, 20), st.integers(0, 10**6))
def test_pooling_of_arbitrary_spans_equals_a_loop(lengths: list[int], max_width: int, seed: int) -> None:
    words, _ = states(lengths)
    spans = [
        (row, start, end)
        for row, length in enumerate(lengths)
        for start in range(length)
        for end in range(start + 1, min(start + max_width, length) + 1)
    ]
    order = torch.randperm(len(spans), generator=torch.Generator().manual_seed(seed))
    rows, starts, ends = torch.tensor(spans)[order].unbind(1)
    highest, mean = pool_max(words, rows, starts, ends, max_width), pool_mean(words, rows, starts, ends)
    for k, (row, start, end) in enumerate(torch.stack([rows, starts, ends], 1).tolist()):
        assert torch.equal(highest[k], words[row, start:end].amax(0))
        torch.testing.assert_close(mean[k], words[row, start:end].mean(0), atol=1e-5, rtol=1e-5)


def test_spans_may_come_in_any_shape() -> None:
    words, _ = states([6, 6])
    rows = torch.arange(2)[:, None].expand(2, 3)
    starts, ends = torch.tensor([[0, 1, 2], [3, 4, 5]]), torch.tensor([[4, 2, 5], [6, 6, 6]])
    both = {"max": pool_max(words, rows, starts, ends, 4), "mean": pool_mean(words, rows, starts, ends)}
    for reduce, found in both.items():
        assert found.shape == (2, 3, 5)
        torch.testing.assert_close(found[1, 0], pooled(words[1, 3:6], reduce))
        torch.testing.assert_close(found[0, 2], pooled(words[0, 2:5], reduce))
    assert torch.equal(take(words, rows, starts), words[rows, starts])


@pytest.mark.parametrize("reduce", ["max", "mean"])
def test_nothing_outside_the_sentence_is_read(reduce: Literal["max", "mean"]) -> None:
    words, mask = states([4, 9], seed=1)
    loud = words.clone()
    loud[0, 4:] = 1e6
    assert torch.equal(widths(loud, mask, 6, reduce)[0], widths(words, mask, 6, reduce)[0])
    torch.testing.assert_close(widths(words[:1, :4], mask[:1, :4], 6, reduce)[0], widths(words, mask, 6, reduce)[0, :4])


def test_gradient_of_the_maximum_goes_to_the_highest_word() -> None:
    words = torch.tensor([[[1.0], [3.0], [2.0], [0.0]]], requires_grad=True)
    zero, ends = torch.tensor([0]), torch.tensor([4])
    pool_max(words, zero, zero, ends, 4).sum().backward()
    assert words.grad is not None
    assert words.grad.flatten().tolist() == [0.0, 1.0, 0.0, 0.0]
