"""The code of the documents runs as it stands there."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spanwright.check import LAWS, SLOW
from spanwright.config import load_recipe
from spanwright.heads import HEADS, head_class
from spanwright.tagger import Tagger
from spanwright.train import train

MODULES = ("biaffine", "test_biaffine")


@pytest.fixture(scope="module")
def files(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the files of `docs/how-to-add-a-head.md`, from which their modules are imported."""
    folder = tmp_path_factory.mktemp("biaffine")
    text = (root / "docs" / "how-to-add-a-head.md").read_text(encoding="utf-8")
    for name, content in re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", text, re.M | re.S):
        (folder / name).write_text(content, encoding="utf-8")
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(folder)
    yield folder
    patch.undo()
    for module in MODULES:
        sys.modules.pop(module, None)


def test_the_document_has_its_files(files: Path) -> None:
    wanted = {"biaffine.py", "test_biaffine.py", "pyproject.toml", "biaffine.toml", "bundle.toml"}
    assert {path.name for path in files.iterdir()} >= wanted


@pytest.mark.parametrize("law", [pytest.param(law, marks=[pytest.mark.slow] if law in SLOW else []) for law in LAWS])
def test_its_head_obeys_the_laws(files: Path, law: str) -> None:
    tests: Any = importlib.import_module("test_biaffine")
    tests.test_law(law)


def test_it_lists_every_law(root: Path) -> None:
    text = (root / "docs" / "how-to-add-a-head.md").read_text(encoding="utf-8")
    table = text[text.index("| law |") :]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == list(LAWS)


def test_its_entry_point_names_the_head(files: Path) -> None:
    project = tomllib.loads((files / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ((name, place),) = project["entry-points"]["spanwright.heads"].items()
    module, attribute = place.split(":")
    assert getattr(importlib.import_module(module), attribute).__name__ == "Biaffine"
    assert name == "biaffine"


def test_its_recipe_trains(files: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HEADS, "biaffine", "biaffine:Biaffine")
    sentences = root / "tests" / "data" / "gum.jsonl"
    changes = [f"data.train={sentences}", "encoder.name=tiny", "train.epochs=1", "head.dropout=0.3"]
    recipe = load_recipe(files / "biaffine.toml", changes)
    train(recipe, tmp_path / "model", quiet=True)
    tagger = Tagger.load(tmp_path / "model", device="cpu")
    assert type(tagger.head) is head_class("biaffine")
    assert (tagger.head.config.size, tagger.head.config.dropout) == (100, 0.3)
    assert tagger("The mayor of Bergen met the press.").text == "The mayor of Bergen met the press."


def test_its_bundle_is_one(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HEADS, "biaffine", "biaffine:Biaffine")
    bundle = load_recipe(files / "bundle.toml").head_config()
    assert bundle.inference.output == "biaffine"
    assert bundle.heads["biaffine"]["size"] == 100
