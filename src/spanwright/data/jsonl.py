"""JSONL: one sentence a line, in words, or one text a line, in characters. `sentence_of` reads a row.

In words:      {"tokens": ["IL-2", "gene"], "entities": [{"start": 0, "end": 2, "label": "DNA"}], "doc": "a", ...}
In characters: {"text": "Ann met Bo.", "entities": [{"start": 0, "end": 3, "label": "person"}, [8, 10, "person"]]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from math import inf
from typing import Any, NoReturn

from spanwright.data.findings import BadRecord
from spanwright.types import Entity, Sentence, shown

Row = dict[str, Any]
Given = list[tuple[int, int, str, float]]  # entities as given: start, end, label, score

RESERVED = frozenset({"tokens", "text", "entities", "doc", "id", "space_after", "left", "right"})
# Where other tools put their entities. To read such a row as one without entities would be a silent loss.
ELSEWHERE = ("label", "labels", "spans", "ents", "annotations", "ner", "ner_tags", "tags")


def row_in(line: str) -> Row:
    """The JSON object on a line."""
    try:
        row = json.loads(line, parse_constant=_no_number)
    except RecursionError:
        raise BadRecord("JSON nested too deeply", "one object with a list of tokens or a text") from None
    except ValueError as error:
        raise BadRecord(f"not JSON: {error}", "one JSON object on each line") from None
    if not isinstance(row, dict):
        raise BadRecord(f"a JSON {_kind(row)}", "a JSON object {...}")
    if "\\ud" in line or "\\uD" in line:
        _whole_characters(row)
    return row


def sentence_of(row: Row, notes: list[str]) -> Sentence:
    """A row in words as a Sentence; `notes` receives what was passed over."""
    words = _words(row.get("tokens"), "tokens")
    if not words:
        raise BadRecord("tokens is empty", "at least one token")
    if isinstance(row.get("text"), str) and "".join(row["text"].split()) != "".join("".join(words).split()):
        notes.append("'tokens' were read; 'text' says something else and was passed over")
    seen: set[Entity] = set()
    for start, end, label, score in entities_of(row, len(words), "tokens"):
        entity = Entity(start, end, label, score)
        if entity in seen:
            notes.append(f"entity {start}:{end} {label} is there twice")
        seen.add(entity)
    return Sentence(
        words,
        frozenset(seen),
        left=_words(row.get("left", []), "left"),
        right=_words(row.get("right", []), "right"),
        features=_features(row, len(words), notes),
        id=name_in(row, "id"),
        doc=name_in(row, "doc"),
        spaces=_spaces(row.get("space_after"), len(words)),
    )


def text_of(row: Row) -> str:
    """The text of a row in characters."""
    text = row["text"]
    if not isinstance(text, str):
        raise BadRecord(f"text is {shown(text)}", "a string")
    if not text.strip():
        raise BadRecord("text is empty", "at least one word")
    return text


def entities_of(row: Row, length: int, unit: str) -> Given:
    """The entities of a row; `length` is counted in `unit` ("tokens" or "characters")."""
    if "entities" not in row:
        for key in ELSEWHERE:
            if isinstance(row.get(key), list):
                raise BadRecord(f"there is no 'entities', but a list {key!r}", "the entities under the key 'entities'")
        lists = [key for key, value in row.items() if isinstance(value, list) and not key.endswith("entities")]
        for key in get_close_matches("entities", lists, n=1, cutoff=0.8):
            raise BadRecord(f"there is no 'entities', but {key!r}", "the entities under the key 'entities'")
    items = row.get("entities", [])
    if not isinstance(items, list):
        raise BadRecord(f"entities is {shown(items)}", "a list")
    return [_entity(item, length, unit) for item in items]


def name_in(row: Row, key: str) -> str:
    """`doc` or `id`: text, or a whole number as text."""
    value = row.get(key)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise BadRecord(f"{key} is {shown(value)}", "a string")
    return str(value)


def row_of(sentence: Sentence) -> Row:
    """The row of a sentence; `sentence_of` gives the same sentence back."""
    row: Row = {"id": sentence.id} if sentence.id else {}
    row["tokens"] = list(sentence.words)
    if sentence.spaces:
        row["space_after"] = list(sentence.spaces)
    row.update({name: list(values) for name, values in sentence.features.items()})
    for key, words in (("left", sentence.left), ("right", sentence.right)):
        if words:
            row[key] = list(words)
    if sentence.doc:
        row["doc"] = sentence.doc
    ordered = sorted(sentence.entities, key=lambda entity: (entity.start, -entity.end, entity.label))
    row["entities"] = [_row_of_entity(entity) for entity in ordered]
    return row


def _row_of_entity(entity: Entity) -> Row:
    row: Row = {"start": entity.start, "end": entity.end, "label": entity.label}
    return row if entity.score == 1.0 else {**row, "score": entity.score}


def _entity(item: object, length: int, unit: str) -> tuple[int, int, str, float]:
    if isinstance(item, Mapping):
        # A Mention written to JSON has both: start_char in characters, start in words.
        prefer = "_char" if unit == "characters" and "start_char" in item else ""
        start, end = item.get("start" + prefer), item.get("end" + prefer)
        label, score = item.get("label"), item.get("score", 1.0)
    elif isinstance(item, list) and len(item) == 3:
        (start, end, label), score = item, 1.0
    else:
        raise BadRecord(f"entity {shown(item)}", '{"start": ..., "end": ..., "label": ...} or [start, end, label]')
    # bool is an int to Python, but not to the person who wrote the file.
    if type(start) is not int or type(end) is not int:
        raise BadRecord(f"entity {shown(item)}", f"start and end to be whole numbers, counted in {unit}")
    if label is not None and not isinstance(label, str):
        raise BadRecord(f"entity {shown(item)} has the label {shown(label)}", "a label that is a string")
    if label is None or not label.strip():
        raise BadRecord(f"entity {shown(item)} has no label", "a label that is a string and not empty")
    if start >= end:
        raise BadRecord(f"entity {shown(item)} has no {unit}", "start < end (end is exclusive)")
    if start < 0 or end > length:
        raise BadRecord(f"entity {shown(item)} lies outside the {length} {unit}", f"0 <= start < end <= {length}")
    if isinstance(score, bool) or not isinstance(score, (int, float)) or not -inf < score < inf:
        raise BadRecord(f"entity {shown(item)} has the score {shown(score)}", "a number")
    try:
        return start, end, label, float(score)
    except OverflowError:
        raise BadRecord(f"entity {shown(item)} has a score of {len(str(score))} digits", "a number") from None


def _words(value: object, key: str) -> tuple[str, ...]:
    if value is None and key == "tokens":
        raise BadRecord("neither 'tokens' nor 'text' is there", "one of them")
    if not isinstance(value, list):
        raise BadRecord(f"{key} is {shown(value)}", "a list of strings")
    for i, word in enumerate(value):
        if not isinstance(word, str) or not word:
            raise BadRecord(f"{key}[{i}] is {shown(word)}", "a string that is not empty")
    return tuple(value)


def _features(row: Row, length: int, notes: list[str]) -> dict[str, tuple[str, ...]]:
    """Every other list of strings that has one for each word."""
    features = {}
    for key, value in row.items():
        if key in RESERVED or not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            continue
        if len(value) == length:
            features[key] = tuple(value)
        else:
            notes.append(f"{key!r} has {len(value)} values for {length} tokens and was passed over")
    return features


def _spaces(value: object, length: int) -> tuple[bool, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, bool) for item in value):
        raise BadRecord(f"space_after is {shown(value)}", "a list of true and false")
    if len(value) != length:
        raise BadRecord(f"space_after has {len(value)} values for {length} tokens", "one for each token")
    return tuple(value)


def _whole_characters(row: Row) -> None:
    """An escape such as \\ud83d without its other half is no character, and no tokenizer can read it."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise BadRecord(f"half a character, {half}", "both halves of the surrogate pair, or the character") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _kind(value: object) -> str:
    kinds: Iterable[tuple[type, str]] = ((list, "list"), (str, "string"), (bool, "literal"), (int, "number"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "number" if value is not None else "null")
