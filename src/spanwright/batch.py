"""Sentences to batches: padding, token budgets, an order that depends on the seed and the epoch alone."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spanwright.pieces import Pieces, SentencePieces

POOL_BATCHES = 50  # sentences are sorted by length among about so many batches


@dataclass(frozen=True)
class Example:
    """A sentence ready for the loader; made once, kept for all epochs."""

    pieces: SentencePieces
    n_pieces: int  # of its row, special pieces and prefix included
    targets: Mapping[str, np.ndarray]
    index: int  # its place in the corpus: what its random draws are keyed by


@dataclass(frozen=True)
class Batch:
    pieces: Pieces
    targets: Mapping[str, Tensor]
    lengths: tuple[int, ...]  # words

    def to(self, device: torch.device) -> Batch:
        targets = {name: tensor.to(device) for name, tensor in self.targets.items()}
        return Batch(self.pieces.to(device), targets, self.lengths)


def key_of(seed: int, epoch: int, index: int) -> int:
    """An int64 that a sentence's random draws are made from."""
    digest = hashlib.blake2b(f"{seed}/{epoch}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def pad_targets(targets: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Tensor]:
    """Each array padded in every dimension to the largest of the batch, and stacked: [B, ...]."""
    return {name: pad_arrays([target[name] for target in targets]) for name in targets[0]}


def pad_arrays(arrays: Sequence[np.ndarray]) -> Tensor:
    """Integers are padded with -1, floats with 0, booleans with False."""
    if np.issubdtype(arrays[0].dtype, np.unsignedinteger):
        raise TypeError(f"targets of {arrays[0].dtype} cannot be padded with -1: expected signed integers")
    shape = np.max([array.shape for array in arrays], axis=0).astype(int)
    fill = -1 if np.issubdtype(arrays[0].dtype, np.signedinteger) else 0
    stacked = np.full((len(arrays), *shape), fill, dtype=arrays[0].dtype)
    for row, array in zip(stacked, arrays, strict=True):
        row[tuple(map(slice, array.shape))] = array
    return torch.from_numpy(stacked)


def fill_batches(n_pieces: Sequence[int], budget: int, order: Sequence[int] | None = None) -> list[list[int]]:
    """Consecutive sentences (of `order`) grouped so that rows x longest row stays within `budget` pieces."""
    batches: list[list[int]] = []
    longest = 0
    for i in range(len(n_pieces)) if order is None else order:
        longest = max(longest, n_pieces[i]) if batches else n_pieces[i]
        if not batches or longest * (len(batches[-1]) + 1) > budget:
            batches.append([])
            longest = n_pieces[i]
        batches[-1].append(i)
    return batches


def by_length(n_pieces: Sequence[int]) -> list[int]:
    """Longest first, so that too large a batch shows at once. Stable."""
    return sorted(range(len(n_pieces)), key=lambda i: -n_pieces[i])


def fitting_budget(n_pieces: Sequence[int], budget: int, min_updates: int) -> int:
    """The budget, or the largest smaller one that fills `min_updates` batches an epoch; a batch holds a sentence."""

    shortest_first = by_length(n_pieces)[::-1]

    def enough(tried: int) -> bool:
        return len(fill_batches(n_pieces, tried, shortest_first)) >= min_updates  # an epoch's pools make no fewer

    if enough(budget):
        return budget
    return max(1, bisect_left(range(budget), True, key=lambda tried: not enough(tried + 1)))


def epoch_batches(n_pieces: Sequence[int], budget: int, seed: int, epoch: int) -> list[list[int]]:
    """One epoch: shuffled, sorted by length within pools, filled by budget, batches shuffled. It depends on no more."""
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(n_pieces))
    pool = max(1, int(POOL_BATCHES * budget / max(1.0, float(np.mean(n_pieces)))))
    batches: list[list[int]] = []
    for start in range(0, len(order), pool):
        members = [int(i) for i in order[start : start + pool]]
        members.sort(key=lambda i: n_pieces[i])
        batches += fill_batches(n_pieces, budget, members)
    return [batches[i] for i in random.permutation(len(batches))]


def chunks(items: Iterator, size: int) -> Iterator[list]:
    """Lists of up to `size` items."""
    chunk: list = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
