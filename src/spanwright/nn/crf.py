"""Linear-chain conditional random field, batched and exact.

Emissions are [B, N, T], masks [B, N] (a row is words, then padding), transitions [T, T] from row to column, start and
end [T]. Equations are those of Bundling Learning; ``end=None`` is the paper's model, which has no end transitions.
Loops run over the words, never over the batch or the tags.
"""

from __future__ import annotations

import torch
from torch import Tensor


def negative_log_likelihood(
    emissions: Tensor, tags: Tensor, mask: Tensor, transitions: Tensor, start: Tensor, end: Tensor | None = None
) -> Tensor:
    """[B] -log Pr(tags). Tags of padding may be anything."""
    log_z = log_partition(emissions, mask, transitions, start, end)
    return log_z - score(emissions, tags, mask, transitions, start, end)  # Eq. (10)


def score(
    emissions: Tensor, tags: Tensor, mask: Tensor, transitions: Tensor, start: Tensor, end: Tensor | None = None
) -> Tensor:
    """[B] the sum over the words of emission and transition: log of the numerator of Eq. (8)."""
    tags = tags.masked_fill(~mask, 0)
    emitted = emissions.gather(2, tags.unsqueeze(2)).squeeze(2)  # [B, N]
    moved = transitions[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]  # [B, N-1]
    total = (emitted * mask).sum(1) + moved.sum(1) + start[tags[:, 0]]  # Eq. (9), in logarithms
    if end is None:
        return total
    last = tags.gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)
    return total + end[last]


def log_partition(
    emissions: Tensor, mask: Tensor, transitions: Tensor, start: Tensor, end: Tensor | None = None
) -> Tensor:
    """[B] log of the sum over all tag sequences: the denominator of Eq. (8)."""
    last = _forward(emissions, mask, transitions, start)[-1]
    return torch.logsumexp(last if end is None else last + end, dim=1)


def viterbi(emissions: Tensor, mask: Tensor, transitions: Tensor, start: Tensor, end: Tensor | None = None) -> Tensor:
    """[B, N] the best tag sequence of each row, 0 in the padding. Eq. (11)."""
    best = start + emissions[:, 0]  # [B, T] the best score of a sequence that ends in each tag
    stay = torch.arange(emissions.shape[2], device=emissions.device).expand_as(best)
    pointers = []  # the tag before, for each tag
    for i in range(1, emissions.shape[1]):
        reached, before = (best.unsqueeze(2) + transitions).max(1)
        word = mask[:, i : i + 1]
        best = torch.where(word, reached + emissions[:, i], best)
        pointers.append(torch.where(word, before, stay))
    tag = (best if end is None else best + end).argmax(1, keepdim=True)  # [B, 1]
    path = [tag]
    for pointer in reversed(pointers):
        tag = pointer.gather(1, tag)
        path.append(tag)
    return torch.cat(path[::-1], dim=1) * mask


def span_log_probabilities(
    emissions: Tensor,
    mask: Tensor,
    transitions: Tensor,
    start: Tensor,
    spans: Tensor,
    may_follow: Tensor,
    stray: bool = False,
) -> Tensor:
    """[K] log-probability that the tags of a span say: one entity, no more and no less.

    `spans` [K, 5] holds (row, start word, end word, first tag, inner tag), `may_follow` [K, T] the tags that may come
    after the span. The event: the span's words carry first, inner, inner, ..., and the word after the span (if there
    is one) carries a tag that may follow. With `stray`, the first word may carry `inner` as well, unless
    the word before carries `first` or `inner`.
    """
    row, begin, end, first, inner = spans.unbind(1)
    alphas = torch.stack(_forward(emissions, mask, transitions, start), dim=1)  # [B, N, T]
    betas = _backward(emissions, mask, transitions)  # [B, N, T]
    by_first = alphas[row, begin, first]  # [K] every sequence up to the first word
    by_inner = torch.full_like(by_first, -torch.inf)
    if stray:
        before = alphas[row, (begin - 1).clamp(min=0)] + transitions[:, inner].T  # [K, T]
        continues = torch.stack([first, inner], dim=1)
        entered = torch.logsumexp(before.scatter(1, continues, -torch.inf), dim=1)
        by_inner = torch.where(begin == 0, start[inner], entered) + emissions[row, begin, inner]

    later = (end - begin - 1).clamp(min=0)  # words after the first
    sums = torch.nn.functional.pad(emissions, (0, 0, 1, 0)).cumsum(1)  # [B, N+1, T]
    inside = sums[row, end, inner] - sums[row, begin + 1, inner] + (later - 1) * transitions[inner, inner]
    joined = torch.logaddexp(by_first + transitions[first, inner], by_inner + transitions[inner, inner]) + inside
    one = later == 0
    ends_first = torch.where(one, by_first, -torch.inf)
    ends_inner = torch.where(one, by_inner, joined)

    lengths = mask.sum(1)[row]
    at = end.clamp(max=emissions.shape[1] - 1)
    after = (emissions + betas)[row, at].masked_fill(~may_follow, -torch.inf)  # [K, T]
    left = [torch.logsumexp(transitions[tag] + after, dim=1).where(end < lengths, 0.0) for tag in (first, inner)]
    log_z = torch.logsumexp(alphas[:, -1], dim=1)[row]
    return torch.logaddexp(ends_first + left[0], ends_inner + left[1]) - log_z


def _forward(emissions: Tensor, mask: Tensor, transitions: Tensor, start: Tensor) -> list[Tensor]:
    """For each word [B, T]: log of the sum over the sequences that end there in each tag. Padding repeats the last."""
    alphas = [start + emissions[:, 0]]
    for i in range(1, emissions.shape[1]):
        step = torch.logsumexp(alphas[-1].unsqueeze(2) + transitions, dim=1) + emissions[:, i]
        alphas.append(torch.where(mask[:, i : i + 1], step, alphas[-1]))
    return alphas


def _backward(emissions: Tensor, mask: Tensor, transitions: Tensor) -> Tensor:
    """[B, N, T] log of the sum over what may come after each word, that word's own emission left out."""
    betas = [torch.zeros_like(emissions[:, 0])]
    for i in range(emissions.shape[1] - 1, 0, -1):
        step = torch.logsumexp(transitions + (emissions[:, i] + betas[-1]).unsqueeze(1), dim=2)
        betas.append(torch.where(mask[:, i : i + 1], step, betas[-1]))
    return torch.stack(betas[::-1], dim=1)
