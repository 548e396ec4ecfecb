"""A row of text with character spans as sentences of words."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from spanwright.data.findings import BadRecord
from spanwright.data.jsonl import Row, entities_of, name_in, text_of
from spanwright.text import CutWord, TextRule, Tokenizer, in_order, read_text, sentences_of, to_words
from spanwright.types import Document, Mention, Sentence

Cut = Literal["widen", "refuse", "report"]


@dataclass(frozen=True)
class TextReading:
    """How raw text becomes words, and what is done with an entity that cuts one."""

    rule: TextRule = field(default_factory=TextRule)
    tokenizer: Tokenizer | None = None
    cut: Cut = "widen"


def sentences_in_text(row: Row, name: str, how: TextReading, notes: list[str], widened: list[str]) -> list[Sentence]:
    """The sentences of a row in characters; `name` stands in where the row names no document.

    `notes` receives what was passed over, `widened` the entities that were taken wider than they were given.
    """
    text = text_of(row)
    given = entities_of(row, len(text), "characters")
    identity = name_in(row, "id") or name_in(row, "doc") or name
    document = read_text(text, how.rule, how.tokenizer, id=identity)
    if not document.offsets:
        raise BadRecord("text has no word", "at least one word")
    mentions: dict[Mention, None] = {}
    for start_char, end_char, label, score in given:
        mention = _mention(document, start_char, end_char, label, score, how.cut, widened)
        if mention in mentions:
            notes.append(f"entity {mention.text!r} ({label}) is there twice")
        mentions[mention] = None
    sentences = sentences_of(replace(document, entities=in_order(mentions)))
    doc = name_in(row, "doc")
    return [replace(sentence, doc=doc) for sentence in sentences] if doc else sentences


def _mention(
    document: Document, start_char: int, end_char: int, label: str, score: float, cut: Cut, widened: list[str]
) -> Mention:
    given = f"entity {start_char}:{end_char} {label} ({document.text[start_char:end_char]!r})"
    try:
        start, end = to_words(document, start_char, end_char, cut="refuse")
    except CutWord as error:
        if cut == "refuse":
            raise BadRecord(f"{given}: {error}", "entities of whole words; cut='widen' takes the whole word") from None
        start, end = to_words(document, start_char, end_char, cut="widen")
        widened.append(f"{given}: {error}; the whole word was taken")
    except ValueError as error:
        raise BadRecord(f"{given}: {error}", "an entity with at least one word") from None
    first, last = document.offsets[start][0], document.offsets[end - 1][1]
    return Mention(first, last, label, document.text[first:last], score, start, end)
