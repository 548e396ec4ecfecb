"""`import spanwright` is cheap, and everything public is reachable from it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

HEAVY = ("torch", "transformers", "accelerate", "numpy", "tokenizers", "safetensors", "typer", "rich")


def run_python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def seconds(code: str) -> float:
    started = time.perf_counter()
    run_python(code)
    return time.perf_counter() - started


def test_import_loads_nothing_heavy() -> None:
    loaded = json.loads(run_python("import json, sys, spanwright; print(json.dumps(sorted(sys.modules)))"))
    assert "spanwright" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_import_is_quick() -> None:
    pairs = [(seconds("import spanwright"), seconds("pass")) for _ in range(3)]
    assert statistics.median(ours - bare for ours, bare in pairs) < 0.3


def test_the_nouns_need_no_torch() -> None:
    used = "spanwright.Entity(0, 1, 'A'), spanwright.Sentence(('a',)), spanwright.Labels('AB')"
    assert run_python(f"import sys, spanwright; {used}; print('torch' in sys.modules)").strip() == "False"


def test_every_public_name_is_there() -> None:
    """In one interpreter, which imports torch on the way."""
    code = """
import sys, spanwright
assert set(spanwright.__all__) <= set(dir(spanwright))
assert callable(spanwright.load) and spanwright.Tagger.__module__ == "spanwright.tagger"
assert "torch" in sys.modules
for name in spanwright.__all__:
    getattr(spanwright, name)
assert callable(spanwright.select) and callable(spanwright.evaluate)
print(len(spanwright.__all__))
"""
    assert int(run_python(code)) >= 10


def test_an_unknown_name_is_an_attribute_error() -> None:
    code = "import spanwright\ntry: spanwright.lode\nexcept AttributeError as error: print(error)"
    assert "lode" in run_python(code)
