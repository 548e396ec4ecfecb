"""`spanwright evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from spanwright.cli.options import Device, Model, Precision, Settings, Threads, opened, tell, writable
from spanwright.data.corpora import splits
from spanwright.types import SpanwrightError


def evaluate(
    model: Model,
    data: Annotated[str, typer.Argument(metavar="DATA", help="A corpus by name, a folder with splits, or a file.")],
    split: Annotated[
        str | None, typer.Option(help="Which split of a corpus or folder; test unless another is named.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the scores as JSON.")] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="Write gold and prediction of each sentence as JSONL; .gz compresses.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Tag the text rebuilt from space_after and compare characters.")
    ] = False,
    settings: Settings = None,
    data_format: Annotated[str, typer.Option("--format", help="jsonl or conll; by default told by the file.")] = "",
    word_column: Annotated[int | None, typer.Option(help="CoNLL: column of the words; default as in training.")] = None,
    tag_column: Annotated[int | None, typer.Option(help="CoNLL: column of the tags; default as in training.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad records out instead of stopping.")] = False,
    device: Device = "auto",
    precision: Precision = "fp32",
    threads: Threads = None,
) -> None:
    """Score a model on gold data: exact match, by label, length, nesting and sentence length.

    Example: `spanwright evaluate models/genia genia --split dev --set threshold=0.4 --json scores.json`
    """
    for path in (json_file, predictions):
        writable(path)
    is_file = not splits(data) and Path(data).exists() and not Path(data).is_dir()
    if is_file and split:
        raise SpanwrightError(f"--split {split} was given, but {data} is one file. Leave it out: all is scored")
    tagger = opened(model, settings or [], device, precision, threads)

    from spanwright.cli.measure import gold_of, measured, measured_in_text, save_rows

    columns = {"word_column": word_column, "tag_column": tag_column}
    given = {"format": data_format, "skip_bad": skip_bad, **{k: v for k, v in columns.items() if v is not None}}
    gold = gold_of(tagger, model, data, split or "test", given, tell)
    report, rows = (measured_in_text if raw else measured)(tagger, gold)
    if json_file:
        content = {
            "model": model,
            "data": data,
            "split": None if is_file else split or "test",
            "raw": raw,
            "set": settings or [],
        }
        text = json.dumps({**content, "scores": report.to_dict()}, indent=1, ensure_ascii=False)
        json_file.write_text(text + "\n", encoding="utf-8")
    if predictions:
        save_rows(predictions, rows)
    print(report.table())  # last: whoever reads it may have enough after a line
