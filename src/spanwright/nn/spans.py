"""Pooling over spans of words, without a spans x words mask.

Spans are ``start:end``, end exclusive. Loops run up to a width that the config knows, never up to the length of a
sentence, so `torch.export` does not fix the length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F


def growing_max(words: Tensor, max_width: int) -> Iterator[Tensor]:
    """For each width 1, 2, ..., `max_width`: [B, N, D] maximum over the words ``start:start+width`` that exist."""
    padded = F.pad(words, (0, 0, 0, max_width - 1), value=-torch.inf)  # [B, N+W-1, D]
    best = words
    yield best
    for width in range(2, max_width + 1):
        best = torch.maximum(best, padded[:, width - 1 : width - 1 + words.shape[1]])
        yield best


def widths(words: Tensor, mask: Tensor, max_width: int, reduce: Literal["max", "mean"] = "max") -> Tensor:
    """[B, N, W, D] every span up to `max_width` words, pooled; ``[:, i, w]`` is ``i:i+w+1``.

    A span that runs over the end of its sentence is cut there; one that starts in the padding is 0.
    """
    inside = mask.unsqueeze(2)
    if reduce == "max":
        low = words.masked_fill(~inside, torch.finfo(words.dtype).min)
        pooled = torch.stack(list(growing_max(low, max_width)), dim=2)
        return torch.where(inside.unsqueeze(3), pooled, 0.0)
    n_words = words.shape[1]
    kept = F.pad(words * inside, (0, 0, 1, max_width - 1)).cumsum(1)  # [B, N+W, D]
    start = torch.arange(n_words, device=words.device)
    sums = torch.stack([kept[:, w : w + n_words] for w in range(1, max_width + 1)], dim=2) - kept[:, :n_words, None]
    steps = torch.arange(1, max_width + 1, device=words.device)
    left = (mask.sum(1)[:, None] - start).clamp(min=0)  # [B, N] words from here to the end of the sentence
    size = torch.minimum(steps, left.unsqueeze(2)).clamp(min=1)  # [B, N, W]
    return sums / size.unsqueeze(3) * inside.unsqueeze(3)


def pool_max(words: Tensor, rows: Tensor, starts: Tensor, ends: Tensor, max_width: int) -> Tensor:
    """[..., D] maximum over the words of arbitrary spans; `rows`, `starts` and `ends` are of one shape [...].

    A sparse table: the maximum over every window of 1, 2, 4, ... words; two windows that overlap cover any span. No
    span may be empty or wider than `max_width`.
    """
    n_words = words.shape[1]
    levels = max_width.bit_length()
    table = [words]
    for k in range(levels - 1):
        half = 1 << k
        shifted = F.pad(table[-1], (0, 0, 0, half), value=-torch.inf)[:, half : half + n_words]
        table.append(torch.maximum(table[-1], shifted))
    flat = torch.stack(table).flatten(0, 2)  # [levels*B*N, D]
    size = ends - starts
    level = torch.zeros_like(size)
    for k in range(1, levels):
        level = level + (size >= 1 << k)  # floor(log2(size)), exactly
    at = (level * words.shape[0] + rows) * n_words  # where the table of this level and row begins
    return torch.maximum(_rows(flat, at + starts), _rows(flat, at + ends - (1 << level)))


def pool_mean(words: Tensor, rows: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """[..., D] mean over the words of arbitrary spans that are not empty, by prefix sums."""
    flat = F.pad(words, (0, 0, 1, 0)).cumsum(1).flatten(0, 1)  # [B*(N+1), D]
    at = rows * (words.shape[1] + 1)
    return (_rows(flat, at + ends) - _rows(flat, at + starts)) / (ends - starts).unsqueeze(-1)


def take(words: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
    """[..., D] ``words[rows, positions]``; its backward pass is faster than that of plain indexing."""
    return _rows(words.flatten(0, 1), rows * words.shape[1] + positions)


def _rows(table: Tensor, index: Tensor) -> Tensor:
    return table.index_select(0, index.flatten()).view(*index.shape, -1)
