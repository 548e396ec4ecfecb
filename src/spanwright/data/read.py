"""Files to Sentences, one after the other: `read` is the one door, whatever the format."""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from difflib import get_close_matches
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from spanwright.data.conll import Columns, ConllReader
from spanwright.data.findings import BadData, BadRecord, Findings
from spanwright.data.jsonl import row_in, sentence_of
from spanwright.data.raw import Cut, TextReading, sentences_in_text
from spanwright.data.tags import scheme_of
from spanwright.text import TextRule, Tokenizer
from spanwright.types import Sentence, SpanwrightError

FORMATS = ("jsonl", "conll")
# A .txt may hold either: its first line tells.
OF_SUFFIX = {".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl"} | dict.fromkeys(
    (".conll", ".bio", ".iob", ".iob2", ".bioes", ".bmes", ".tsv"), "conll"
)
HOLDS = {
    "jsonl": 'one object a line, {"tokens": [...], "entities": [...]} or {"text": ..., "entities": [...]}',
    "conll": "one word and its tag a line, an empty line after each sentence",
}

GZIP = b"\x1f\x8b"

log = logging.getLogger("spanwright.data")

Tell = Callable[[str], None]
Lines = Iterator[tuple[int, str | None]]  # numbered from 1; None where a line is not UTF-8


@dataclass(frozen=True)
class Reading:
    """How a file is to be read."""

    format: str = ""  # "": told by the name of the file, else by its first line
    scheme: str = "auto"
    columns: Columns = field(default_factory=Columns)
    comments: bool = False
    text: TextReading = field(default_factory=TextReading)
    skip_bad: bool = False
    tell: Tell = log.warning


class Reader(Iterator[Sentence]):
    """The sentences of one file, read as they are asked for.

    `bad`, `notes` and `mended` fill while it reads. After the last sentence bad records raise BadData, or, with
    `skip_bad`, are told; so are notes (what was passed over or widened) and mended tags.
    """

    def __init__(self, source: Path | IO[Any], how: Reading):
        self.name = str(source) if isinstance(source, Path) else str(getattr(source, "name", "<input>"))
        self.bad = Findings()
        self.notes = Findings()
        self.mended = Findings()
        self.count = 0  # sentences so far
        self.lines = 0
        self.unannotated = 0  # records without "entities"
        self.widened = 0  # entities that cut a word
        self._source = source
        self._how = how
        self._sentences = self._run()

    def __next__(self) -> Sentence:
        return next(self._sentences)

    def _run(self) -> Iterator[Sentence]:
        with self._opened() as stream:
            lines = self._numbered(stream)
            first, lines = _first_line(lines)
            kind = self._how.format or format_of(self.name)
            kind = kind or ("jsonl" if first.lstrip().startswith(("{", "[")) else "conll")
            for sentence in self._jsonl(first, lines) if kind == "jsonl" else self._conll(lines):
                self.count += 1
                yield sentence
        self._end(kind, empty=not first)

    def _opened(self) -> AbstractContextManager[IO[Any]]:
        return opened(self._source) if isinstance(self._source, Path) else nullcontext(self._source)

    def _numbered(self, stream: Iterable[str | bytes]) -> Lines:
        for number, line in enumerate(stream, 1):
            self.lines = number
            if isinstance(line, bytes):
                if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
                    raise SpanwrightError(f"{self.name} is UTF-16; expected UTF-8: save it in that encoding")
                try:
                    line = line.decode()
                except UnicodeDecodeError as error:
                    byte = f"byte {error.start + 1} of the line (0x{line[error.start]:02x}) is not UTF-8"
                    self.bad.add(f"{self.name}:{number}", byte, "UTF-8 text")
                    yield number, None
                    continue
            if number == 1:
                line = line.removeprefix("\ufeff")
            yield number, line.removesuffix("\n").removesuffix("\r")

    def _jsonl(self, first: str, lines: Lines) -> Iterator[Sentence]:
        if first.lstrip().startswith("[") or first.strip() == "{":
            advice = f"one JSON object on each line: `jq -c '.[]' {self.name}` makes such a file from a JSON list"
            raise SpanwrightError(f"{self.name}:1: one JSON value over many records; expected {advice}")
        for number, line in lines:
            if line is None or not line.strip():
                continue
            where = f"{self.name}:{number}"
            notes: list[str] = []
            widened: list[str] = []
            try:
                row = row_in(line)
                if "text" in row and "tokens" not in row:
                    found = sentences_in_text(row, str(number), self._how.text, notes, widened)
                else:
                    found = [sentence_of(row, notes)]
            except BadRecord as error:
                self.bad.add(where, error.wrong, error.expected)
                continue
            self.unannotated += "entities" not in row
            self.widened += len(widened)
            for note in [*notes, *(widened if self._how.text.cut == "report" else [])]:
                self.notes.add(where, note)
            yield from found

    def _conll(self, lines: Lines) -> Iterator[Sentence]:
        how = self._how
        reader = ConllReader(self.name, how.columns, how.scheme, how.comments, self.bad)
        yield from reader.sentences(lines)
        self.mended = reader.mended.findings()

    def _end(self, kind: str, empty: bool) -> None:
        if self.bad and not (self._how.skip_bad and self.count):
            mend = "mend them, or leave such records out (skip_bad, --skip-bad)"
            advice = mend if self.count else "no good sentence is left"
            raise BadData(f"{number_of(self.bad, 'bad record{}')} in {self.name}:\n{self.bad}\n{advice}", self.bad)
        if not self.count:
            what = "is empty" if empty else f"holds no sentence in its {self.lines} lines"
            raise BadData(f"{self.name} {what}; expected at least one sentence ({HOLDS[kind]})", self.bad)
        if self.unannotated:
            self._how.tell(
                f"{self.name}: {number_of(self.unannotated, 'record{}')} without 'entities', taken to have none"
            )
        if self.widened and self._how.text.cut == "widen":
            self._how.tell(
                f"{self.name}: entities that cut a word: {self.widened}, widened to whole words. data.cut=report lists "
                "them, data.cut=refuse takes no such record"
            )
        for findings, what in (
            (self.bad, "bad record{} left out"),
            (self.notes, "note{}"),
            (self.mended, "illegal tag{} mended as conlleval does"),
        ):
            if findings:
                self._how.tell(f"{self.name}: {number_of(findings, what)}\n{findings}")


def read(
    source: str | Path | IO[Any],
    *,
    format: str | None = None,
    skip_bad: bool = False,
    scheme: str = "auto",
    word_column: int = 0,
    tag_column: int | None = -1,
    feature_columns: Mapping[str, int] | None = None,
    comments: bool = False,
    rule: TextRule | None = None,
    tokenizer: Tokenizer | None = None,
    cut: Cut = "widen",
    tell: Tell | None = None,
) -> Reader:
    """The sentences of a file (or of an open one), streaming.

    `format`: "jsonl" or "conll"; else the name of the file tells, or its first line.
    `skip_bad`: bad records are left out and listed, instead of raising BadData after the last sentence.
    `tell` is called after the last sentence with each list (bad records left out, notes, mended tags); the default logs
    a warning.
    CoNLL: `scheme` "auto", "iob1", "iob2", "bioes", "bilou" or "bmes"; columns count from 0, negative ones from the
    last; no tags with ``tag_column=None``; `feature_columns` name more columns for `Sentence.features`; with
    `comments` every line that starts with "# " is one (lines such as ``# id = 7`` always are).
    Raw text: cut into words by `rule` and `tokenizer`; an entity that cuts a word is widened ("widen"), makes the
    record bad ("refuse"), or is widened and listed in the notes ("report").
    """
    if format and format not in FORMATS:
        raise SpanwrightError(f"format is {format!r}; expected one of {', '.join(map(repr, FORMATS))}")
    if cut not in ("widen", "refuse", "report"):
        raise SpanwrightError(f"cut is {cut!r}; expected 'widen', 'refuse' or 'report'")
    columns = Columns(word_column, tag_column, feature_columns or {})
    text = TextReading(rule or TextRule(), tokenizer, cut)
    how = Reading(format or "", scheme_of(scheme), columns, comments, text, skip_bad, tell or log.warning)
    if isinstance(source, (str, Path)):
        source = Path(source)
        if not source.exists():
            raise SpanwrightError(f"there is no file {source}. {whats_near(source)}")
        if source.is_dir():
            raise SpanwrightError(f"{source} is a folder; expected a file. {whats_in(source)}")
    return Reader(source, how)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked if it is gzip's."""
    try:
        stream = path.open("rb")
    except OSError as error:
        raise SpanwrightError(f"{path} cannot be read: {error.strerror}") from None
    with stream, unpacked(stream, str(path)) as content:
        yield content


@contextmanager
def unpacked(stream: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """What `stream` holds; gzip is told by its first two bytes, which are looked at and not taken."""
    packed = isinstance(stream, BufferedReader) and stream.peek(2)[:2] == GZIP
    try:
        yield cast(IO[bytes], gzip.GzipFile(fileobj=stream)) if packed else stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SpanwrightError(f"{name} is damaged: {error}. Expected a whole gzip file") from None


def format_of(name: str) -> str:
    """By the end of a file's name, before ``.gz`` if it has that; "" if it tells nothing."""
    path = Path(name)
    return OF_SUFFIX.get(Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower(), "")


def whats_near(path: Path) -> str:
    """What a person may have meant by a path that does not exist."""
    folder = path.parent
    if not folder.is_dir():
        return f"Nor is there a folder {folder}."
    close = get_close_matches(path.name, _names(folder), n=3, cutoff=0.5)
    return f"Nearest there: {', '.join(close)}." if close else whats_in(folder)


def whats_in(folder: Path) -> str:
    """The first names in a folder, as a sentence."""
    names = _names(folder)
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"{folder} holds {', '.join(names[:12])}{more}." if names else f"{folder} is empty."


def _names(folder: Path) -> list[str]:
    return sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir() if not entry.name.startswith("."))


def _first_line(lines: Lines) -> tuple[str, Lines]:
    """The first line that is not empty, and all the lines."""
    passed: list[tuple[int, str | None]] = []
    for number, line in lines:
        passed.append((number, line))
        if line and line.strip():
            return line, chain(passed, lines)
    return "", iter(passed)


def number_of(found: Findings | int, what: str) -> str:
    """``"bad record{}"`` -> "3 bad records"."""
    count = found if isinstance(found, int) else len(found)
    return f"{count} {what.format('' if count == 1 else 's')}"
