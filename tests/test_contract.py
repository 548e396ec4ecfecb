"""The laws of the head contract, for every head of the package and for bundles of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from toy_heads import Toy, ToyConfig, toy_oracle

from spanwright.check import BUNDLE_LAWS, LAWS, SLOW, check_bundle, check_head
from spanwright.head import Head
from spanwright.heads import HEADS, head_class
from spanwright.heads.bopn import BOPN, BOPNInference
from spanwright.heads.bundle import Bundle, BundleInference
from spanwright.heads.seqner import SeqNER
from spanwright.heads.spanner import SpanNER
from spanwright.types import Sentence


def seqner_oracle(head: Head, sentence: Sentence) -> dict[str, Tensor]:
    """The gold tags are certain, and a CRF's transitions are indifferent."""
    n_tags = 2 * len(head.labels) + 1
    tags = torch.from_numpy(head.targets(sentence)["tags"])
    scores = {"emissions": 30.0 * torch.nn.functional.one_hot(tags, n_tags)[None].float()}
    if head.config.tagging == "crf":
        scores |= {"transitions": torch.zeros(1, n_tags, n_tags), "start": torch.zeros(1, n_tags)}
    return scores


def spanner_oracle(head: Head, sentence: Sentence) -> dict[str, Tensor]:
    """The type of every gold span is certain, and so is None for all others."""
    scores = torch.zeros(1, len(sentence), head.config.max_width, len(head.labels) + 1)
    scores[..., 0] = 30.0
    for start, end, kind in head.targets(sentence)["spans"].tolist():
        scores[0, start, end - start - 1, 0] = 0.0
        scores[0, start, end - start - 1, kind] = 30.0
    return {"scores": scores}


def bopn_oracle(head: Head, sentence: Sentence) -> dict[str, Tensor]:
    """The gold offset label of every cell is certain, and so is "out of range" for all others."""
    assert isinstance(head, BOPN)
    n = len(sentence)
    middle = head.reach - 1 if head.reach and head.config.grid == "full" else 0
    columns = head.reach + middle if head.reach else n
    scores = torch.zeros(1, n, columns, len(head.offsets), len(head.labels))
    scores[:, :, :, 0] = 30.0
    for kind, i, j, label in head.targets(sentence)["offsets"].tolist():
        column = j - i + middle if head.reach else j
        scores[0, i, column, 0, kind] = 0.0
        scores[0, i, column, label, kind] = 30.0
    return {"scores": scores}


def bundle_oracle(head: Head, sentence: Sentence) -> Mapping[str, Tensor]:
    assert isinstance(head, Bundle)
    oracle = {SeqNER: seqner_oracle, SpanNER: spanner_oracle, BOPN: bopn_oracle}[type(head.output)]
    return oracle(head.output, sentence)


@dataclass(frozen=True)
class Trial:
    head: type[Head]
    config: Any
    oracle: Callable[[Head, Sentence], Mapping[str, Tensor]]
    nested: bool


def seqner(**settings: Any) -> Trial:
    return Trial(SeqNER, SeqNER.Config(**settings), seqner_oracle, nested=False)


def spanner(**settings: Any) -> Trial:
    return Trial(SpanNER, SpanNER.Config(**settings), spanner_oracle, nested=True)


def bopn(**settings: Any) -> Trial:
    return Trial(BOPN, BOPN.Config(**settings), bopn_oracle, nested=True)


def bundle(*names: str, output: str) -> Trial:
    heads: dict[str, dict[str, Any]] = {name: {} for name in names}
    config = Bundle.Config(heads, dict.fromkeys(names, 0.5), BundleInference(output=output))
    return Trial(Bundle, config, bundle_oracle, nested=output != "seqner")


TRIALS = {
    "seqner": seqner(),
    "seqner-strict": seqner(repair="strict"),
    "seqner-crf": seqner(tagging="crf"),
    "seqner-crf-discard": seqner(tagging="crf", repair="discard"),
    "spanner": spanner(),
    "spanner-boundary": spanner(representation="boundary"),
    "spanner-pooling": spanner(representation="pooling"),
    "bopn": bopn(),
    "bopn-full": bopn(grid="full", offsets="end", conv_layers=3),
    "bopn-band": bopn(max_width=5, inference=BOPNInference(decode="centre")),
    "bopn-mirrored-band": bopn(grid="full", max_width=5, scorer="concatenated"),
    "bopn-bare": bopn(max_offset=0, conv_layers=0, distance_size=0, type_input="embedding"),
    "bundle-seqner": bundle("seqner", "spanner", output="seqner"),
    "bundle-spanner": bundle("seqner", "spanner", output="spanner"),
    "bundle-bopn": bundle("seqner", "bopn", output="bopn"),
}
BUNDLES: dict[str, dict[str, tuple[type[Head], Any]]] = {
    "the paper's": {"seqner": (SeqNER, None), "spanner": (SpanNER, None)},
    "with prefixes": {"two": (Toy, ToyConfig(hints=2)), "none": (Toy, None), "three": (Toy, ToyConfig(hints=3))},
    "mixed": {
        "crf": (SeqNER, SeqNER.Config(tagging="crf")),
        "hinted": (Toy, ToyConfig(hints=1)),
        "span": (SpanNER, None),
    },
    "with type tokens": {"bopn": (BOPN, None), "span": (SpanNER, None), "hinted": (Toy, ToyConfig(hints=2))},
}
LAW_BY_LAW = [
    pytest.param(trial, law, marks=[pytest.mark.slow] if law in SLOW else []) for trial in TRIALS for law in LAWS
]


@pytest.mark.parametrize(("trial", "law"), LAW_BY_LAW)
def test_head(trial: str, law: str) -> None:
    held = TRIALS[trial]
    check_head(held.head, held.config, oracle=held.oracle, nested=held.nested, laws=[law])


@pytest.mark.parametrize("law", [law for law in LAWS if law not in SLOW and law != "overfit"])
def test_head_with_prefix(law: str) -> None:
    check_head(Toy, ToyConfig(hints=2), oracle=toy_oracle, nested=True, laws=[law])


@pytest.mark.parametrize("law", [law for law in LAWS if law not in SLOW and law != "overfit"])
@pytest.mark.parametrize("trial", ["seqner-strict", "seqner-crf", "spanner", "bopn"])
def test_head_with_one_label(trial: str, law: str) -> None:
    held = TRIALS[trial]
    check_head(held.head, held.config, oracle=held.oracle, labels=("A",), nested=held.nested, laws=[law])


@pytest.mark.parametrize("law", BUNDLE_LAWS)
@pytest.mark.parametrize("members", BUNDLES)
def test_bundle(members: str, law: str) -> None:
    check_bundle(BUNDLES[members], laws=[law])


def test_every_head_of_the_package_is_on_trial() -> None:
    assert {head_class(name) for name in HEADS} == {trial.head for trial in TRIALS.values()}
