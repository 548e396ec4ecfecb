"""Bundle: any heads trained together over one encoder; one of them answers. A bundle is a head.

Ji, Yang, Li, Yu, Ma, Liu: *Win-Win Cooperation: Bundling Sequence and Span Models for Named Entity Recognition*,
section 3.1.4. The default is the paper's BL-NER: SeqNER and SpanNER; output "seqner" makes it BL-SeqNER, "spanner"
BL-SpanNER. Both are outputs of one training.

Notation
    L_seqner, L_spanner    the losses of `heads`
    alpha, 1 - alpha       config.weights, {"seqner": 0.1, "spanner": 0.9} in the paper

Deviations
    - Any number of heads of any kind, with weights that need not add up to 1.
    - Each loss is the mean over its own instances (words, spans), weighted and then added, as in Eq. (19). The
      addition is the trainer's, which alone knows the counts of all processes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spanwright.config import BadSetting, check_choices, from_dict, to_dict
from spanwright.head import Head, Inference, Overlap, States
from spanwright.heads import build_head, head_class
from spanwright.types import Entity, Labels, Sentence, SpanwrightError


@dataclass(frozen=True)
class BundleInference:
    """Which head answers. None leaves `threshold` and `overlap` to that head."""

    output: str = "spanner"
    threshold: float | None = None
    overlap: Overlap | None = None

    def __post_init__(self) -> None:
        check_choices(self)
        if self.threshold is not None:
            Inference(threshold=self.threshold)  # its range is checked there


class Bundle(Head):
    """Each child sees the words, its own prefix and its own targets; only the output child runs at inference."""

    @dataclass(frozen=True)
    class Config:
        # For each child, under a name of your choice, the table that a recipe of its own would have: `name` is
        # the head (left out: the child's name), the rest its settings.
        heads: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"seqner": {}, "spanner": {}})
        weights: Mapping[str, float] = field(default_factory=lambda: {"seqner": 0.1, "spanner": 0.9})
        inference: BundleInference = field(default_factory=BundleInference)

        def __post_init__(self) -> None:
            check_names(self)
            resolved = {name: spec_of(head, child) for name, (head, child) in children_of(self).items()}
            check_output(self)
            check_weights(self)
            object.__setattr__(self, "heads", resolved)  # every setting written out

    def __init__(self, config: Any, labels: Labels, width: int, input_width: int) -> None:
        super().__init__(config, labels, width, input_width)
        built = {
            name: build_head(head, child, labels, width, input_width)
            for name, (head, child) in children_of(config).items()
        }
        self.heads = nn.ModuleDict(built)
        self.prefixes: dict[str, slice] = {}
        at = 0
        for name, child in built.items():
            vectors = child.prefix()
            size = 0 if vectors is None else len(vectors)
            self.prefixes[name] = slice(at, at + size)
            at += size

    @classmethod
    def fit(cls, config: Any, sentences: Sequence[Sentence]) -> Any:
        fitted = {
            name: spec_of(head, head_class(head).fit(child, sentences))
            for name, (head, child) in children_of(config).items()
        }
        return replace(config, heads=fitted)

    @property
    def inference(self) -> Inference:
        """The output child's, with what the bundle overrides."""
        chosen = self.config.inference
        options = {name: getattr(chosen, name) for name in ("threshold", "overlap")}
        return replace(self.output.inference, **{name: value for name, value in options.items() if value is not None})

    @property
    def output(self) -> Head:
        """The child that answers."""
        return self.child(self.config.inference.output)

    def set_inference(self, **options: Any) -> None:
        """The bundle's own options; any other is the output child's, of which this bundle then has a copy."""
        own = {entry.name for entry in fields(BundleInference)}
        super().set_inference(**{name: value for name, value in options.items() if name in own})
        rest = {name: value for name, value in options.items() if name not in own}
        if not rest:
            return
        output, child = self.config.inference.output, copy.copy(self.output)
        child.set_inference(**rest)
        specs = dict(self.config.heads) | {output: spec_of(self.config.heads[output]["name"], child.config)}
        self.config = replace(self.config, heads=specs)
        self._modules = dict(self._modules, heads=nn.ModuleDict({**self.heads, output: child}))

    def members(self) -> Mapping[str, Head]:
        return {name: self.child(name) for name in self.heads}

    @property
    def reach(self) -> int | None:
        return self.output.reach

    def child(self, name: str) -> Head:
        child = self.heads[name]
        assert isinstance(child, Head)
        return child

    def prefix(self) -> Tensor | None:
        """The prefixes of the children, one after the other."""
        vectors = [vectors for name in self.heads if (vectors := self.child(name).prefix()) is not None]
        return torch.cat(vectors) if vectors else None

    def targets(self, sentence: Sentence) -> dict[str, np.ndarray]:
        """The arrays of each child, as "child.array"."""
        return {
            f"{name}.{array}": value
            for name in self.heads
            for array, value in self.child(name).targets(sentence).items()
        }

    def loss(self, states: States, targets: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        losses: dict[str, tuple[Tensor, Tensor]] = {}
        for name in self.heads:
            own = {key.removeprefix(f"{name}."): value for key, value in targets.items() if key.startswith(f"{name}.")}
            if "key" in targets:
                own["key"] = targets["key"]
            for part, (total, count) in self.child(name).loss(self._seen_by(name, states), own).items():
                losses[f"{name}.{part}"] = (self.config.weights[name] * total, count)  # Eq. (19)
        return losses

    def forward(self, states: States) -> dict[str, Tensor]:
        """The scores of the output child."""
        scores: dict[str, Tensor] = self.output(self._seen_by(self.config.inference.output, states))
        return scores

    def decode(self, scores: Mapping[str, Tensor], lengths: Sequence[int]) -> list[frozenset[Entity]]:
        return self.output.decode(scores, lengths)

    def representable(self, sentence: Sentence) -> frozenset[Entity]:
        return self.output.representable(sentence)

    def _seen_by(self, name: str, states: States) -> States:
        return replace(states, prefix=states.prefix[:, self.prefixes[name]])


def children_of(config: Any) -> dict[str, tuple[str, Any]]:
    """For each child the name of its head and its config."""
    children: dict[str, tuple[str, Any]] = {}
    for name, spec in config.heads.items():
        head = spec.get("name", name)
        settings = {key: value for key, value in spec.items() if key != "name"}
        try:
            children[name] = (head, from_dict(head_class(head).Config, settings, f"heads.{name}"))
        except SpanwrightError as error:
            message = str(error)
            raise BadSetting(message if message.startswith("heads.") else f"heads.{name}: {message}") from error
    return children


def spec_of(head: str, config: Any) -> dict[str, Any]:
    """The table that describes a child."""
    return {"name": head, **to_dict(config)}


def check_names(config: Any) -> None:
    """There are heads, and their names can name modules and arrays."""
    if not config.heads:
        raise BadSetting("heads is empty: expected at least one head, for example heads.spanner.")
    reserved = nn.ModuleDict()
    for name in config.heads:
        if not name.isidentifier() or hasattr(reserved, name):
            raise BadSetting(f'heads."{name}": expected letters, digits and underscores, and no word that torch uses.')


def check_output(config: Any) -> None:
    if config.inference.output not in config.heads:
        output = config.inference.output
        raise BadSetting(f"inference.output = {output!r}: expected a head of the bundle, {', '.join(config.heads)}.")


def check_weights(config: Any) -> None:
    """Each head has a weight, none is negative, one at least is positive."""
    for name, weight in config.weights.items():
        if name not in config.heads:
            raise BadSetting(f"weights.{name}: expected a head of the bundle, {', '.join(config.heads)}.")
        if not 0 <= weight < float("inf"):
            raise BadSetting(f"weights.{name} = {weight}: expected 0 or more.")
    for name in config.heads:
        if name not in config.weights:
            raise BadSetting(f"weights has nothing for the head {name!r}: expected a number, for example {name} = 1.0.")
    if not any(config.weights.values()):
        raise BadSetting("weights are all 0: expected one at least above 0, or nothing is learnt.")
