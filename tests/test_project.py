"""The project's files agree with one another and with the package."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

import spanwright
from spanwright.config import recipe_of

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TORCH_FREE = ("types", "text", "select", "evaluate", "config", "data")


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))


def test_commands_of_the_readme_are_in_the_makefile() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)", README))
    assert {"demo", "test"} <= named
    assert named <= targets()
    assert {"install", "demo", "test", "lint", "bench"} <= targets()


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = ROOT / ".ci" / "run"
    commands = [line for line in script.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    assert commands[-1] == "make test"
    assert all(line.startswith(("set ", "cd ")) for line in commands[:-1])
    assert os.access(script, os.X_OK)


def test_extras_of_the_readme_exist() -> None:
    named = {name for group in re.findall(r"spanwright\[([a-z,]+)\]", README) for name in group.split(",")}
    assert "minilm" in named
    assert named <= set(PROJECT["optional-dependencies"])


def test_version_is_the_same_everywhere() -> None:
    newest = re.search(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == PROJECT["version"] == spanwright.__version__


def test_constraints_lie_within_the_ranges() -> None:
    from packaging.requirements import Requirement

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and line[0] != "#")
    wanted = [*PROJECT["dependencies"], *(one for group in PROJECT["optional-dependencies"].values() for one in group)]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(pins[requirement.name]), f"{requirement} and {pins[requirement.name]}"


def test_links_of_the_documents_lead_somewhere() -> None:
    for document in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text(encoding="utf-8")):
            assert link.startswith("https://") or (document.parent / link).exists(), f"{document}: {link}"


def test_no_file_tells_of_the_machine_it_was_written_on() -> None:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    home = re.compile(r"(?<![\w.])/(?:home|Users|root|work|tmp|opt)/[\w.-]+/")
    for name in listed.stdout.splitlines():
        if name.endswith((".py", ".md", ".toml", ".json", ".txt", ".yaml")) and "tests/" not in name:
            found = home.search((ROOT / name).read_text(encoding="utf-8")) if (ROOT / name).exists() else None
            assert found is None, f"{name}: {found}"


def test_the_tables_of_the_results_are_those_of_the_rows() -> None:
    spec = importlib.util.spec_from_file_location("results", ROOT / "benchmarks" / "results.py")
    assert spec is not None and spec.loader is not None
    results = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(results)
    page = results.PAGE.read_text(encoding="utf-8")
    assert results.rendered(page) == page
    rows = results.rows_of("ground")
    names = ("corpus", "head", "encoder", "seed", "epochs", "train_sentences", "precision", "recall", "f1", "minutes")
    assert all(row[name] is not None for row in rows for name in (*names, "command"))
    for place, kept in (("", rows), ("ablations", results.rows_of("ablations/ground"))):
        files = (results.RESULTS / place / "predictions").iterdir()
        assert {row["predictions"] for row in kept} == {f"predictions/{path.name}" for path in files}


@pytest.mark.parametrize("module", TORCH_FREE)
def test_module_does_not_import_torch(module: str) -> None:
    assert python(f"import sys, spanwright.{module}; print('torch' in sys.modules)") == "False"


@pytest.mark.parametrize("function", ["select", "evaluate"])
def test_function_is_not_hidden_by_the_module_of_its_name(function: str) -> None:
    code = f"import spanwright.{function}, spanwright.tagger, spanwright; print(callable(spanwright.{function}))"
    assert python(code) == "True"


def blocks(language: str) -> list[str]:
    return [textwrap.dedent(block) for block in re.findall(rf"^ *```{language}\n(.*?)^ *```", README, re.M | re.S)]


def test_recipes_of_the_readme_and_the_demo_are_right() -> None:
    demo = (ROOT / "examples" / "demo.toml").read_text(encoding="utf-8")
    assert len(blocks("toml")) == 3
    for recipe in (*blocks("toml"), demo):
        recipe_of(tomllib.loads(recipe)).resolved()


def test_python_of_the_readme_uses_names_that_exist() -> None:
    code = "\n".join(blocks("python"))
    ast.parse(code)
    used = set(re.findall(r"spanwright\.(\w+)", code))
    assert {"load", "read", "evaluate"} <= used
    assert used <= set(spanwright.__all__)


def test_options_of_the_readme_exist() -> None:
    for command in ("train", "evaluate", "predict"):
        lines = re.findall(rf"spanwright {command} (.*)", README)
        named = {option for line in lines for option in re.findall(r"--[a-z-]+", line)}
        shown = subprocess.run(
            [sys.executable, "-m", "spanwright", command, "--help"], capture_output=True, text=True, check=True
        ).stdout
        assert named, command
        assert named <= set(re.findall(r"--[a-z-]+", shown)), command
