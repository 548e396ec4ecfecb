"""The CRF against enumeration of all tag sequences, against printed numbers, and against pytorch-crf."""

from __future__ import annotations

import json
import math
from itertools import pairwise, product
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torchcrf import CRF

from spanwright.nn import crf

GOLDEN = json.loads((Path(__file__).parent / "golden" / "bundling.json").read_text())["crf"]


def random_case(n_tags: int, lengths: list[int], seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """emissions, mask, transitions, start, end; the emissions of the padding are noise."""
    random = torch.Generator().manual_seed(seed)
    emissions = 2 * torch.randn(len(lengths), max(lengths), n_tags, generator=random, dtype=torch.float64)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    transitions = torch.randn(n_tags, n_tags, generator=random, dtype=torch.float64)
    start, end = torch.randn(2, n_tags, generator=random, dtype=torch.float64)
    return emissions, mask, transitions, start, end


def scores_of_all(emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor | None) -> dict[tuple, float]:
    """Every tag sequence of one sentence [N, T] with its score, word by word."""
    found = {}
    for tags in product(range(emissions.shape[1]), repeat=len(emissions)):
        score = start[tags[0]].item() + (0.0 if end is None else end[tags[-1]].item())
        score += sum(emissions[i, tag].item() for i, tag in enumerate(tags))
        found[tags] = score + sum(transitions[a, b].item() for a, b in pairwise(tags))
    return found


def logsumexp(values: list[float]) -> float:
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))


@pytest.mark.parametrize("with_end", [False, True])
def test_partition_loss_and_best_path_are_those_of_enumeration(with_end: bool) -> None:
    lengths = [1, 5, 2, 4]
    emissions, mask, transitions, start, ending = random_case(3, lengths)
    end = ending if with_end else None
    tags = torch.tensor([[(i * 7 + j) % 3 for j in range(5)] for i in range(4)]).masked_fill(~mask, -1)
    log_z = crf.log_partition(emissions, mask, transitions, start, end)
    losses = crf.negative_log_likelihood(emissions, tags, mask, transitions, start, end)
    paths = crf.viterbi(emissions, mask, transitions, start, end)
    for i, length in enumerate(lengths):
        scores = scores_of_all(emissions[i, :length], transitions, start, end)
        best = max(scores, key=scores.__getitem__)
        assert log_z[i].item() == pytest.approx(logsumexp(list(scores.values())))
        assert losses[i].item() == pytest.approx(log_z[i].item() - scores[tuple(tags[i, :length].tolist())])
        assert paths[i].tolist() == [*best, *[0] * (5 - length)]


@pytest.mark.parametrize("case", GOLDEN)
@pytest.mark.parametrize("bare", [False, True])
def test_golden_numbers(case: dict, bare: bool) -> None:
    emissions, transitions = torch.tensor([case["emissions"]]), torch.tensor(case["transitions_from_to"])
    start, end, suffix = torch.tensor(case["start"]), torch.tensor(case["end"]), ""
    if bare:
        start, suffix = torch.zeros_like(start), "_no_start_end"
    mask = torch.ones(emissions.shape[:2], dtype=torch.bool)
    gold = torch.tensor([case["gold"]])
    arguments = (mask, transitions, start, None if bare else end)
    assert crf.log_partition(emissions, *arguments).item() == pytest.approx(case["logZ" + suffix], rel=1e-5)
    loss = crf.negative_log_likelihood(emissions, gold, *arguments).item()
    assert loss == pytest.approx(case["nll" + suffix], rel=1e-5)
    assert crf.viterbi(emissions, *arguments).tolist() == [case["best" + suffix]]


@pytest.mark.parametrize("with_end", [False, True])
def test_equals_pytorch_crf(with_end: bool) -> None:
    lengths = [9, 30, 1, 17, 2]
    emissions, mask, transitions, start, end = random_case(7, lengths, seed=1)
    end = end if with_end else torch.zeros_like(end)
    other = CRF(7, batch_first=True).double()
    with torch.no_grad():
        other.transitions.copy_(transitions)
        other.start_transitions.copy_(start)
        other.end_transitions.copy_(end)
    tags = torch.randint(7, mask.shape, generator=torch.Generator().manual_seed(2))
    expected = -other(emissions, tags, mask=mask, reduction="none")
    ours = (mask, transitions, start, end if with_end else None)
    torch.testing.assert_close(crf.negative_log_likelihood(emissions, tags, *ours), expected)
    paths = crf.viterbi(emissions, *ours)
    found = [path[:length] for path, length in zip(paths.tolist(), lengths, strict=True)]
    assert found == other.decode(emissions, mask=mask)


def says_so(tags: tuple, span: list[int], barred: set[int], stray: bool) -> bool:
    """The event that `span_log_probabilities` documents, read off one tag sequence."""
    i, j, first, inner = span
    opens = tags[i] == first or (stray and tags[i] == inner and (i == 0 or tags[i - 1] not in (first, inner)))
    return opens and set(tags[i + 1 : j]) <= {inner} and not (j < len(tags) and tags[j] in barred)


@pytest.mark.parametrize("stray", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_span_probabilities_are_those_of_enumeration(stray: bool, closed: bool) -> None:
    """`closed`: no inner tag of any label may follow, instead of this label's alone."""
    lengths = [4, 1, 3]
    emissions, mask, transitions, start, _ = random_case(5, lengths, seed=3)
    places = [(row, i, j) for row, n in enumerate(lengths) for i in range(n) for j in range(i + 1, n + 1)]
    spans = torch.tensor([[*place, first, first + 1] for place in places for first in (1, 3)])
    barred = [{2, 4} if closed else {inner} for inner in spans[:, 4].tolist()]
    may_follow = torch.tensor([[tag not in tags for tag in range(5)] for tags in barred])
    found = crf.span_log_probabilities(emissions, mask, transitions, start, spans, may_follow, stray).exp()
    every = [scores_of_all(emissions[i, :n], transitions, start, None) for i, n in enumerate(lengths)]
    for (row, *span), stop, probability in zip(spans.tolist(), barred, found.tolist(), strict=True):
        scores = every[row]
        chosen = [score for tags, score in scores.items() if says_so(tags, span, stop, stray)]
        assert probability == pytest.approx(math.exp(logsumexp(chosen) - logsumexp(list(scores.values()))))


def test_padding_and_batch_mates_change_nothing() -> None:
    emissions, mask, transitions, start, _ = random_case(5, [6, 3, 40], seed=4)
    spans = torch.tensor([[1, 1, 3, 1, 2], [1, 0, 1, 3, 4]])
    follow = torch.ones(2, 5, dtype=torch.bool)
    alone = (emissions[1:2, :3], mask[1:2, :3], transitions, start)
    together = (emissions, mask, transitions, start)
    assert crf.log_partition(*together)[1].item() == pytest.approx(crf.log_partition(*alone).item(), rel=1e-12)
    assert crf.viterbi(*together)[1, :3].tolist() == crf.viterbi(*alone)[0].tolist()
    moved = spans.clone()
    moved[:, 0] = 0
    torch.testing.assert_close(
        crf.span_log_probabilities(*together, spans, follow), crf.span_log_probabilities(*alone, moved, follow)
    )


def test_gradients_reach_every_parameter_even_with_one_word() -> None:
    emissions, mask, transitions, start, _ = random_case(3, [1])
    for tensor in (emissions, transitions, start):
        tensor.requires_grad_()
    crf.negative_log_likelihood(emissions, torch.tensor([[2]]), mask, transitions, start).sum().backward()
    assert transitions.grad is not None and emissions.grad is not None
    assert torch.equal(transitions.grad, torch.zeros(3, 3))
    expected = (start + emissions[0, 0]).softmax(0).detach() - torch.tensor([0.0, 0.0, 1.0])
    torch.testing.assert_close(start.grad, expected)
    torch.testing.assert_close(emissions.grad[0, 0], expected)


def test_impossible_transitions_are_never_taken() -> None:
    emissions, mask, transitions, start, _ = random_case(3, [12, 7], seed=5)
    transitions[1, 2] = transitions[2, 2] = -1e4
    for path, length in zip(crf.viterbi(emissions, mask, transitions, start).tolist(), (12, 7), strict=True):
        assert all(pair not in {(1, 2), (2, 2)} for pair in pairwise(path[:length]))
