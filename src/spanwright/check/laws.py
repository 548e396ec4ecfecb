"""The laws of the head contract, one function each; the docstring is the law."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from spanwright.check.case import (
    CLOSE,
    Case,
    collate,
    compare_scores,
    decision_is_close,
    every_small_gold,
    expect,
    lesson,
    mean_loss,
    no_dropout,
    scores_of,
    states_given,
)
from spanwright.head import Head, States
from spanwright.tagger import Tagger
from spanwright.types import Entity, Sentence

OVERFIT_STEPS = 400
SCHOOL_STEPS = 60  # for a head that proposes nothing before it has learnt


def encoder_runs_once(case: Case) -> None:
    """The encoder is called once per batch, for the loss as for the scores."""
    tagger = case.tagger()
    calls: list[int] = []
    tagger.encoder.transformer.register_forward_hook(lambda *_: calls.append(1))
    batch = tagger.collate(case.sentences[:5])
    for what in (tagger.loss, tagger.scores):
        calls.clear()
        what(batch)
        expect(len(calls) == 1, f"{len(calls)} calls of the encoder in one {what.__name__}")
    calls.clear()
    tagger.predict(case.sentences[:6], batch_size=2)
    expect(len(calls) == 3, f"{len(calls)} calls of the encoder for 3 batches predicted")


def prefix_is_shaped(case: Case) -> None:
    """`prefix` is None or [P, input_width], and `forward` and `loss` find P prefix states."""
    tagger = case.tagger()
    prefix = tagger.head.prefix()
    n_prefix = 0 if prefix is None else len(prefix)
    if prefix is not None:
        wanted = (n_prefix, tagger.encoder.input_width)
        expect(prefix.shape == wanted and n_prefix > 0, f"prefix of shape {tuple(prefix.shape)}, expected {wanted}")
    seen = states_given(tagger.head)
    batch = tagger.collate(case.sentences[:3])
    tagger.loss(batch)
    tagger.scores(batch)
    shapes = [tuple(states.prefix.shape) for states in seen]
    expect(shapes == [(3, n_prefix, tagger.encoder.width)] * 2, f"prefix states {shapes} for {n_prefix} vectors")


def targets_are_deterministic(case: Case) -> None:
    """`targets` returns numpy arrays, the same for an equal sentence: nothing random, nothing of the weights."""
    first, second = case.tagger().head, case.tagger().head
    for parameter in second.parameters():
        nn.init.normal_(parameter)
    for i, sentence in enumerate(case.sentences):
        targets = first.targets(sentence)
        arrays = all(isinstance(array, np.ndarray) and array.dtype != object for array in targets.values())
        expect(arrays, f"{ {name: type(array).__name__ for name, array in targets.items()} }")
        expect("key" not in targets, 'the name "key" is taken by the trainer')
        random.seed(i), np.random.seed(i), torch.manual_seed(i)
        again = second.targets(replace(sentence, entities=_Backwards(sentence.entities)))
        expect(targets.keys() == again.keys(), f"names {list(targets)}, then {list(again)}")
        for name, array in targets.items():
            same = array.dtype == again[name].dtype and np.array_equal(array, again[name])
            expect(same, f"{name} differs between two calls for sentence {sentence.id}: {array} and {again[name]}")


def parameters_learn(case: Case) -> None:
    """Every parameter of the head receives a gradient that is finite, and in some batch not zero."""
    tagger = case.tagger()
    tagger.head.train()
    tagger.encoder.train()
    waiting = {name for name, parameter in tagger.head.named_parameters() if parameter.requires_grad}
    for first in range(0, 64, 16):
        tagger.head.zero_grad()
        mean_loss(tagger.loss(collate(tagger, case.sentences[first : first + 16], first))).backward()
        for name, parameter in tagger.head.named_parameters():
            if parameter.grad is not None:
                expect(bool(parameter.grad.isfinite().all()), f"the gradient of {name} is not finite")
                if parameter.grad.any():
                    waiting.discard(name)
    expect(not waiting, f"no gradient ever reached {', '.join(sorted(waiting))}")


def loss_is_finite(case: Case) -> None:
    """The loss and its gradients are finite without entities and with one word; where nothing is counted, nothing is
    summed."""
    label = case.labels[0]
    bare, one = Sentence(("a", "b", "c", "d"), id="bare"), Sentence(("a",), id="one")
    named = Sentence(("a",), frozenset({Entity(0, 1, label)}), id="named")
    for batch in ([bare], [one], [named], [bare, one], [one, *case.sentences[:3]]):
        tagger = case.tagger()
        tagger.head.train()
        losses = tagger.loss(collate(tagger, batch))
        where = f"for sentences of {[len(sentence) for sentence in batch]} words"
        expect(len(losses) > 0, "no loss at all")
        for name, (total, count) in losses.items():
            expect(total.shape == () and count.shape == (), f"{name}: shapes {total.shape} and {count.shape}, not ()")
            counted = count.item() > 0 or (count.item() == 0 and total.item() == 0)
            sound = bool(total.isfinite() and count.isfinite()) and counted
            expect(sound, f"{name} = {total.item()} / {count.item()} {where}")
        mean_loss(losses).backward()
        gradients = [parameter.grad for parameter in tagger.head.parameters() if parameter.grad is not None]
        expect(all(bool(gradient.isfinite().all()) for gradient in gradients), f"a gradient is not finite {where}")


def loss_adds_up(case: Case) -> None:
    """The loss of a batch is the sum of its sentences' losses, in any order and beside any padding: what is drawn,
    is drawn from ``targets["key"]``. (Dropout is switched off here.)"""
    tagger = case.tagger()
    tagger.head.train()
    keyed = list(enumerate(case.sentences[-12:]))

    def loss(rows: Sequence[tuple[int, Sentence]]) -> dict[str, tuple[float, float]]:
        batch = tagger.collate([sentence for _, sentence in rows], keys=[1000 + key for key, _ in rows])
        return {name: (total.item(), count.item()) for name, (total, count) in tagger.loss(batch).items()}

    with no_dropout(), torch.no_grad():
        alone = [loss([row]) for row in keyed]
        for order in (keyed, keyed[::-1], random.Random(0).sample(keyed, len(keyed)), keyed[:5], keyed[:0:-2]):
            torch.manual_seed(len(order))
            for name, (total, count) in loss(order).items():
                totals = sum(alone[i][name][0] for i, _ in order)
                counts = sum(alone[i][name][1] for i, _ in order)
                seen = f"{name}: {total:.6g} / {count:g} together, {totals:.6g} / {counts:g} one by one"
                expect(abs(count - counts) <= 1e-6 * counts and abs(total - totals) <= 1e-4 * (1 + abs(totals)), seen)


def loss_survives_bf16(case: Case) -> None:
    """Under bf16 autocast counts are the same and sums are close, and both are fit to be added up over batches."""
    tagger = case.tagger()
    batch = collate(tagger, case.sentences)
    with no_dropout():
        exact = tagger.loss(batch)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = tagger.loss(batch)
    for name, (total, count) in rough.items():
        expect(total.dtype in (torch.float32, torch.float64), f"{name} is summed in {total.dtype}: sum in float32")
        expect(not count.requires_grad, f"the count of {name} has a gradient")
        wanted, wanted_count = exact[name]
        expect(count.item() == wanted_count.item(), f"{name} counts {count.item()}, in fp32 {wanted_count.item()}")
        near = abs(total.item() - wanted.item()) <= 0.1 * (abs(wanted.item()) + count.item())
        expect(near, f"{name} sums to {total.item():.4g}, in fp32 to {wanted.item():.4g}")


def candidates_are_sound(case: Case) -> None:
    """`decode` answers with entities that lie in their sentence, carry a label of the head and a score in [0, 1]."""
    tagger = case.tagger()
    lengths = [len(sentence) for sentence in case.sentences]
    found = tagger.head.decode(scores_of(tagger, case.sentences), lengths)
    expect(len(found) == len(lengths), f"{len(found)} answers for {len(lengths)} sentences")
    for n_words, entities in zip(lengths, found, strict=True):
        for entity in entities:
            sound = 0 <= entity.start < entity.end <= n_words and entity.label in case.labels
            expect(sound, f"{entity} in a sentence of {n_words} words")
            expect(type(entity.score) is float and 0 <= entity.score <= 1, f"score {entity.score!r} of {entity}")
            expect(type(entity.start) is int and type(entity.end) is int, f"{entity} is not of plain integers")


def predictions_are_independent(case: Case) -> None:
    """A sentence gets the same scores (within 1e-5) and the same entities (unless a decision is closer than that)
    alone, among any others, in any order, beside one ten times longer. Padding lies at the end of each dimension."""
    tagger = case.tagger()
    tagger.head.set_inference(threshold=0.0)  # an untrained head is sure of nothing, and an empty answer proves nothing
    sentences = case.sentences
    if not any(tagger.predict(sentences)):
        for _ in learning(tagger, sentences[:16], SCHOOL_STEPS):
            pass
    alone = [scores_of(tagger, [sentence]) for sentence in sentences]
    plain = tagger.predict(sentences, batch_size=1)
    expect(any(plain), f"no entity in any sentence at threshold 0, not even after {SCHOOL_STEPS} steps of training")
    for size in (7, 32, 64):
        order = random.Random(size).sample(range(len(sentences)), len(sentences))
        for first in range(0, len(order), size):
            rows = order[first : first + size]
            together = scores_of(tagger, [sentences[i] for i in rows])
            for row, i in enumerate(rows):
                compare_scores(alone[i], together, row, f"{len(sentences[i])} words among {len(rows)} sentences")
        found = tagger.predict([sentences[i] for i in order], batch_size=size)
        for i, entities in zip(order, found, strict=True):
            same = entities == plain[i] or decision_is_close(tagger, sentences[i], alone[i])
            expect(same, f"{sorted(plain[i])} alone, {sorted(entities)} in a batch of {size}")


def saving_keeps_everything(case: Case) -> None:
    """Saved and loaded, the tagger predicts the same, bit for bit."""
    tagger = case.tagger()
    tagger.head.set_inference(threshold=0.0)
    with tempfile.TemporaryDirectory() as folder:
        tagger.save(Path(folder) / "model")
        torch.manual_seed(1)
        again = Tagger.load(Path(folder) / "model", device="cpu")
    before, after = scores_of(tagger, case.sentences), scores_of(again, case.sentences)
    expect(before.keys() == after.keys(), f"scores {list(before)} before, {list(after)} after")
    for name, scores in before.items():
        expect(torch.equal(scores, after[name]), f"{name} differs after loading")
    first, second = tagger.predict(case.sentences), again.predict(case.sentences)
    for entities, others in zip(first, second, strict=True):
        same = {(entity, entity.score) for entity in entities} == {(entity, entity.score) for entity in others}
        expect(same, f"{sorted(entities)} before, {sorted(others)} after")


def gold_is_answered(case: Case) -> None:
    """``decode(oracle(head, sentence)) == head.representable(sentence)`` for every gold of up to two entities in up to
    five words; what is representable is gold, and a lone entity of one word is."""
    head, oracle = case.tagger().head, case.oracle
    assert oracle is not None, "this law needs an oracle"
    for sentence in every_small_gold(case.labels.names):
        wanted = head.representable(sentence)
        expect(wanted <= sentence.entities, f"representable adds {sorted(wanted - sentence.entities)}")
        expect(
            case.nested or not is_nested(wanted),
            f"{sorted(wanted)} is called representable, but nesting is not claimed",
        )
        with torch.inference_mode():
            (found,) = head.decode(oracle(head, sentence), [len(sentence)])
        expect(found == wanted, f"{sorted(found)} for the gold {sorted(wanted)} in {len(sentence)} words")
        if [len(entity) for entity in sentence.entities] == [1]:
            expect(bool(wanted), f"{sorted(sentence.entities)} alone in {len(sentence)} words is not representable")


def gold_is_learned(case: Case) -> None:
    """A tiny batch is overfitted to exactly its gold, nested where the head claims it."""
    tagger = case.tagger()
    sentences = lesson(case.labels.names)
    gold = [tagger.head.representable(sentence) for sentence in sentences]
    expect(not case.nested or any(map(is_nested, gold)), f"nesting is claimed, but the gold is reduced to {gold}")
    found: list[frozenset[Entity]] = []
    for step in learning(tagger, sentences, OVERFIT_STEPS):
        if step % 20 == 19:
            found = tagger.predict(sentences)
            if found == gold:
                return
    wrong = [(sorted(a), sorted(b)) for a, b in zip(found, gold, strict=True) if a != b]
    expect(False, f"after {OVERFIT_STEPS} steps: {'; '.join(f'{a} for {b}' for a, b in wrong)}")


def learning(tagger: Tagger, sentences: Sequence[Sentence], steps: int) -> Iterator[int]:
    """Trains on the same sentences, yielding after each step; the tagger is ready to predict then."""
    rates = [(tagger.encoder, 1e-3), (tagger.head, 1e-2)]
    optimizer = torch.optim.Adam([{"params": module.parameters(), "lr": rate} for module, rate in rates])
    for step in range(steps):
        tagger.head.train()
        optimizer.zero_grad()
        mean_loss(tagger.loss(collate(tagger, sentences, step * len(sentences)))).backward()
        nn.utils.clip_grad_norm_(tagger.head.parameters(), 5.0)
        optimizer.step()
        tagger.head.eval()
        yield step


def forward_exports(case: Case) -> None:
    """Exported once by torch.export with dynamic batch and length, `forward` gives the same at three other shapes, and
    where a sentence has no word (nothing can be kept there)."""
    tagger = case.tagger()
    batch, length = torch.export.Dim("batch", max=64), torch.export.Dim("length", max=256)
    dynamic = ({0: batch, 1: length}, {0: batch, 1: length}, {0: batch}, {0: batch})
    n_prefix = 0 if (prefix := tagger.head.prefix()) is None else len(prefix)

    def tensors(lengths: Sequence[int], seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        draw = torch.Generator().manual_seed(seed)
        mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        shapes = ((*mask.shape, tagger.encoder.width), (len(lengths), n_prefix, tagger.encoder.width))
        words, before = (torch.randn(shape, generator=draw) for shape in shapes)
        return words * mask[..., None], mask, before, torch.randn(len(lengths), tagger.encoder.width, generator=draw)

    forward = _Forward(tagger.head).eval()
    with torch.no_grad():
        program = torch.export.export(forward, tensors([7, 3, 5], 0), dynamic_shapes=dynamic).module()
        for seed, lengths in enumerate(([9, 4], [33, 1, 12, 20, 8], [2, 2, 1, 1], [6, 0, 3]), 1):
            given = tensors(lengths, seed)
            wanted, seen = forward(*given), program(*given)
            expect(wanted.keys() == seen.keys(), f"{list(seen)} exported, {list(wanted)} expected")
            for name, scores in wanted.items():
                same = scores.shape == seen[name].shape and scores.allclose(seen[name], CLOSE, CLOSE, equal_nan=True)
                expect(same, f"{name} differs for sentences of {lengths} words")


class _Backwards(frozenset[Entity]):
    """An equal set in another order, as the next process may have it: the hash of a string changes."""

    def __iter__(self) -> Iterator[Entity]:
        return iter(sorted(super().__iter__(), reverse=True))


class _Forward(nn.Module):
    """`forward` of a head as plain tensors to tensors, which is what an exporter takes."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head

    def forward(self, words: Tensor, mask: Tensor, prefix: Tensor, whole: Tensor) -> dict[str, Tensor]:
        scores: dict[str, Tensor] = self.head(States(words=words, mask=mask, prefix=prefix, whole=whole))
        return scores


def is_nested(entities: Collection[Entity]) -> bool:
    """Whether one of them lies inside another."""
    return any(one != other and one.contains(other) for one in entities for other in entities)


LAWS: dict[str, Callable[[Case], None]] = {
    "encoder": encoder_runs_once,
    "prefix": prefix_is_shaped,
    "targets": targets_are_deterministic,
    "gradients": parameters_learn,
    "finite": loss_is_finite,
    "additive": loss_adds_up,
    "bf16": loss_survives_bf16,
    "candidates": candidates_are_sound,
    "independent": predictions_are_independent,
    "save": saving_keeps_everything,
    "oracle": gold_is_answered,
    "overfit": gold_is_learned,
    "export": forward_exports,
}
SLOW = frozenset({"export"})  # a slow learner's "overfit" is slow as well
