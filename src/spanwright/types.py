"""The nouns of Spanwright. Standard library only.

Everything is measured in **words**, ``start:end``, end exclusive. Characters exist in two places: in
`text.py`, which makes them, and in `Document` and `Mention`, which carry them to the user.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class Entity:
    """Words ``start:end`` carry `label`. Equality ignores the score, so set equality is exact match."""

    start: int
    end: int
    label: str
    score: float = field(default=1.0, compare=False)

    def __len__(self) -> int:
        return self.end - self.start

    def overlaps(self, other: Entity) -> bool:
        return self.start < other.end and other.start < self.end

    def contains(self, other: Entity) -> bool:
        return self.start <= other.start and other.end <= self.end

    def crosses(self, other: Entity) -> bool:
        """They overlap and neither contains the other."""
        return self.overlaps(other) and not self.contains(other) and not other.contains(self)

    def shifted(self, words: int) -> Entity:
        return replace(self, start=self.start + words, end=self.end + words)


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words and the entities in them; `left` and `right` are read by the encoder and never labelled."""

    words: tuple[str, ...]
    entities: frozenset[Entity] = frozenset()
    left: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    features: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)  # e.g. part of speech
    id: str = ""
    doc: str = ""  # sentences of one document follow one another and share it
    spaces: tuple[bool, ...] = ()  # whether a space follows each word; () where nobody knows

    def __len__(self) -> int:
        return len(self.words)


@dataclass(frozen=True, slots=True, order=True)
class Mention:
    """An entity in a document: ``document.text[start_char:end_char] == text``, words ``start:end``."""

    start_char: int
    end_char: int
    label: str
    text: str = field(compare=False)
    score: float = field(default=1.0, compare=False)
    start: int = field(default=-1, compare=False)
    end: int = field(default=-1, compare=False)

    def to_dict(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in ("text", "label", "score", "start_char", "end_char", "start", "end")
        }


@dataclass(frozen=True, slots=True)
class Document:
    """A text, where its words lie, which words make a sentence, and the entities found (or given)."""

    text: str
    offsets: tuple[tuple[int, int], ...]  # characters start:end of each word
    sentences: tuple[tuple[int, int], ...]  # words start:end of each sentence
    entities: tuple[Mention, ...] = ()  # in order of (start_char, -end_char)
    id: str = ""
    left: tuple[str, ...] = ()  # words before and after it, for an encoder that reads context
    right: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.text[start:end] for start, end in self.offsets)

    def to_dict(self) -> dict[str, Any]:
        row: dict[str, Any] = {"text": self.text, "entities": [mention.to_dict() for mention in self.entities]}
        return {"id": self.id, **row} if self.id else row


class Labels:
    """The entity labels of a model, in a fixed order that is saved with it."""

    def __init__(self, names: Iterable[str]):
        self.names = tuple(names)
        self._index = {name: i for i, name in enumerate(self.names)}
        if len(self._index) != len(self.names):
            raise ValueError(f"labels must differ from one another, got {self.names}")

    @classmethod
    def of(cls, sentences: Iterable[Sentence]) -> Labels:
        """Every label that occurs, in alphabetical order."""
        return cls(sorted({entity.label for sentence in sentences for entity in sentence.entities}))

    def index(self, name: str) -> int:
        return self._index[name]

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __getitem__(self, index: int) -> str:
        return self.names[index]

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Labels) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"Labels({list(self.names)})"


class SpanwrightError(Exception):
    """Something the user can put right. The message says what was given, what was expected, what to do."""


class WorkFailed(SpanwrightError):
    """The call was right; the work itself did not succeed."""


def shown(value: object) -> str:
    """A value as it may stand in a message: never long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
