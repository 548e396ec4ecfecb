"""What `predict` reads: a file, standard input or an argument, as documents without entities, one by one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import IO

from spanwright.cli.options import tell
from spanwright.data import read
from spanwright.data.corpora import with_context
from spanwright.data.findings import BadData, BadRecord, Findings
from spanwright.data.jsonl import Row, name_in, row_in, sentence_of
from spanwright.data.read import format_of, number_of, opened, unpacked
from spanwright.text import from_words
from spanwright.types import Document, Sentence, SpanwrightError, shown

Given = Document | Sentence


@dataclass(frozen=True)
class Feed:
    """How the input becomes documents."""

    cut: Callable[[str], Document]  # makes a document of a text
    lines: bool = False  # each line is a text
    jsonl: bool = False  # each line is a JSON object
    word_column: int = 0  # of CoNLL
    comments: bool = False  # of CoNLL: lines that start with "# " are passed over
    skip_bad: bool = False
    context: int = 0  # sentences of the same document that the encoder reads on each side


def documents_in(source: str, how: Feed) -> Iterator[Document]:
    """Lines and rows are read when they are asked for. After the last one the bad ones are listed, as `BadData`."""
    wrong: list[Exception] = []
    for alone, group in groupby(until_wrong(_given(source, how), wrong), key=lambda one: isinstance(one, Document)):
        if alone:
            yield from group  # type: ignore[misc]
        else:
            yield from map(document_of, with_context(group, how.context))  # type: ignore[arg-type]
    if wrong:
        raise wrong[0]


def until_wrong(items: Iterator[Given], wrong: list[Exception]) -> Iterator[Given]:
    """Ends where `items` fails, so that what is still held on the way to the answer is answered first."""
    try:
        yield from items
    except Exception as error:
        wrong.append(error)


def _given(source: str, how: Feed) -> Iterator[Given]:
    """Texts as documents; what was split into sentences already, as sentences."""
    kind = format_of(source)
    if source == "-":
        with unpacked(sys.stdin.buffer, "standard input") as stream:
            yield from _documents(stream, "standard input", how)
    elif kind == "conll" and not (how.lines or how.jsonl):
        yield from read(
            source, format="conll", tag_column=None, word_column=how.word_column, comments=how.comments,
            skip_bad=how.skip_bad, tell=tell,
        )  # fmt: skip
    else:
        with opened(Path(source)) as stream:
            yield from _documents(stream, source, replace(how, jsonl=how.jsonl or (kind == "jsonl" and not how.lines)))


def typed(text: str) -> str:
    """An argument as text; bytes that are no UTF-8 reach Python as halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SpanwrightError(f"--text is not UTF-8 at character {error.start}. Expected UTF-8 text.") from None
    return text


def document_of(sentence: Sentence) -> Document:
    document = from_words(sentence.words, sentence.spaces, id=sentence.id)
    return replace(document, left=sentence.left, right=sentence.right)


def _documents(stream: IO[bytes], name: str, how: Feed) -> Iterator[Given]:
    if not (how.lines or how.jsonl):
        try:
            yield how.cut(_decoded(stream.read()).removeprefix("\ufeff"))
        except BadRecord as error:
            raise SpanwrightError(f"{name}: {error.wrong}; expected {error.expected}") from None
        return
    bad = Findings()
    for number, line in enumerate(stream, 1):
        try:
            text = _decoded(line).removesuffix("\n").removesuffix("\r")
            text = text.removeprefix("\ufeff") if number == 1 else text
            if how.lines:
                yield how.cut(text)
            elif text.strip():
                yield _of_row(text, how)
        except BadRecord as error:
            bad.add(f"{name}:{number}", error.wrong, error.expected)
    found = f"{number_of(bad, 'bad record{}')} in {name}"
    if bad and how.skip_bad:
        tell(f"{found} left out\n{bad}")
    elif bad:
        raise BadData(f"{found}; all others were tagged:\n{bad}\nmend them, or accept that with --skip-bad", bad)


def _of_row(line: str, how: Feed) -> Given:
    row = row_in(line)
    name = name_in(row, "id")
    if "tokens" in row:
        # Gold in the row is not looked at, so it cannot be wrong either.
        words: Row = {key: row[key] for key in ("tokens", "space_after") if key in row}
        return replace(sentence_of(words, []), id=name, doc=name_in(row, "doc"))
    if not isinstance(row.get("text"), str):
        wrong = f"text is {shown(row['text'])}" if "text" in row else "neither 'tokens' nor 'text' is there"
        raise BadRecord(wrong, 'a string under "text", or a list under "tokens"')
    return replace(how.cut(row["text"]), id=name)


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(f"byte {error.start + 1} (0x{content[error.start]:02x}) is not UTF-8", "UTF-8 text") from None
