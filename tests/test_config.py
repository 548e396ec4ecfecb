"""Recipes: what is accepted, what is refused and with which words, and that what is saved is what was meant."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanwright.config import (
    DataConfig,
    EncoderConfig,
    Recipe,
    RunConfig,
    TrainConfig,
    from_dict,
    load_recipe,
    parse_setting,
    recipe_of,
    recipe_to_dict,
    save_recipe,
    to_dict,
)  # fmt: skip
from spanwright.types import SpanwrightError


@dataclass(frozen=True)
class Inner:
    rule: Literal["a", "b"] = "a"
    size: int = 1


@dataclass(frozen=True)
class Outer:
    needed: str
    rate: float = 0.5
    on: bool = False
    inner: Inner = field(default_factory=Inner)
    sizes: tuple[int, ...] = ()
    pair: tuple[int, str] = (1, "x")
    children: Mapping[str, Inner] = field(default_factory=dict)
    anything: Mapping[str, Any] = field(default_factory=dict)
    maybe: int | None = None
    level: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        if self.needed == "forbidden":
            raise ValueError("needed may not be forbidden")


def refused(mapping: Mapping[str, Any], kind: type = Outer, path: str = "head") -> str:
    with pytest.raises(SpanwrightError) as caught:
        from_dict(kind, mapping, path)
    return str(caught.value)


def test_every_kind_of_value() -> None:
    table = {
        "needed": "yes", "rate": 1, "on": True, "inner": {"rule": "b"}, "sizes": [1, 2], "pair": [3, "y"],
        "children": {"one": {"size": 4}}, "anything": {"free": [1, {"deep": "x"}]}, "maybe": 7, "level": 3,
    }  # fmt: skip
    expected = Outer(
        "yes", 1.0, True, Inner("b"), (1, 2), (3, "y"), {"one": Inner(size=4)}, {"free": [1, {"deep": "x"}]}, 7, 3
    )
    built = from_dict(Outer, table)
    assert built == expected
    assert type(built.rate) is float  # a whole number in the file, a number in the program
    assert from_dict(Outer, to_dict(expected)) == expected


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"needed": "x", "rates": 1}, ["head.rates", "Did you mean head.rate?"]),
        ({"needed": "x", "zzz": 1}, ["head.zzz", "Known here: needed, rate"]),
        ({"needed": "x", "inner": {"sise": 1}}, ["head.inner.sise", "head.inner.size"]),
        ({"needed": "x", "inner": {"rule": "c"}}, ["head.inner.rule", '"c"', 'one of "a", "b"']),
        ({"needed": "x", "inner": 3}, ["head.inner = 3", "a table"]),
        ({"needed": "x", "rate": "0.5"}, ["head.rate", '"0.5"', "a number"]),
        ({"needed": "x", "rate": True}, ["head.rate", "true", "a number"]),
        ({"needed": "x", "on": 1}, ["head.on", "true or false"]),
        ({"needed": 5}, ["head.needed", "5", "text"]),
        ({"needed": "x", "sizes": [1, 2.5]}, ["head.sizes[1]", "2.5", "a whole number"]),
        ({"needed": "x", "sizes": 1}, ["head.sizes", "a list"]),
        ({"needed": "x", "pair": [1]}, ["head.pair", "2 items"]),
        ({"needed": "x", "children": {"one": {"size": "big"}}}, ["head.children.one.size", '"big"']),
        ({"needed": "x", "maybe": "seven"}, ["head.maybe", "a whole number"]),
        ({"needed": "x", "level": "autp"}, ["head.level", 'a whole number or one of "auto"']),
        ({}, ["head.needed is missing", "text"]),
        ({"needed": "forbidden"}, ["[head]", "may not be forbidden"]),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(table: dict[str, Any], told: list[str]) -> None:
    message = refused(table)
    assert all(part in message for part in told), message


@pytest.mark.parametrize(
    ("kind", "table", "told"),
    [
        (TrainConfig, {"epochs": 0}, "x.epochs = 0: expected at least 1"),
        (TrainConfig, {"lr_head": 0.0}, "x.lr_head = 0.0: expected more than 0"),
        (TrainConfig, {"lr_encoder": float("nan")}, "x.lr_encoder = nan"),
        (TrainConfig, {"lr_encoder": float("inf")}, "x.lr_encoder = inf"),
        (TrainConfig, {"warmup": 1.0}, "x.warmup = 1.0: expected less than 1"),
        (TrainConfig, {"precision": "bf61"}, 'Did you mean "bf16"?'),
        (TrainConfig, {"trackers": ["wandb"]}, "x.trackers[0]"),
        (DataConfig, {"dev_fraction": 1.0}, "x.dev_fraction = 1.0: expected less than 1"),
        (DataConfig, {"dev_fraction": 0.0}, "x.dev_fraction = 0.0: expected more than 0"),
        (DataConfig, {"limit": -1}, "x.limit = -1: expected at least 0"),
        (DataConfig, {"words": "word"}, 'Did you mean "words"?'),
        (EncoderConfig, {"lstm": 31}, "x.lstm = 31: expected an even number"),
        (EncoderConfig, {"name": ""}, "x.name"),
        (EncoderConfig, {"dropout": 1.0}, "x.dropout = 1.0: expected less than 1"),
        (RunConfig, {"device": "gpu"}, 'x.device = "gpu": expected "auto", "cpu", "cuda"'),
        (RunConfig, {"seed": -1}, "x.seed = -1: expected at least 0"),
    ],
)
def test_ranges(kind: type, table: dict[str, Any], told: str) -> None:
    assert told in refused(table, kind, "x")


def test_ranges_hold_in_python_too() -> None:
    with pytest.raises(SpanwrightError, match="epochs = 0"):
        TrainConfig(epochs=0)
    with pytest.raises(SpanwrightError, match="pooling"):
        EncoderConfig(pooling="avg")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------ recipes


def written(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


MINIMAL = '[data]\ntrain = "genia"\n\n[head]\nname = "spanner"\nmax_width = 4\n'


def test_a_short_recipe_takes_every_default(tmp_path: Path) -> None:
    recipe = load_recipe(written(tmp_path, MINIMAL))
    assert recipe == Recipe(data=DataConfig(train="genia"), head_name="spanner", head_table={"max_width": 4})


def test_overrides(tmp_path: Path) -> None:
    path = written(tmp_path, MINIMAL)
    recipe = load_recipe(
        path,
        ["head.max_width=8", "data.train=my.conll", "run.seed=2", "train.lr_head=1e-4", "data.skip_bad=true",
         'train.trackers=["tensorboard"]', "data.dev=", "head.inference.threshold=0.4", "data.tag_column=-2",
         'data.test="a b.jsonl"'],
    )  # fmt: skip
    assert recipe.data == DataConfig(train="my.conll", skip_bad=True, tag_column=-2, test="a b.jsonl")
    assert recipe.head_table == {"max_width": 8, "inference": {"threshold": 0.4}}
    assert (recipe.run.seed, recipe.train.lr_head, recipe.train.trackers) == (2, 1e-4, ("tensorboard",))


@pytest.mark.parametrize("text", ["1234567", "12e5", "2024-01-01", "true", "my=file.conll", "日本.conll", "a#b", '"'])
def test_what_a_text_setting_is_given_stays_text(tmp_path: Path, text: str) -> None:
    recipe = load_recipe(written(tmp_path, MINIMAL), [f"encoder.revision={text}", f"data.dev={text}"])
    assert recipe.encoder.revision == text and recipe.data.dev == text


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("train.epoch=3", "Did you mean train.epochs?"),
        ("trian.epochs=3", "Did you mean train?"),
        ("epochs=3", "names no table"),
        ("train.epochs", "expected table.key=value"),
        ("train.=3", "expected table.key=value"),
        ("=3", "expected table.key=value"),
        ("train.epochs=three", 'train.epochs = "three": expected a whole number'),
        ("train.epochs=2.5", "train.epochs = 2.5: expected a whole number"),
        ("train.epochs=3\nlr_head=1", "train.epochs"),
        ("head.max_width.deep=3", "head.max_width = 4 is no table"),
        ("train.epochs.deep=3", "train.epochs"),
        ("head.name=7", "head.name is 7"),
    ],
)
def test_bad_overrides(tmp_path: Path, override: str, told: str) -> None:
    with pytest.raises(SpanwrightError) as caught:
        load_recipe(written(tmp_path, MINIMAL), [override])
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[head]\nname = spanner\n", "line 2"),
        ('[haed]\nname = "spanner"\n', "Did you mean head?"),
        ("[data]\n", "head.name is missing"),
        ('head = "spanner"\n', "[head]"),
        ('[head]\nname = "spanner"\n[train]\nepoch = 3\n', "train.epoch"),
    ],
)
def test_bad_recipes_are_told_with_the_file(tmp_path: Path, text: str, told: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SpanwrightError) as caught:
        load_recipe(path)
    assert told in str(caught.value) and str(path) in str(caught.value)


def test_no_recipe_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(SpanwrightError, match="no recipe"):
        load_recipe(tmp_path / "absent.toml")
    with pytest.raises(SpanwrightError, match="cannot be read"):
        load_recipe(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'[head]\nname = "\xe9"\n')
    with pytest.raises(SpanwrightError, match="not UTF-8"):
        load_recipe(tmp_path / "latin.toml")


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())
    assert load_recipe(path).data.train == "genia"


names = st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)
keys = st.text(st.sampled_from("abcxyz_"), min_size=1, max_size=6).filter(lambda key: key != "name")
numbers = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | numbers | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
recipes = st.builds(
    Recipe,
    data=st.builds(
        DataConfig, train=names, dev=names, test=names, word_column=st.integers(-9, 9), skip_bad=st.booleans(),
        max_words=st.integers(2, 9999), dev_fraction=st.floats(0, 1, exclude_min=True, exclude_max=True),
        words=st.sampled_from(["words", "characters", "whitespace", "custom"]),
    ),
    encoder=st.builds(EncoderConfig, name=names.filter(bool), lstm=st.integers(0, 99).map(lambda half: 2 * half)),
    head_name=names.filter(bool),
    head_table=st.dictionaries(keys, values, max_size=4),
    train=st.builds(
        TrainConfig, lr_head=st.floats(1e-12, 1e6), trackers=st.sampled_from([(), ("tensorboard",)]), start_from=names
    ),
    run=st.builds(RunConfig, seed=st.integers(0, 2**32 - 1), device=st.sampled_from(["auto", "cuda:1", "cpu"])),
)  # fmt: skip


@given(recipe=recipes)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_saved_reloads_equal(tmp_path: Path, recipe: Recipe) -> None:
    path = tmp_path / "saved.toml"
    save_recipe(recipe, path)
    assert load_recipe(path) == recipe
    assert recipe_of(recipe_to_dict(recipe)) == recipe


@given(kind=st.sampled_from([DataConfig, EncoderConfig, TrainConfig, RunConfig]), data=st.data())
def test_no_value_of_a_wrong_kind_passes(kind: type, data: st.DataObject) -> None:
    """Whatever is put into a field is refused with the field's path, or kept as it is."""
    name = data.draw(st.sampled_from([entry.name for entry in fields(kind)]))
    value = data.draw(values)
    try:
        built: Any = from_dict(kind, {name: value}, "table")
    except SpanwrightError as error:
        assert f"table.{name}" in str(error)
    else:
        kept = getattr(built, name)
        assert kept == (tuple(value) if isinstance(value, list) else value)
        assert isinstance(kept, bool) == isinstance(value, bool)


def test_a_saved_recipe_is_whole(tmp_path: Path) -> None:
    """A later default does not change what an old file means: every setting is written out."""
    recipe = load_recipe(written(tmp_path, MINIMAL)).resolved()
    save_recipe(recipe, tmp_path / "saved.toml")
    tables = recipe_to_dict(load_recipe(tmp_path / "saved.toml"))
    for name, kind in {"data": DataConfig, "encoder": EncoderConfig, "train": TrainConfig, "run": RunConfig}.items():
        assert set(tables[name]) == {entry.name for entry in fields(kind)}
    assert tables["head"]["name"] == "spanner" and tables["head"]["max_width"] == 4
    assert set(tables["head"]) - {"name"} == {entry.name for entry in fields(type(recipe.head_config()))}


def test_the_head_checks_its_own_table() -> None:
    recipe = Recipe(head_name="spanner", head_table={"max_widht": 4})
    with pytest.raises(SpanwrightError, match=r"Did you mean head\.max_width"):
        recipe.head_config()
    with pytest.raises(SpanwrightError, match="spaner"):
        replace(recipe, head_name="spaner").head_config()


def test_settings_outside_a_recipe() -> None:
    assert parse_setting("threshold=0.4") == ("threshold", 0.4)
    assert parse_setting("output=seqner") == ("output", "seqner")
    with pytest.raises(SpanwrightError, match="key=value"):
        parse_setting("threshold")


def test_reading_a_recipe_does_not_load_torch(tmp_path: Path) -> None:
    path = written(tmp_path, MINIMAL)
    code = (
        f"import sys; from spanwright import config; config.load_recipe({str(path)!r}); print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
