"""Spanwright finds entities in text, flat or nested, by reasoning about their boundaries.

    import spanwright

    tagger = spanwright.load("build/demo")
    for entity in tagger("The mayor of Bergen met the press.").entities:
        print(entity.text, entity.label, entity.score)

Importing this does not import torch: what needs it is looked up when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# At once, because they bear their module's name: bound later, the function would be hidden by the module.
from spanwright.evaluate import evaluate
from spanwright.select import select
from spanwright.types import Document, Entity, Labels, Mention, Sentence, SpanwrightError

if TYPE_CHECKING:
    from spanwright.config import Recipe, load_recipe
    from spanwright.data import BadData, find_corpus, read, write
    from spanwright.folder import load
    from spanwright.tagger import Tagger
    from spanwright.text import TextRule, from_words, read_text

__version__ = "0.1.0"

__all__ = [
    "BadData",
    "Document",
    "Entity",
    "Labels",
    "Mention",
    "Recipe",
    "Sentence",
    "SpanwrightError",
    "Tagger",
    "TextRule",
    "evaluate",
    "find_corpus",
    "from_words",
    "load",
    "load_recipe",
    "read",
    "read_text",
    "select",
    "write",
]

PLACES = {
    "BadData": "data",
    "Recipe": "config",
    "Tagger": "tagger",
    "TextRule": "text",
    "find_corpus": "data",
    "from_words": "text",
    "load": "folder",
    "load_recipe": "config",
    "read": "data",
    "read_text": "text",
    "write": "data",
}


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module 'spanwright' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"spanwright.{PLACES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *PLACES})
