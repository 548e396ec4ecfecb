"""Every recipe in the repository can be read, says where it comes from, and trains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spanwright.config import load_recipe, save_recipe
from spanwright.train import train

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes").glob("*/*.toml"))
CORPORA = ["genia", "gum", "gum_named", "uner_zh", "wnut17"]
HEADS = ["bundle", "seqner", "spanner"]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_each_corpus_has_each_head() -> None:
    assert {shown(path) for path in RECIPES} == {
        f"recipes/{corpus}/{head}.toml" for corpus in CORPORA for head in HEADS
    }


@pytest.mark.parametrize("path", RECIPES, ids=shown)
def test_a_recipe_is_what_its_place_says(path: Path, tmp_path: Path) -> None:
    corpus, head = path.parent.name, path.stem
    recipe = load_recipe(path)
    assert recipe.data.train == corpus
    assert recipe.data.dev == recipe.data.test == ""  # those of the corpus
    assert recipe.head_name == head
    comment = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert f"#   spanwright train {shown(path)} --output models/{corpus}-{head}" in comment
    assert any("Table 3" in line for line in comment)
    resolved = recipe.resolved()
    save_recipe(resolved, tmp_path / "resolved.toml")
    assert load_recipe(tmp_path / "resolved.toml") == resolved


@pytest.mark.parametrize("path", [path for path in RECIPES if path.stem == "bundle"], ids=shown)
def test_bundles_are_the_papers(path: Path) -> None:
    config = load_recipe(path).head_config()
    assert config.weights == {"seqner": 0.1, "spanner": 0.9}
    assert set(config.heads) == {"seqner", "spanner"}
    assert config.inference.output == "spanner"


@pytest.mark.parametrize("path", RECIPES, ids=shown)
def test_a_recipe_builds_and_trains_a_step(path: Path, tmp_path: Path, data: Path) -> None:
    corpus = data / f"{path.parent.name}.jsonl"
    overrides = [f"data.train={corpus}", "encoder.name=tiny", "train.epochs=1", "train.min_updates=1"]
    train(load_recipe(path, overrides), tmp_path / "model", quiet=True)
    saved = json.loads((tmp_path / "model" / "report.json").read_text(encoding="utf-8"))
    assert saved["epochs"] == 1
    assert (tmp_path / "model" / "model.safetensors").is_file()
    assert load_recipe(tmp_path / "model" / "recipe.toml").head_name == path.stem
