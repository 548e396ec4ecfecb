"""Sentences to files that `read` reads back."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from spanwright.data.conll import DOCUMENT
from spanwright.data.jsonl import RESERVED, row_of
from spanwright.data.read import FORMATS, OF_SUFFIX
from spanwright.data.tags import SCHEMES, encode, scheme_of
from spanwright.select import outermost
from spanwright.types import Entity, Sentence, SpanwrightError, shown

log = logging.getLogger("spanwright.data")


@dataclass
class Written:
    """How much was written, and how many entities had no place in it."""

    sentences: int = 0
    entities: int = 0
    lost: int = 0


def write(
    target: str | Path | IO[str],
    sentences: Iterable[Sentence],
    *,
    format: str | None = None,
    scheme: str = "iob2",
    nested: Literal["refuse", "outermost"] = "refuse",
    features: Sequence[str] = (),
) -> Written:
    """Writes JSONL or CoNLL; a path appears whole or not at all.

    `format`: "jsonl" or "conll"; else the name of the file tells, and JSONL where it does not.
    CoNLL: `scheme` "iob2", "iob1", "bioes", "bilou" or "bmes"; `features` become columns between word and tag; spaces,
    scores, other features and context have no place there. Overlapping entities are refused, or only the
    outermost are written and the lost ones counted.
    """
    if format is None and isinstance(target, (str, Path)):
        format = OF_SUFFIX.get(Path(target).suffix.lower())
    format = format or "jsonl"
    if format not in FORMATS:
        raise SpanwrightError(f"format is {format!r}; expected one of {', '.join(map(repr, FORMATS))}")
    if nested not in ("refuse", "outermost"):
        raise SpanwrightError(f"nested is {nested!r}; expected 'refuse' or 'outermost'")
    scheme = scheme_of(scheme)
    if scheme not in SCHEMES:
        raise SpanwrightError(f"scheme is {scheme!r}; expected one of {', '.join(map(repr, SCHEMES))} to write")
    written = Written()
    if format == "jsonl":
        chunks = _jsonl(sentences, written)
    else:
        chunks = _marked(_conll(sentences, scheme, nested == "outermost", features, written))
    if isinstance(target, (str, Path)):
        with whole_file(Path(target)) as file:
            file.writelines(chunks)
    else:
        target.writelines(chunks)
    if written.lost:
        name = target if isinstance(target, (str, Path)) else getattr(target, "name", "<output>")
        log.warning("%s: %d inner entities were not written; CoNLL holds only the outermost", name, written.lost)
    return written


@contextmanager
def whole_file(path: Path) -> Iterator[IO[str]]:
    """A UTF-8 file to write that takes its name only when all went well."""
    try:
        path = Path(os.path.realpath(path))  # a link stays a link
        if path.exists() and not path.is_file():
            if path.is_dir():
                raise SpanwrightError(f"{path} is a folder; expected the name of a file to write")
            with path.open("w", encoding="utf-8", newline="\n") as file:
                yield file  # a pipe or a terminal cannot be replaced
            return
        if not path.parent.is_dir():
            raise SpanwrightError(f"{path} cannot be written: there is no folder {path.parent}")
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
        file = unfinished.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise SpanwrightError(f"{path} cannot be written: {error.strerror}") from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        with suppress(FileNotFoundError):
            unfinished.unlink()
        raise


def _jsonl(sentences: Iterable[Sentence], written: Written) -> Iterator[str]:
    for number, sentence in enumerate(sentences, 1):
        _check(sentence, number)
        for name in sentence.features:
            if name in RESERVED:
                raise SpanwrightError(f"{_named(sentence, number)} has a feature {name!r}; that key is taken")
        try:
            line = json.dumps(row_of(sentence), ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
            line.encode()
        except ValueError as error:
            raise SpanwrightError(f"{_named(sentence, number)} cannot be written as JSON: {error}") from None
        written.sentences += 1
        written.entities += len(sentence.entities)
        yield line


def _conll(
    sentences: Iterable[Sentence], scheme: str, outer: bool, features: Sequence[str], written: Written
) -> Iterator[str]:
    doc = ""
    for number, sentence in enumerate(sentences, 1):
        _check(sentence, number)
        if sentence.doc != doc:
            doc = sentence.doc
            yield f"{DOCUMENT} {_cell(doc, sentence, number)}" + "\tO" * (1 + len(features)) + "\n\n"
        if sentence.id:
            yield f"# id = {_cell(sentence.id, sentence, number)}\n"
        flat = _flat(sentence, number, outer)
        columns = [sentence.words, *(_feature(sentence, name, number) for name in features)]
        columns.append(tuple(encode(len(sentence), flat, scheme)))
        for word, *others in zip(*columns, strict=True):
            if word == DOCUMENT or word.startswith(DOCUMENT + " "):
                raise SpanwrightError(
                    f"{_named(sentence, number)} has the word {word!r}, which starts a document in CoNLL"
                )
            cells = [_cell(word, sentence, number), *(_cell(value, sentence, number, " ") for value in others)]
            yield "\t".join(cells) + "\n"
        yield "\n"
        written.sentences += 1
        written.entities += len(flat)
        written.lost += len(sentence.entities) - len(flat)


def _check(sentence: Sentence, number: int) -> None:
    """What `read` would refuse is not written."""
    name, length = _named(sentence, number), len(sentence)
    if not length or not all(sentence.words):
        raise SpanwrightError(f"{name} has {'an empty word' if length else 'no word'}; expected words")
    for entity in sentence.entities:
        if not 0 <= entity.start < entity.end <= length:
            raise SpanwrightError(f"{name}: {entity} lies outside its {length} words")
        if not entity.label.strip():
            raise SpanwrightError(f"{name}: {entity} has no label")
    if sentence.spaces and len(sentence.spaces) != length:
        raise SpanwrightError(f"{name} has {len(sentence.spaces)} spaces for {length} words; expected one for each")
    for key, values in sentence.features.items():
        if len(values) != length:
            raise SpanwrightError(
                f"{name} has {len(values)} values of {key!r} for {length} words; expected one for each"
            )


def _flat(sentence: Sentence, number: int, outer: bool) -> frozenset[Entity]:
    flat = outermost(sentence.entities)
    if not outer and len(flat) < len(sentence.entities):
        lost = min(sentence.entities - flat)
        rival = min(entity for entity in flat if entity.overlaps(lost))
        raise SpanwrightError(
            f"{_named(sentence, number)}: {_words(sentence, lost)} overlaps {_words(sentence, rival)}; one tag a word "
            "cannot hold both: write JSONL, or only the outermost entities (nested='outermost')"
        )
    return flat


def _words(sentence: Sentence, entity: Entity) -> str:
    return f"{shown(' '.join(sentence.words[entity.start : entity.end]))} ({entity.label})"


def _feature(sentence: Sentence, name: str, number: int) -> tuple[str, ...]:
    if name not in sentence.features:
        known = ", ".join(sentence.features) or "none"
        raise SpanwrightError(f"{_named(sentence, number)} has no feature {name!r}; it has {known}")
    return sentence.features[name]


def _cell(value: str, sentence: Sentence, number: int, trimmed: str = "") -> str:
    """A value that a row of CoNLL can hold; blanks around a word are its own, around another cell they are trimmed."""
    if any(character in value for character in "\t\n\r") or value != value.strip(trimmed):
        what = f"{shown(value)} cannot be written as CoNLL"
        raise SpanwrightError(f"{_named(sentence, number)}: {what}: expected no tab, line break or outer blank")
    return value


def _marked(chunks: Iterable[str]) -> Iterator[str]:
    """A mark of its own for a file that begins with U+FEFF: readers take the first one for the byte order mark."""
    for i, chunk in enumerate(chunks):
        yield "\ufeff" + chunk if not i and chunk.startswith("\ufeff") else chunk


def _named(sentence: Sentence, number: int) -> str:
    return f"sentence {number}" + f" ({sentence.id})" * bool(sentence.id)
