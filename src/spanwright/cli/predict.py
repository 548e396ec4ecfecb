"""`spanwright predict`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from spanwright import show
from spanwright.cli.feed import Feed, documents_in, typed
from spanwright.cli.options import Device, Model, Precision, Settings, Threads, data_of, opened, tell
from spanwright.select import outermost
from spanwright.types import Document, Entity, SpanwrightError

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
    word_column: Annotated[int | None, typer.Option(help="CoNLL: column of the words; default as in training.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad records out instead of failing.")] = False,
    settings: Settings = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    threads: Threads = None,
) -> None:
    """Tag text. A file is one text, unless --lines or --jsonl says otherwise; those are tagged as they
    come, some hundred sentences at a time. Bad records are listed when all the others are answered.

    Example: `spanwright predict models/genia --text "IL-2 gene expression" --format tree`
    """
    if text and (file is not None or lines or jsonl):
        raise SpanwrightError("--text was given together with a file, --lines or --jsonl. Give one or the other.")
    if lines and jsonl:
        raise SpanwrightError("--lines and --jsonl exclude each other: a line is a text, or it is a JSON object.")
    if not text and file is None and sys.stdin is not None and sys.stdin.isatty():
        raise SpanwrightError("nothing to tag. Expected a file, - for standard input, or --text.")
    source = file or "-"
    if source == "-" and not text and sys.stdin is None:
        raise SpanwrightError("standard input is closed. Expected a file, - for an open standard input, or --text.")
    if not text and source != "-" and (not Path(source).exists() or Path(source).is_dir()):
        what = f"{source} is a folder" if Path(source).is_dir() else f"there is no file {source}"
        raise SpanwrightError(f"{what}. Expected a file; to tag the words themselves, use --text.")
    tagger = opened(model, settings or [], device, precision, threads)
    if text:
        given: Iterable[Document] = [tagger.read(typed(one)) for one in text]
    else:
        trained = data_of(model)
        column = trained.word_column if word_column is None else word_column
        context = tagger.encoder.config.context
        given = documents_in(source, Feed(tagger.read, lines, jsonl, column, trained.comments, skip_bad, context))
    for part in written(tagger.stream(given), output_format):
        print(part)


def written(documents: Iterable[Document], output_format: Format) -> Iterator[str]:
    """Each document as it comes; a page of HTML when all have come."""
    if output_format == "html":
        yield show.html_page(documents)
        return
    write = {"jsonl": show.jsonl, "conll": show.conll, "tree": show.tree}[output_format]
    n_inner = 0
    for i, document in enumerate(documents):
        yield ("\n" if i and output_format == "tree" else "") + write(document)
        n_inner += len(document.entities) - len(outermost(Entity(m.start, m.end, m.label) for m in document.entities))
    if n_inner and output_format == "conll":
        tell(f"entities that CoNLL cannot hold beside others: {n_inner}; the outermost were written, jsonl has all")
