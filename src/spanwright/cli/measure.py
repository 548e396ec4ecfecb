"""A tagger against gold: on the words as given, or on the text they came from."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from spanwright.cli.options import data_of
from spanwright.evaluate import Report, Scorer
from spanwright.evaluate import evaluate as compare
from spanwright.folder import save_whole
from spanwright.prepare import read_split
from spanwright.tagger import Tagger
from spanwright.text import rebuild
from spanwright.types import Entity, Mention, Sentence, SpanwrightError

Row = dict[str, Any]
Tell = Callable[[str], None]


def gold_of(tagger: Tagger, model: str, place: str, split: str, given: Mapping[str, Any], tell: Tell) -> list[Sentence]:
    """The gold sentences, read as the model's training data were, but for what is `given`."""
    config = replace(data_of(model), words=tagger.rule.words, sentences=tagger.rule.sentences, **given)
    sentences = read_split(config, place, split, tagger.encoder.config.context, tell)
    counts = Counter(entity.label for sentence in sentences for entity in sentence.entities)
    strange = [f"{label} ({count})" for label, count in counts.most_common() if label not in tagger.labels]
    if strange:
        tell(f"warning: the model does not know {', '.join(strange[:10])}. It knows: {', '.join(tagger.labels)}")
    if not counts:
        tell(f"warning: {place} has no gold entity. For CoNLL files look at --tag-column")
    return sentences


def measured(tagger: Tagger, gold: list[Sentence]) -> tuple[Report, Iterable[Row]]:
    """On the words as given."""
    found = tagger.predict(gold)
    rows = (
        {
            **{name: value for name, value in (("id", sentence.id), ("doc", sentence.doc)) if value},
            "tokens": list(sentence.words),
            "entities": [_words_row(entity) for entity in sorted(sentence.entities)],
            "predicted": [{**_words_row(entity), "score": round(entity.score, 6)} for entity in sorted(entities)],
        }
        for sentence, entities in zip(gold, found, strict=True)
    )
    return compare(gold, found), rows


def measured_in_text(tagger: Tagger, gold: list[Sentence]) -> tuple[Report, Iterable[Row]]:
    """On the text they came from, which the tagger cuts into words itself; spans are compared by characters."""
    unknown = next((sentence for sentence in gold if len(sentence) > 1 and not sentence.spaces), None)
    if unknown is not None:
        start = " ".join(unknown.words[:8])
        raise SpanwrightError(
            f'the text of "{start} ..." cannot be rebuilt: nobody says where its spaces are. '
            "--raw expects a corpus with space_after, one true or false a token."
        )
    documents = list(rebuild(gold, tagger.rule))
    found = list(tagger.stream(document.text for document in documents))
    scorer = Scorer()
    for document, answer in zip(documents, found, strict=True):
        scorer.add(
            Sentence(document.words, frozenset(map(_in_characters, document.entities))),
            map(_in_characters, answer.entities),
        )
    rows = (
        {
            **({"id": document.id} if document.id else {}),
            "text": document.text,
            "entities": [_text_row(mention) for mention in document.entities],
            "predicted": [{**_text_row(mention), "score": round(mention.score, 6)} for mention in answer.entities],
        }
        for document, answer in zip(documents, found, strict=True)
    )
    # Lengths are in characters here, which the tables of lengths do not mean.
    return replace(scorer.report(), sentences=len(gold), by_length={}, by_sentence_length={}), rows


def save_rows(path: Path, rows: Iterable[Row]) -> None:
    """JSONL, compressed if the name ends so; the same rows give the same bytes."""
    content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    packed = gzip.compress(content, mtime=0) if path.suffix == ".gz" else content
    save_whole(path, lambda place: place.write_bytes(packed))


def _in_characters(mention: Mention) -> Entity:
    return Entity(mention.start_char, mention.end_char, mention.label)


def _words_row(entity: Entity) -> Row:
    return {"start": entity.start, "end": entity.end, "label": entity.label}


def _text_row(mention: Mention) -> Row:
    return {"start": mention.start_char, "end": mention.end_char, "label": mention.label}
