"""`spanwright predict`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from spanwright import show
from spanwright.cli.feed import documents_in, typed
from spanwright.cli.options import Device, Model, Precision, Settings, Threads, opened
from spanwright.types import Document, SpanwrightError

Format = Literal["jsonl", "conll", "tree", "html"]


def predict(
    model: Model,
    file: Annotated[str | None, typer.Argument(metavar="[FILE | -]", help="A file, or - for standard input.")] = None,
    text: Annotated[list[str] | None, typer.Option(help="A text to tag; may be given several times.")] = None,
    output_format: Annotated[Format, typer.Option("--format", help="How the answer is written.")] = "jsonl",
    lines: Annotated[bool, typer.Option("--lines", help="Each line of the input is a text of its own.")] = False,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help='Each line is {"text": ...} or {"tokens": [...]}; .jsonl files always are.')
    ] = False,
    settings: Settings = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    threads: Threads = None,
) -> None:
    """Tag text. A file is one text, unless --lines or --jsonl says otherwise; those are tagged as they are read.

    Example: `spanwright predict models/genia --text "IL-2 gene expression" --format tree`
    """
    if text and (file is not None or lines or jsonl):
        raise SpanwrightError("--text was given together with a file, --lines or --jsonl. Give one or the other.")
    if lines and jsonl:
        raise SpanwrightError("--lines and --jsonl exclude each other: a line is a text, or it is a JSON object.")
    if not text and file is None and sys.stdin.isatty():
        raise SpanwrightError("nothing to tag. Expected a file, - for standard input, or --text.")
    source = file or "-"
    if not text and source != "-" and not Path(source).is_file():
        raise SpanwrightError(f"there is no file {source}. To tag the words themselves, use --text.")
    tagger = opened(model, settings or [], device, precision, threads)
    given = [tagger.read(typed(one)) for one in text] if text else documents_in(source, tagger.read, lines, jsonl)
    for part in written(tagger.stream(given), output_format):
        print(part)


def written(documents: Iterable[Document], output_format: Format) -> Iterator[str]:
    """Each document as it comes; a page of HTML when all have come."""
    if output_format == "html":
        yield show.html_page(documents)
        return
    write = {"jsonl": show.jsonl, "conll": show.conll, "tree": show.tree}[output_format]
    for i, document in enumerate(documents):
        yield ("\n" if i and output_format == "tree" else "") + write(document)
