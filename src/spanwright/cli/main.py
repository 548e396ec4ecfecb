"""The entry point: the commands, the exit codes and how errors are told.

Exit codes: 0 done, 1 the work failed, 2 the call was wrong (bad data and bad recipes included).
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from spanwright import __version__
from spanwright.cli.catalogue import convert_encoder, encoders, heads
from spanwright.cli.evaluate import evaluate
from spanwright.cli.options import tell
from spanwright.cli.predict import predict
from spanwright.cli.train import train
from spanwright.types import SpanwrightError, WorkFailed

FAILED, WRONG_CALL = 1, 2


@dataclass(frozen=True)
class Call:
    """What was typed."""

    arguments: tuple[str, ...] = ()
    debug: bool = False


@contextmanager
def explained(call: Call, command: str | None) -> Iterator[None]:
    """Errors in plain words and the exit code that belongs to them; with --debug also the traceback."""
    try:
        yield
        sys.stdout.flush()  # here, where a closed pipe is still caught
    except BrokenPipeError:
        # Whoever read the output has enough. The interpreter's own flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        tell("Interrupted." + resume_hint(call, command))
        raise typer.Exit(FAILED) from None
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if hasattr(error, "show"):  # typer's own errors of usage show themselves
            raise
        message, code = told(error)
        if call.debug:
            traceback.print_exc()
        tell(message)
        raise typer.Exit(code) from None


def told(error: Exception) -> tuple[str, int]:
    """What to say about `error`, and the exit code."""
    if isinstance(error, SpanwrightError):
        return f"error: {error}", FAILED if isinstance(error, WorkFailed) else WRONG_CALL
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return f"error: {error.strerror or error}{where}", FAILED
    if type(error).__name__ in ("OutOfMemoryError", "MemoryError"):
        return "error: out of memory. Try a smaller train.batch_tokens or data.max_words, or --device cpu.", FAILED
    return (
        f"error: {type(error).__name__}: {error}\n"
        "This is not your mistake. `spanwright --debug ...` shows where it happened; please report it."
    ), FAILED


def resume_hint(call: Call, command: str | None) -> str:
    if command != "train":
        return ""
    arguments = [argument for argument in call.arguments if argument not in ("--resume", "--overwrite")]
    return " Go on where the last checkpoint was made with:\n  " + shlex.join(["spanwright", *arguments, "--resume"])


class Commands(TyperGroup):
    """The group of commands; whatever one of them raises is explained here."""

    def invoke(self, ctx: Any) -> Any:
        call = ctx.obj or Call()
        command = next((name for name in call.arguments if name in self.commands), None)
        with explained(call, command):
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands, name="spanwright", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    rich_markup_mode="markdown", context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"spanwright {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Find entities in text, flat or nested.

    Example: `spanwright predict MODEL --text "IL-2 gene expression"`
    """


app.command()(train)
app.command()(evaluate)
app.command()(predict)
app.command()(heads)
app.command()(encoders)
app.command("convert-encoder")(convert_encoder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and exits with its code. `--debug` may stand anywhere."""
    typed = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")  # text is UTF-8 whatever the locale says
    debug = "--debug" in typed
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, format="%(message)s", stream=sys.stderr)
    kept = [argument for argument in typed if argument != "--debug"]
    app(args=kept, prog_name="spanwright", obj=Call(tuple(kept), debug))
