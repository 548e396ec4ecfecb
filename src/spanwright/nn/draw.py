"""Random draws that depend on a key and an index alone.

`torch.Generator` deals its numbers out in order, so what a sentence gets would depend on its batch-mates and on the
padding. Here each number is a hash (splitmix64) of the sentence's key and of what is drawn.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = (1 << 63) - 1
STEP = 0x9E3779B97F4A7C15 - (1 << 64)  # splitmix64's constants, as signed integers


def draw(keys: Tensor, index: Tensor) -> Tensor:
    """[B, C] integers, uniform in 0 .. 2^63 - 1, one for each of the keys [B] and indices [C] (both int64).

    They are the outputs `index` of the generator that the mixed key seeds.
    """
    # Mixed first, for keys may be neighbours, and their sequences would be shifted copies of one another.
    return _mix(_mix(keys).unsqueeze(1) + index * STEP) & LARGEST


def sample(keys: Tensor, eligible: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Draws from each row of `eligible` [B, C] without replacement: ``min(count, eligible)`` columns a row.

    Returns the columns [B, K] and whether each is a draw [B, K]; a row with fewer than K eligible columns has False at
    its end. Appending columns that are not eligible changes nothing.
    """
    index = torch.arange(eligible.shape[1], device=eligible.device)
    order = draw(keys, index).masked_fill(~eligible, LARGEST)
    columns = order.topk(min(count, eligible.shape[1]), dim=1, largest=False).indices
    return columns, eligible.gather(1, columns)


def _mix(value: Tensor) -> Tensor:
    """One step of splitmix64, in int64 that wraps around."""
    value = value + STEP
    value = (value ^ _shifted(value, 30)) * (0xBF58476D1CE4E5B9 - (1 << 64))
    value = (value ^ _shifted(value, 27)) * (0x94D049BB133111EB - (1 << 64))
    return value ^ _shifted(value, 31)


def _shifted(value: Tensor, bits: int) -> Tensor:
    """Logical shift to the right; torch's own repeats the sign."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)
