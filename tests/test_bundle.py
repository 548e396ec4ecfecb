"""Bundles: what each child sees, what is added up, who answers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from toy_heads import ToyInference

from spanwright import heads
from spanwright.config import from_dict, to_dict
from spanwright.encoder import tiny_encoder
from spanwright.head import States
from spanwright.heads.bundle import Bundle, BundleInference
from spanwright.heads.seqner import SeqNER
from spanwright.heads.spanner import SpanInference, SpanNER
from spanwright.tagger import Tagger
from spanwright.types import Entity, Labels, Sentence, SpanwrightError

LABELS = Labels(["X", "Y"])
WIDTH = 6
GOLD = Sentence(("w",) * 7, frozenset({Entity(0, 4, "X"), Entity(1, 2, "Y"), Entity(5, 7, "Y")}))


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head with vectors before the words, under the name "toy"."""
    monkeypatch.setitem(heads.HEADS, "toy", "toy_heads:Toy")


def config_of(output: str, weights: dict[str, float] | None = None, **children: dict[str, Any]) -> Bundle.Config:
    weights = weights or dict.fromkeys(children, 1.0)
    return Bundle.Config(heads=children, weights=weights, inference=BundleInference(output=output))


def build(config: Bundle.Config) -> Bundle:
    torch.manual_seed(0)
    return Bundle(config, LABELS, WIDTH, WIDTH)


def paper(output: str = "spanner", **weights: float) -> Bundle:
    children = {"seqner": {"dropout": 0.0}, "spanner": {"max_width": 4, "dropout": 0.0}}
    return build(config_of(output, weights, **children))


def states(n_prefix: int = 0) -> States:
    torch.manual_seed(1)
    mask = torch.tensor([[True] * 7, [True] * 3 + [False] * 4])
    return States(torch.randn(2, 7, WIDTH), mask, torch.randn(2, n_prefix, WIDTH), torch.randn(2, WIDTH))


def batch_of(head: Any) -> dict[str, torch.Tensor]:
    """The targets of `GOLD` beside a sentence of three words without entities."""
    batch = {"key": torch.tensor([11, -12])}
    for name, array in head.targets(GOLD).items():
        empty = torch.full(array.shape, 0 if array.dtype.kind == "f" else -1, dtype=torch.from_numpy(array).dtype)
        if name.endswith("tags"):
            empty[:3] = 0
        batch[name] = torch.stack([torch.from_numpy(array), empty])
    return batch


def test_the_default_is_the_paper() -> None:
    config = Bundle.Config()
    assert {name: spec["name"] for name, spec in config.heads.items()} == {"seqner": "seqner", "spanner": "spanner"}
    assert config.weights == {"seqner": 0.1, "spanner": 0.9}
    assert config.inference.output == "spanner"


def test_losses_are_the_childrens_weighted() -> None:
    bundle, batch = paper(seqner=0.25, spanner=3.0), states()
    targets = batch_of(bundle)
    losses = bundle.loss(batch, targets)
    assert set(losses) == {"seqner.seqner", "spanner.spanner"}
    for name, array, weight in (("seqner", "tags", 0.25), ("spanner", "spans", 3.0)):
        own = {array: targets[f"{name}.{array}"], "key": targets["key"]}
        total, count = bundle.child(name).loss(batch, own)[name]
        weighted, same_count = losses[f"{name}.{name}"]
        assert weighted.item() == pytest.approx(weight * total.item())
        assert same_count == count


def test_targets_carry_the_name_of_their_child() -> None:
    targets = paper().targets(GOLD)
    assert set(targets) == {"seqner.tags", "spanner.spans"}
    assert targets["seqner.tags"].tolist() == [1, 2, 2, 2, 0, 3, 4]
    assert targets["spanner.spans"].tolist() == [[0, 4, 1], [1, 2, 2], [5, 7, 2]]


@pytest.mark.parametrize("output", ["seqner", "spanner"])
def test_the_output_child_alone_answers(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, batch = paper(output).eval(), states()
    other = next(name for name in bundle.heads if name != output)
    monkeypatch.setattr(bundle.child(other), "forward", None)  # would fail if it were called
    child = bundle.child(output)
    scores, expected = bundle(batch), child(batch)
    assert set(scores) == set(expected)
    assert all(torch.equal(scores[name], expected[name]) for name in scores)
    assert bundle.decode(scores, [7, 3]) == child.decode(expected, [7, 3])
    assert bundle.representable(GOLD) == child.representable(GOLD)
    assert bundle.inference == child.inference


def test_a_bundle_of_one_is_the_head() -> None:
    bundle = build(config_of("only", only={"name": "spanner", "max_width": 4}))
    torch.manual_seed(0)
    head = SpanNER(SpanNER.Config(max_width=4), LABELS, WIDTH, WIDTH)
    targets = batch_of(head)
    renamed = {name if name == "key" else f"only.{name}": value for name, value in targets.items()}
    torch.manual_seed(2)
    total, count = head.loss(states(), targets)["spanner"]
    torch.manual_seed(2)
    assert bundle.loss(states(), renamed) == {"only.spanner": (total, count)}
    assert torch.equal(bundle.eval()(states())["scores"], head.eval()(states())["scores"])


def test_twins_keep_their_own_losses_and_weights() -> None:
    twin = {"name": "spanner", "max_width": 4, "dropout": 0.0}
    bundle = build(config_of("b", {"a": 1.0, "b": 0.0}, a=twin, b={**twin, "max_width": 2}))
    losses = bundle.loss(states(), batch_of(bundle))
    assert set(losses) == {"a.spanner", "b.spanner"}
    assert losses["a.spanner"][0] > 0
    assert losses["b.spanner"][0] == 0
    assert losses["a.spanner"][1] > losses["b.spanner"][1]


def test_each_child_sees_its_own_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = build(config_of("c", a={"name": "toy", "hints": 2}, b={"name": "seqner"}, c={"name": "toy", "hints": 3}))
    vectors, first, last = bundle.prefix(), bundle.child("a").prefix(), bundle.child("c").prefix()
    assert vectors is not None and first is not None and last is not None
    assert torch.equal(vectors, torch.cat([first, last]))
    batch = states(n_prefix=5)
    seen: dict[str, torch.Tensor] = {}
    for name in bundle.heads:
        monkeypatch.setattr(
            bundle.child(name), "loss", lambda given, _, name=name: seen.update({name: given.prefix}) or {}
        )
    bundle.loss(batch, {})
    assert torch.equal(seen["a"], batch.prefix[:, :2])
    assert seen["b"].shape == (2, 0, WIDTH)
    assert torch.equal(seen["c"], batch.prefix[:, 2:])
    alone = States(batch.words, batch.mask, batch.prefix[:, 2:], batch.whole)
    expected = bundle.child("c")(alone)
    assert all(torch.equal(value, expected[name]) for name, value in bundle(batch).items())
    assert paper().prefix() is None


def test_a_bundle_within_a_bundle() -> None:
    inner = to_dict(config_of("spanner", {"seqner": 0.5, "spanner": 1.0}, seqner={}, spanner={"max_width": 3}))
    bundle = build(config_of("pair", {"pair": 2.0, "toy": 1.0}, pair={"name": "bundle", **inner}, toy={"hints": 1}))
    assert set(bundle.targets(GOLD)) == {"pair.seqner.tags", "pair.spanner.spans", "toy.gold"}
    losses = bundle.loss(states(n_prefix=1), batch_of(bundle))
    assert {name for name in losses if name.startswith("pair")} == {"pair.seqner.seqner", "pair.spanner.spanner"}
    assert bundle.inference == SpanInference(0.5, "nested")


def test_inference_is_the_output_childs_unless_overridden() -> None:
    bundle = paper()
    assert bundle.inference == SpanInference(0.5, "nested")
    bundle.set_inference(overlap="flat")
    assert bundle.inference == SpanInference(0.5, "flat")
    bundle.set_inference(output="seqner", threshold=0.3, overlap=None)
    assert (bundle.inference.threshold, bundle.inference.overlap) == (0.3, "flat")
    assert isinstance(bundle.output, SeqNER)
    bundle.set_inference(threshold=None)
    assert bundle.inference.threshold == 0.0
    with pytest.raises(SpanwrightError, match=r"output = .*spaner.*seqner, spanner"):
        bundle.set_inference(output="spaner")
    with pytest.raises(TypeError):
        bundle.set_inference(steps=3)
    assert isinstance(bundle.output, SeqNER)


def test_an_option_that_only_the_output_child_has_is_that_childs() -> None:
    tagger = Tagger(tiny_encoder(), Bundle(config_of("toy", toy={}, seqner={}), LABELS, 32, 32))
    few = tagger.with_options(floor=0.7, threshold=0.6)
    assert few.head.config.heads["toy"]["inference"] == {"threshold": 0.5, "overlap": "nested", "floor": 0.7}
    assert few.head.inference == ToyInference(threshold=0.6, floor=0.7)
    assert tagger.head.inference == ToyInference() and tagger.head.config.heads["toy"]["inference"]["floor"] == 0.01
    assert all(a is b for a, b in zip(few.head.parameters(), tagger.head.parameters(), strict=True))
    candidates, all_of_them = (set(next(iter(each.candidates([GOLD])))) for each in (few, tagger))
    assert candidates == {entity for entity in all_of_them if entity.score > 0.7} != all_of_them
    with pytest.raises(SpanwrightError, match="'floor' cannot be changed"):
        tagger.with_options(output="seqner").with_options(floor=0.1)


def test_a_new_output_decides_which_options_there_are() -> None:
    tagger = Tagger(tiny_encoder(), Bundle(config_of("toy", toy={}, seqner={}), LABELS, 32, 32))
    with pytest.raises(SpanwrightError, match="'floor' cannot be changed"):
        tagger.with_options(output="seqner", floor=0.1)
    tags = tagger.with_options(output="seqner")
    assert tags.with_options(floor=0.1, output="toy").head.inference == ToyInference(floor=0.1)


def test_fit_is_the_childrens() -> None:
    fitted = Bundle.fit(Bundle.Config(), [GOLD])
    assert fitted.heads["spanner"]["max_width"] == 4
    assert fitted.heads["seqner"]["name"] == "seqner"
    assert build(fitted).child("spanner").config.max_width == 4


def test_config_survives_a_table_with_every_setting_written_out() -> None:
    table = {
        "heads": {"tags": {"name": "seqner", "tagging": "crf"}, "spanner": {"inference": {"overlap": "flat"}}},
        "weights": {"tags": 1, "spanner": 2},
        "inference": {"output": "tags", "threshold": 0.25},
    }
    config = from_dict(Bundle.Config, table)
    assert config.heads["spanner"]["negatives"] == 100
    assert from_dict(Bundle.Config, to_dict(config)) == config
    inference = build(Bundle.fit(config, [GOLD])).inference
    assert (inference.threshold, inference.overlap) == (0.25, "flat")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"heads": {}, "weights": {}}, r"head\.heads is empty: expected"),
        ({"inference": {"output": "spaner"}}, r"head\.inference\.output = 'spaner': expected .*seqner, spanner"),
        ({"heads": {"seqnr": {}}}, r"head\.heads\.seqnr: there is no head 'seqnr'"),
        ({"weights": {"seqner": -1.0, "spannr": 2.0}}, r"head\.weights\.seqner = -1\.0"),
        ({"weights": {"spannr": 2.0}}, r"head\.weights\.spannr: expected .*seqner, spanner"),
        ({"weights": {"seqner": 1.0}}, r"head\.weights has nothing for the head 'spanner': expected"),
        ({"weights": {"seqner": 1.0, "spanner": -0.5}}, r"head\.weights\.spanner = -0\.5: expected 0 or more"),
        ({"weights": {"seqner": 1.0, "spanner": float("nan")}}, r"head\.weights\.spanner = nan"),
        ({"weights": {"seqner": 0.0, "spanner": 0.0}}, r"head\.weights are all 0: expected"),
        ({"weights": {"seqner": 1.0, "spanner": 1.0, "toy": 1.0}}, r"head\.weights\.toy: expected .*seqner, spanner"),
        ({"heads": {"seqner": {}, "spanner": {"max_widht": 3}}}, r"head\.heads\.spanner\.max_widht.*max_width"),
        ({"heads": {"seqner": {"dropout": 2.0}, "spanner": {}}}, r"head\.heads\.seqner\.dropout = 2\.0: expected"),
        ({"heads": {"seqner": {"name": "seqnr"}, "spanner": {}}}, r"head\.heads\.seqner: there is no head 'seqnr'"),
        ({"heads": {"a.b": {"name": "seqner"}}}, r'head\.heads\."a\.b": expected letters'),
        ({"heads": {"items": {"name": "seqner"}}}, r'head\.heads\."items": expected'),
        ({"inference": {"overlap": "both"}}, r"head\.inference\.overlap"),
        ({"inference": {"threshold": 5.0}}, r"head\.inference\.threshold = 5\.0: expected"),
        ({"inference": {"threshold": -0.1}}, r"head\.inference\.threshold = -0\.1: expected"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(table: dict, message: str) -> None:
    with pytest.raises(SpanwrightError, match=message):
        from_dict(Bundle.Config, table)
