"""The registry of heads."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from toy_heads import Toy

from spanwright import heads
from spanwright.head import Head
from spanwright.heads import build_head, head_class, head_names, name_of, register
from spanwright.types import Labels, SpanwrightError


def test_every_head_is_found_and_is_a_head() -> None:
    assert head_names()[:4] == ["seqner", "spanner", "bundle", "bopn"]
    for name in ("seqner", "spanner", "bundle", "bopn"):
        assert issubclass(head_class(name), Head)


def test_a_head_is_built_by_name() -> None:
    config = head_class("spanner").Config(max_width=3)
    head = build_head("spanner", config, Labels(["X"]), 4, 5)
    assert (head.config.max_width, head.labels) == (3, Labels(["X"]))


def test_an_unknown_head_is_named_with_its_nearest_match() -> None:
    with pytest.raises(
        SpanwrightError, match=r"no head 'spaner'.*Did you mean 'spanner'.*seqner, spanner, bundle, bopn"
    ):
        head_class("spaner")


def test_other_packages_add_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    added = (
        EntryPoint("mine", "spanwright.heads.seqner:SeqNER", heads.GROUP),
        EntryPoint("spanner", "nowhere:Other", heads.GROUP),  # Spanwright's own name stays its own
        EntryPoint("torn", "nowhere:Torn", heads.GROUP),
    )
    monkeypatch.setattr(heads, "_added", lambda: added)
    assert head_names() == ["seqner", "spanner", "bundle", "bopn", "mine", "torn"]
    assert head_class("mine") is head_class("seqner")
    assert head_class("spanner").__name__ == "SpanNER"
    with pytest.raises(SpanwrightError, match=r"'torn' is registered as 'nowhere:Torn'.*cannot be imported"):
        head_class("torn")


def test_a_head_can_be_registered_for_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "HEADS", dict(heads.HEADS))
    assert name_of(head_class("spanner")) == "spanner"
    with pytest.raises(SpanwrightError, match=r"toy_heads:Toy has no name.*register\(name, 'toy_heads:Toy'\)"):
        name_of(Toy)
    register("toy", "toy_heads:Toy")
    assert head_class("toy") is Toy
    assert name_of(Toy) == "toy"


def test_listing_heads_does_not_import_torch() -> None:
    code = "import sys; from spanwright.heads import head_names; head_names(); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
