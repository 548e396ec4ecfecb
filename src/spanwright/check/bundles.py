"""The laws of the composite: a bundle of heads is a head, and its heads do not disturb one another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from spanwright.batch import Batch, pad_targets
from spanwright.check.case import Case, collate, expect, mean_loss, no_dropout, scores_of
from spanwright.config import to_dict
from spanwright.head import Head, States
from spanwright.heads import name_of
from spanwright.heads.bundle import Bundle, BundleInference
from spanwright.tagger import Tagger

Losses = Mapping[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class BundleCase:
    """Heads on trial together, each under the name it has in the bundle."""

    members: Mapping[str, Case]

    @property
    def title(self) -> str:
        return f"A bundle of {', '.join(case.title for case in self.members.values())}"


def bundle_of_one_is_the_head(case: BundleCase) -> None:
    """With the same weights, a bundle of one head has its prefix, targets, loss, scores, candidates and entities."""
    for name, member in case.members.items():
        sentences = member.sentences[-20:]
        alone, bundled = member.tagger(), bundle_of({name: member})
        bundled.head.load_state_dict({f"heads.{name}.{key}": value for key, value in alone.head.state_dict().items()})
        first, second = collate(alone, sentences), collate(bundled, sentences)
        targets = {key: value for key, value in first.targets.items() if key != "key"}
        same_tensors({**named(name, targets), "key": first.targets["key"]}, second.targets, name)
        same_losses(named(name, losses_of(alone, first)), losses_of(bundled, second))
        scores, others = scores_of(alone, sentences), scores_of(bundled, sentences)
        same_tensors(scores, others, name)
        candidates = alone.head.decode(scores, first.lengths), bundled.head.decode(others, second.lengths)
        expect(candidates[0] == candidates[1], f"{name}: other candidates in the bundle")
        options = alone.head.inference, bundled.head.inference
        expect(options[0] == options[1], f"{name}: {options[1]} in the bundle, {options[0]} alone")
        chosen = {entry.name: getattr(options[0], entry.name) for entry in fields(options[0])}
        changed = bundled.with_options(**chosen)
        expect(changed.head.inference == options[0], f"{name}: {changed.head.inference} after with_options({chosen})")
        entities = alone.predict(sentences), changed.predict(sentences)
        expect(entities[0] == entities[1], f"{name}: other entities in the bundle")


def twins_stay_apart(case: BundleCase) -> None:
    """Two heads of one kind keep separate names, weights, losses and gradients."""
    for name, member in case.members.items():
        tagger = bundle_of({"left": member, "right": member})
        batch = collate(tagger, member.sentences[-20:])
        losses = tagger.head.loss(read(tagger, batch), batch.targets)  # a prefix is read by the encoder, so by both
        left = {part.removeprefix("left."): loss for part, loss in losses.items() if part.startswith("left.")}
        right = {part.removeprefix("right."): loss for part, loss in losses.items() if part.startswith("right.")}
        separate = left.keys() == right.keys() and len(losses) == 2 * len(left) > 0
        expect(separate, f"{name} twice: losses {sorted(losses)}")
        differ = any(left[part][0].item() != right[part][0].item() for part in left)
        expect(differ, f"{name} twice: equal losses, so the twins share their weights")
        mean_loss(left).backward()
        gradients = {
            key: weight.grad for key, weight in tagger.head.named_parameters() if key.startswith("heads.right.")
        }
        reached = [key for key, gradient in gradients.items() if gradient is not None and gradient.any()]
        expect(not reached, f"{name} twice: the left loss reaches {', '.join(reached)}")


def heads_read_their_own(case: BundleCase) -> None:
    """Each head of a bundle reads its own prefix states and its own targets: it says what it says alone."""
    sentences = next(iter(case.members.values())).sentences[-20:]
    tagger = bundle_of(case.members)
    batch = collate(tagger, sentences)
    states = read(tagger, batch)
    at = 0
    losses: dict[str, tuple[Tensor, Tensor]] = {}
    for name in case.members:
        bundle = tagger.with_options(output=name).head
        head = bundle.get_submodule(f"heads.{name}")
        assert isinstance(head, Head)
        vectors = head.prefix()
        end = at + (0 if vectors is None else len(vectors))
        own = replace(states, prefix=states.prefix[:, at:end])
        targets = pad_targets([head.targets(sentence) for sentence in sentences]) | {"key": batch.targets["key"]}
        with no_dropout():
            losses |= named(name, head.loss(own, targets))
        with torch.inference_mode():
            same_tensors(head(own), bundle(states), name)
        at = end
    expect(at == states.prefix.shape[1], f"{states.prefix.shape[1]} prefix states for {at} prefix vectors")
    same_losses(losses, losses_of(tagger, batch))


BUNDLE_LAWS: dict[str, Callable[[BundleCase], None]] = {
    "one": bundle_of_one_is_the_head,
    "twins": twins_stay_apart,
    "own": heads_read_their_own,
}


def bundle_of(members: Mapping[str, Case]) -> Tagger:
    """A tagger with a bundle of these heads, each with the weight 1; the first one answers."""
    heads = {name: {"name": name_of(case.head_class), **to_dict(case.config)} for name, case in members.items()}
    first = next(iter(members))
    config = Bundle.Config(heads, dict.fromkeys(heads, 1.0), BundleInference(output=first))
    return replace(members[first], head_class=Bundle, config=config).tagger()


def named(name: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{name}.{part}": value for part, value in parts.items()}


def read(tagger: Tagger, batch: Batch) -> States:
    """What the encoder says, without a way back for gradients."""
    with torch.no_grad():
        return tagger.network.states(batch)


def losses_of(tagger: Tagger, batch: Batch) -> Losses:
    with no_dropout(), torch.no_grad():
        return tagger.loss(batch)


def same_losses(alone: Losses, bundled: Losses) -> None:
    expect(alone.keys() == bundled.keys(), f"losses {sorted(bundled)} in the bundle, {sorted(alone)} alone")
    for name, (total, count) in alone.items():
        there, there_count = bundled[name]
        same = torch.equal(total, there) and torch.equal(count, there_count)
        expect(same, f"{name}: {there} / {there_count} in the bundle, {total} / {count} alone")


def same_tensors(alone: Mapping[str, Tensor], bundled: Mapping[str, Tensor], where: str) -> None:
    expect(alone.keys() == bundled.keys(), f"{where}: {sorted(bundled)} in the bundle, {sorted(alone)} alone")
    different = [name for name, tensor in alone.items() if not torch.equal(tensor, bundled[name])]
    expect(not different, f"{where}: {', '.join(different)} differ in the bundle")
