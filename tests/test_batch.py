"""Batches: filled by budget, shuffled by seed and epoch alone, padded by the rule that heads rely on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spanwright.batch import chunks, epoch_batches, fill_batches, fitting_budget, key_of, pad_targets

SIZES = st.lists(st.integers(3, 120), min_size=1, max_size=200)


@given(SIZES, st.integers(1, 2000))
def test_every_sentence_once_and_within_the_budget(sizes: list[int], budget: int) -> None:
    batches = fill_batches(sizes, budget)
    assert [i for batch in batches for i in batch] == list(range(len(sizes)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(sizes[i] for i in batch) <= budget


@given(SIZES, st.integers(50, 2000), st.integers(0, 9), st.integers(0, 9))
def test_an_epoch_is_a_permutation_that_seed_and_epoch_repeat(
    sizes: list[int], budget: int, seed: int, epoch: int
) -> None:
    batches = epoch_batches(sizes, budget, seed, epoch)
    assert sorted(i for batch in batches for i in batch) == list(range(len(sizes)))
    assert batches == epoch_batches(sizes, budget, seed, epoch)


def test_epochs_and_seeds_differ() -> None:
    sizes = [10] * 100
    assert epoch_batches(sizes, 50, 1, 0) != epoch_batches(sizes, 50, 1, 1)
    assert epoch_batches(sizes, 50, 1, 0) != epoch_batches(sizes, 50, 2, 0)


def test_buckets_waste_little() -> None:
    sizes = [int(n) for n in np.random.default_rng(0).integers(5, 100, 3000)]
    batches = epoch_batches(sizes, 1024, 1, 0)
    padded = sum(len(batch) * max(sizes[i] for i in batch) for batch in batches)
    assert padded < 1.1 * sum(sizes)


@given(st.lists(st.integers(3, 1000), min_size=40, max_size=400), st.integers(0, 5))
def test_a_small_corpus_still_has_forty_updates(sizes: list[int], epoch: int) -> None:
    budget = fitting_budget(sizes, 4096, 40)
    assert budget <= 4096
    assert len(epoch_batches(sizes, budget, 1, epoch)) >= 40


@given(st.lists(st.integers(3, 1000), min_size=40, max_size=400))
def test_the_budget_shrinks_no_more_than_that_takes(sizes: list[int]) -> None:
    budget = fitting_budget(sizes, 4096, 40)
    assert budget == 4096 or len(fill_batches(sorted(sizes), budget + 1)) < 40


def test_fewer_sentences_than_updates_are_a_batch_each() -> None:
    assert len(epoch_batches([9] * 12, fitting_budget([9] * 12, 1024, 40), 1, 0)) == 12


def test_a_large_corpus_keeps_its_budget() -> None:
    assert fitting_budget([40] * 10_000, 1024, 40) == 1024


def test_padding_by_kind_of_number() -> None:
    targets: list[dict[str, np.ndarray]] = [
        {"i": np.array([[1, 2]]), "f": np.array([0.5], np.float32), "b": np.array([True])},
        {"i": np.zeros((2, 1), np.int64), "f": np.zeros(0, np.float32), "b": np.zeros(0, bool)},
    ]
    padded = pad_targets(targets)
    assert padded["i"].tolist() == [[[1, 2], [-1, -1]], [[0, -1], [0, -1]]]
    assert padded["f"].tolist() == [[0.5], [0.0]] and padded["f"].dtype == torch.float32
    assert padded["b"].tolist() == [[True], [False]]


def test_unsigned_integers_are_refused() -> None:
    """-1 has no place among them, and 0 would be read as a class."""
    with pytest.raises(TypeError, match=r"uint8.*signed"):
        pad_targets([{"tags": np.array([1, 2], np.uint8)}, {"tags": np.array([1], np.uint8)}])


def test_keys_are_int64_and_differ() -> None:
    keys = {key_of(seed, epoch, index) for seed in range(3) for epoch in range(3) for index in range(50)}
    assert len(keys) == 450
    assert torch.tensor(list(keys), dtype=torch.int64).shape == (450,)


def test_chunks() -> None:
    assert list(chunks(iter(range(5)), 2)) == [[0, 1], [2, 3], [4]]
