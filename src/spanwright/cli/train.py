"""`spanwright train`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from spanwright.cli.options import tell
from spanwright.config import load_recipe


def train(
    recipe: Annotated[
        Path, typer.Argument(metavar="RECIPE", help="A recipe: a TOML file with [data] [encoder] [head] [train] [run].")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Settings that replace the recipe's, such as train.epochs=3."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder that becomes the model.")] = ...,  # type: ignore[assignment]
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted training.")] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave bad records out instead of stopping; as data.skip_bad=true.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Train anew over what the folder holds.")] = False,
) -> None:
    """Train a tagger. Corpora by name are found under $SPANWRIGHT_DATA, anything else by its path.

    Example: `spanwright train recipe.toml data.train=my.conll head.max_width=8 run.seed=2 --output models/mine`
    """
    loaded = load_recipe(recipe, [*(settings or []), *(["data.skip_bad=true"] if skip_bad else [])])
    loaded.head_config()  # a slip in [head] is told before anything is read or written

    from spanwright.train import Interrupted
    from spanwright.train import train as run

    try:
        run(loaded, output, resume=resume, overwrite=overwrite)
    except Interrupted as stopped:
        tell(stopped)
        raise typer.Exit(1) from None
    model = shlex.quote(str(output))
    tell(f'The model is in {output}. Try it: spanwright predict {model} --text "..."')
