"""What `predict` reads: a file, standard input or an argument, as documents without entities, one by one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from spanwright.data import read
from spanwright.data.findings import BadRecord, shown
from spanwright.data.jsonl import Row, name_in, row_in, sentence_of
from spanwright.data.read import OF_SUFFIX
from spanwright.text import from_words
from spanwright.types import Document, Sentence, SpanwrightError

ToDocument = Callable[[str], Document]


def documents_in(source: str, cut: ToDocument, lines: bool, jsonl: bool) -> Iterator[Document]:
    """`cut` makes a document of a text. Lines and rows are read when they are asked for."""
    kind = OF_SUFFIX.get(Path(source).suffix.lower(), "")
    if source == "-":
        yield from _documents(sys.stdin.buffer, "standard input", cut, lines, jsonl)
    elif kind == "conll" and not (lines or jsonl):
        for sentence in read(source, tag_column=None):
            yield document_of(sentence)
    else:
        with Path(source).open("rb") as stream:
            yield from _documents(stream, source, cut, lines, jsonl or (kind == "jsonl" and not lines))


def typed(text: str) -> str:
    """An argument as text; bytes that are no UTF-8 reach Python as halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SpanwrightError(f"--text is not UTF-8 at character {error.start}. Expected UTF-8 text.") from None
    return text


def document_of(sentence: Sentence) -> Document:
    return from_words(sentence.words, sentence.spaces, id=sentence.id)


def _documents(stream: BinaryIO, name: str, cut: ToDocument, lines: bool, jsonl: bool) -> Iterator[Document]:
    if not (lines or jsonl):
        yield cut(_decoded(stream.read(), name).removeprefix("\ufeff"))
        return
    for number, line in enumerate(stream, 1):
        where = f"{name}:{number}"
        text = _decoded(line, where).removesuffix("\n").removesuffix("\r")
        text = text.removeprefix("\ufeff") if number == 1 else text
        if lines:
            yield cut(text)
        elif text.strip():
            yield _of_row(text, where, cut)


def _of_row(line: str, where: str, cut: ToDocument) -> Document:
    try:
        row = row_in(line)
        name = name_in(row, "id")
        if "tokens" in row:
            # Gold in the row is not looked at, so it cannot be wrong either.
            words: Row = {key: row[key] for key in ("tokens", "space_after") if key in row}
            return replace(document_of(sentence_of(words, [])), id=name)
        if not isinstance(row.get("text"), str):
            raise BadRecord(f"text is {shown(row.get('text'))}", 'a string under "text", or a list under "tokens"')
    except BadRecord as error:
        raise SpanwrightError(f"{where}: {error.wrong}; expected {error.expected}") from None
    return replace(cut(row["text"]), id=name)


def _decoded(content: bytes, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise SpanwrightError(f"{where}: byte {error.start + 1} (0x{content[error.start]:02x}) is not UTF-8") from None
