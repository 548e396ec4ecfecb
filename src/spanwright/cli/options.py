"""Options that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from spanwright.config import DataConfig, from_dict, load_recipe, parse_setting, to_dict
from spanwright.types import SpanwrightError

if TYPE_CHECKING:
    from spanwright.tagger import Tagger

Model = Annotated[str, typer.Argument(metavar="MODEL", help="Folder that `spanwright train` wrote, or a hub id.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="What may change after training: threshold=0.4, overlap=flat."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")]
Precision = Annotated[Literal["fp32", "bf16", "fp16"], typer.Option(help="Numbers the encoder computes with.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; by default one a core.")]


def opened(model: str, settings: Sequence[str], device: str, precision: str, threads: int | None) -> Tagger:
    """The model in `model`, with the inference settings that `--set` names."""
    given = dict(parse_setting(setting, "--set key=value, such as --set threshold=0.4") for setting in settings)

    from spanwright.checkpoint import latest
    from spanwright.folder import load
    from spanwright.train import REPORT

    tagger = load(model, device=device, precision=precision, threads=threads)
    if Path(model).is_dir() and latest(Path(model)) and not (Path(model) / REPORT).is_file():
        tell(f"{model} is an unfinished training: these are its best weights so far")
    return tagger.with_options(**checked(tagger, given)) if given else tagger


def data_of(model: str) -> DataConfig:
    """How the training data of a model were read; the defaults where its folder has no recipe."""
    from spanwright.folder import find

    recipe = find(model) / "recipe.toml"
    return load_recipe(recipe).data if recipe.is_file() else DataConfig()


def checked(tagger: Tagger, given: dict[str, Any]) -> dict[str, Any]:
    """The settings in the types that the head declares; of a bundle, also those of the head that answers."""
    now = tagger.head.config.inference
    own = {name: value for name, value in given.items() if name in [field.name for field in fields(now)]}
    if len(own) == len(given) or type(now) is type(tagger.head.inference):
        return typed(now, given)
    own = typed(now, own)
    answering = tagger.with_options(**own).head.inference  # `output` decides whose they are
    return own | typed(answering, {name: value for name, value in given.items() if name not in own})


def typed(now: Any, given: dict[str, Any]) -> dict[str, Any]:
    try:
        wanted = from_dict(type(now), {**to_dict(now), **given}, "")
    except SpanwrightError as error:
        raise SpanwrightError(f"--set {error}") from None
    return {field.name: getattr(wanted, field.name) for field in fields(wanted) if field.name in given}


def tell(message: object) -> None:
    """On standard error, if anybody still reads it."""
    with suppress(OSError):
        print(message, file=sys.stderr, flush=True)


def writable(path: Path | None) -> None:
    """Told before the work, not after it."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        what = "is a folder" if path.is_dir() else f"lies in {path.parent}, which is no folder"
        raise SpanwrightError(f"{path} {what}. Expected a file in a folder that exists.")
