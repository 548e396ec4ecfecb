"""Keyed draws: the published generator's numbers, evenly spread, blind to batch-mates and padding."""

from __future__ import annotations

import torch
from torch import Tensor

from spanwright.nn.draw import LARGEST, draw, sample

WORD, STEP = (1 << 64) - 1, 0x9E3779B97F4A7C15


def splitmix64(state: int) -> int:
    """One output of splitmix64 from `state`, in Python's unbounded integers."""
    value = (state + STEP) & WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & WORD
    return value ^ (value >> 31)


def keys(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


def test_numbers_are_those_of_splitmix64() -> None:
    assert splitmix64(0) == 0xE220A8397B1DCDAF  # published: the first output for seed 0
    given = [0, 1, -1, 2**63 - 1, -(2**63), 123456789]
    found = draw(keys(*given), torch.arange(50))
    for row, key in zip(found.tolist(), given, strict=True):
        assert row == [splitmix64(splitmix64(key & WORD) + index * STEP) & LARGEST for index in range(50)]


def test_draws_are_spread_evenly() -> None:
    numbers = draw(torch.arange(100), torch.arange(1000)).double() / 2.0**63
    assert numbers.min() >= 0 and numbers.max() < 1
    counts = torch.histc(numbers, bins=20, min=0, max=1)  # 5000 each; standard deviation 69
    assert (counts - 5000).abs().max() < 5 * 69
    by_key, by_index = numbers.mean(1), numbers.mean(0)
    assert (by_key - 0.5).abs().max() < 5 * 0.2887 / 1000**0.5
    assert (by_index - 0.5).abs().max() < 5 * 0.2887 / 100**0.5
    assert len(torch.unique(draw(torch.arange(100), torch.arange(1000)))) == 100_000


def test_samples_hold_no_duplicates_and_nothing_that_was_not_eligible() -> None:
    eligible = torch.rand(30, 80, generator=torch.Generator().manual_seed(0)) < 0.4
    eligible[0] = False
    columns, taken = sample(torch.arange(30), eligible, 25)
    for row in range(30):
        drawn = columns[row, taken[row]].tolist()
        assert len(drawn) == len(set(drawn)) == min(25, int(eligible[row].sum()))
        assert eligible[row, drawn].all()


def test_every_eligible_column_is_as_likely_as_the_others() -> None:
    eligible = torch.zeros(4000, 40, dtype=torch.bool)
    eligible[:, ::2] = True
    columns, taken = sample(torch.arange(4000), eligible, 5)
    counts = torch.bincount(columns[taken], minlength=40)[::2]
    assert counts.sum() == 20_000
    assert (counts - 1000).abs().max() < 5 * 31  # binomial: standard deviation below 31


def test_batch_mates_place_and_padding_change_nothing() -> None:
    eligible = torch.rand(8, 60, generator=torch.Generator().manual_seed(1)) < 0.5
    columns, taken = sample(torch.arange(8), eligible, 10)
    wider = torch.cat([eligible, torch.zeros(8, 33, dtype=torch.bool)], dim=1).flip(0)
    columns_again, taken_again = sample(torch.arange(8).flip(0), wider, 10)
    for row in range(8):
        assert columns[row, taken[row]].tolist() == columns_again[7 - row, taken_again[7 - row]].tolist()
    other = sample(torch.arange(8) + 100, eligible, 10)[0]
    assert not torch.equal(columns, other)
