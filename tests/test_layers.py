"""The house's floors: imports go only downwards, heads do not know one another, and no file grows out of hand."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "spanwright"

# From the ground up. A module may import its own floor and those below; a package stands for all modules in it.
FLOORS: tuple[frozenset[str], ...] = (
    frozenset({"types", "terminal"}),
    frozenset({"text", "select", "data", "evaluate", "resample", "config", "show"}),
    frozenset({"pieces", "pretrained", "batch", "nn"}),
    frozenset({"head"}),
    frozenset({"encoder", "heads"}),
    frozenset({"long", "folder", "tagger"}),
    frozenset({"analyse", "check", "prepare", "checkpoint", "journal", "train"}),
    frozenset({"cli", "__main__", "__init__"}),
)
LOOKED_UP = {("config", "heads")}  # inside a function: a recipe asks its head, found by name, for the head's settings
WITHOUT_TORCH = FLOORS[0] | FLOORS[1]
LONGEST_FILE = 420

FILES = sorted(SOURCE.rglob("*.py"))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def module_of(path: Path) -> str:
    """``heads.seqner`` for src/spanwright/heads/seqner.py."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(tree: ast.AST, inside_functions: bool = True) -> list[str]:
    """Every module that the code imports, types apart; `from spanwright import text` is ``spanwright.text``."""
    found: list[str] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            whole = node.module or ""
            found += [f"{whole}.{alias.name}" for alias in node.names] if whole == "spanwright" else [whole]
        elif not only_for_types(node) and (inside_functions or not isinstance(node, ast.FunctionDef)):
            found += imports(node, inside_functions)
    return found


def ours(names: list[str]) -> set[str]:
    """The modules of this package among them, without the package's name."""
    return {name.removeprefix("spanwright.") for name in names if name.startswith("spanwright.")}


def floor_of(module: str) -> int | None:
    """The floor of a module; None for a plain name of the package, such as `__version__`."""
    top = module.split(".")[0]
    return next((number for number, floor in enumerate(FLOORS) if top in floor), None)


def is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def shown(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def test_there_is_something_to_check() -> None:
    assert len(FILES) > 20
    assert {"types.py", "head.py", "tagger.py"} <= set(map(shown, FILES))


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_imports_go_downwards(path: Path) -> None:
    module = module_of(path)
    own = floor_of(module)
    assert own is not None, f"{shown(path)} stands on no floor: give it one in FLOORS"
    always = ours(imports(parsed(path), inside_functions=False))
    for name in sorted(filter(is_module, ours(imports(parsed(path))))):
        if (module, name) in LOOKED_UP and name not in always:
            continue
        below = floor_of(name)
        assert below is not None and below <= own, f"{shown(path)} imports {name}, which lies above it"


def test_the_encoder_and_the_heads_do_not_know_each_other() -> None:
    assert not any(name.startswith("heads") for name in ours(imports(parsed(SOURCE / "encoder.py"))))
    for path in SOURCE.joinpath("heads").glob("*.py"):
        assert "encoder" not in ours(imports(parsed(path))), shown(path)


def test_no_head_imports_another() -> None:
    heads = {path.stem for path in SOURCE.joinpath("heads").glob("*.py")} - {"__init__"}
    assert {"seqner", "spanner", "bundle"} <= heads
    for path in SOURCE.joinpath("heads").glob("*.py"):
        if path.stem == "__init__":  # the dictionary of their names; it imports them when asked
            assert not ours(imports(parsed(path), inside_functions=False)) & {f"heads.{head}" for head in heads}
        else:
            others = {f"heads.{head}" for head in heads if head != path.stem}
            assert not ours(imports(parsed(path))) & others, shown(path)


@pytest.mark.parametrize("path", [path for path in FILES if module_of(path).split(".")[0] in WITHOUT_TORCH], ids=shown)
def test_the_lower_floors_load_without_torch(path: Path) -> None:
    heavy = {"torch", "transformers", "accelerate", "safetensors"}
    assert not heavy & {name.split(".")[0] for name in imports(parsed(path), inside_functions=False)}


@pytest.mark.parametrize("module", sorted(FLOORS[0]))
def test_the_ground_floor_stands_on_the_standard_library(module: str) -> None:
    names = {name.split(".")[0] for name in imports(parsed(SOURCE / f"{module}.py"))}
    assert names <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_no_file_is_too_long(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


def test_no_head_derives_from_another() -> None:
    for path in SOURCE.joinpath("heads").glob("*.py"):
        classes = {node.name: node for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef)}
        heads = {name for name, node in classes.items() if any(ast.unparse(base) == "Head" for base in node.bases)}
        for name, node in classes.items():
            assert not heads & set(map(ast.unparse, node.bases)), f"{shown(path)}: {name}"


def test_a_new_floor_would_be_noticed() -> None:
    code = "if TYPE_CHECKING:\n    import torch\ndef f():\n    from spanwright import train\nimport spanwright.cli.main"
    tree = ast.parse(code)
    assert imports(tree) == ["spanwright.train", "spanwright.cli.main"]
    assert imports(tree, inside_functions=False) == ["spanwright.cli.main"]
    assert ours(imports(tree)) == {"train", "cli.main"}
    assert floor_of("cli.main") == len(FLOORS) - 1 and floor_of("__version__") is None
