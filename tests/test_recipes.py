"""Every recipe in the repository can be read, says where it comes from, and trains."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from spanwright.config import load_recipe, save_recipe
from spanwright.train import train

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes").glob("*/*.toml"))
CORPORA = ["genia", "gum", "gum_named", "uner_zh", "wnut17"]
RECIPES_OF = ["bopn", "bopn-seqner", "bopn-spanner", "bundle", "seqner", "spanner"]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def head_of(path: Path) -> str:
    """Bundles are named for what they bundle; "bundle" is the paper's."""
    return "bundle" if "-" in path.stem else path.stem


def test_each_corpus_has_each_recipe() -> None:
    assert {shown(path) for path in RECIPES} == {
        f"recipes/{corpus}/{name}.toml" for corpus in CORPORA for name in RECIPES_OF
    }


@pytest.mark.parametrize("path", RECIPES, ids=shown)
def test_a_recipe_is_what_its_place_says(path: Path, tmp_path: Path) -> None:
    corpus, name = path.parent.name, path.stem
    recipe = load_recipe(path)
    assert recipe.data.train == corpus
    assert recipe.data.dev == recipe.data.test == ""  # those of the corpus
    assert recipe.head_name == head_of(path)
    comment = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert f"#   spanwright train {shown(path)} --output models/{corpus}-{name}" in comment
    assert any(re.search(r"Paper: .*Table \d", line) for line in comment)
    resolved = recipe.resolved()
    save_recipe(resolved, tmp_path / "resolved.toml")
    assert load_recipe(tmp_path / "resolved.toml") == resolved


@pytest.mark.parametrize("path", [path for path in RECIPES if path.stem == "bundle"], ids=shown)
def test_bundles_are_the_papers(path: Path) -> None:
    config = load_recipe(path).head_config()
    assert config.weights == {"seqner": 0.1, "spanner": 0.9}
    assert set(config.heads) == {"seqner", "spanner"}
    assert config.inference.output == "spanner"


@pytest.mark.parametrize("path", [path for path in RECIPES if "-" in path.stem], ids=shown)
def test_a_bundle_holds_what_its_name_says(path: Path) -> None:
    config = load_recipe(path).head_config()
    assert list(config.heads) == path.stem.split("-")
    assert config.inference.output == "bopn"
    assert load_recipe(path).encoder == load_recipe(path.with_name("bopn.toml")).encoder
    assert config.heads["bopn"] == {"name": "bopn", **load_recipe(path.with_name("bopn.toml")).resolved().head_table}


@pytest.mark.parametrize("path", RECIPES, ids=shown)
def test_a_recipe_builds_and_trains_a_step(path: Path, tmp_path: Path, data: Path) -> None:
    corpus = data / f"{path.parent.name}.jsonl"
    overrides = [f"data.train={corpus}", "encoder.name=tiny", "train.epochs=1", "train.min_updates=1"]
    train(load_recipe(path, overrides), tmp_path / "model", quiet=True)
    saved = json.loads((tmp_path / "model" / "report.json").read_text(encoding="utf-8"))
    assert saved["epochs"] == 1
    assert (tmp_path / "model" / "model.safetensors").is_file()
    assert load_recipe(tmp_path / "model" / "recipe.toml").head_name == head_of(path)
