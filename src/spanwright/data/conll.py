"""CoNLL: one word and its tag a line, an empty line after each sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from spanwright.data.findings import BadRecord, Findings
from spanwright.data.tags import Mended, Tag, decode, parse_tag
from spanwright.types import Sentence, SpanwrightError, shown

DOCUMENT = "-DOCSTART-"
FILLERS = frozenset({"-X-", "O", "_", "-"})
COMMENT = re.compile(
    r"#\s?(id|sent_id|newdoc id|newdoc|newpar id|newpar|doc|doc_id|text|source|global\.columns)\s*=\s?(.*)"
)
# MultiCoNER's own: an id without "=", followed by a tab.
DOMAIN = re.compile(r"# id (\S+)\tdomain=.*")


@dataclass(frozen=True)
class Columns:
    """Which column holds what, counted from 0; a negative number counts from the last."""

    word: int = 0
    tag: int | None = -1  # None: there are no tags
    features: Mapping[str, int] = field(default_factory=dict)

    def least(self) -> int:
        """The fewest columns that hold all of it, so that the tag is not the word."""
        places = [self.word, *([] if self.tag is None else [self.tag]), *self.features.values()]
        return max(len(set(places)), *(place + 1 if place >= 0 else -place for place in places))


@dataclass
class _Open:
    """The sentence that is being read."""

    words: list[str] = field(default_factory=list)
    tags: list[Tag] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    features: dict[str, list[str]] = field(default_factory=dict)
    id: str = ""
    good: bool = True


class ConllReader:
    """Reads lines into sentences; what is wrong goes to `bad`, and a sentence with a bad line is left out."""

    def __init__(self, file: str, columns: Columns, scheme: str, comments: bool, bad: Findings):
        self._file = file
        self._columns = columns
        self._scheme = scheme
        self._comments = comments
        self._bad = bad
        self._width: tuple[int, int] | None = None  # how many columns, and the line that said so
        self._doc = ""
        self._documents = 0
        self._now = _Open()
        self.mended = Mended(scheme, file)

    def sentences(self, lines: Iterable[tuple[int, str | None]]) -> Iterator[Sentence]:
        """`lines` are numbered; None is a line that could not be decoded and was reported."""
        for number, line in lines:
            if line is None:
                self._now.good = False
            elif "\r" in line:
                where = f"{self._file}:{number}"
                self._bad.add(where, "a carriage return within the line", "lines that end in LF or CR LF")
                self._now.good = False
            elif not line.strip(" \t"):
                yield from self._finished()
            elif line == DOCUMENT or line.startswith((DOCUMENT + " ", DOCUMENT + "\t")):
                yield from self._finished()
                self._documents += 1
                name = _document_name(line)
                self._doc = str(self._documents) if name is None else name
            elif not self._is_comment(line):
                self._row(number, line)
        yield from self._finished()

    def _finished(self) -> Iterator[Sentence]:
        done = self._now
        if not done.words and done.good:
            return  # an id that was read stays for the sentence to come
        self._now = _Open()
        if done.good:
            self.mended.add(done.tags, done.lines)
            features = {name: tuple(values) for name, values in done.features.items()}
            entities = decode(done.tags)
            yield Sentence(tuple(done.words), entities, features=features, id=done.id, doc=self._doc)

    def _row(self, number: int, line: str) -> None:
        try:
            cells = self._cells(number, line)
            columns = self._columns
            if not cells[columns.word]:
                raise BadRecord("the word is empty", "a word")
            tag = ("O", "") if columns.tag is None else parse_tag(cells[columns.tag], self._scheme)
        except BadRecord as error:
            self._bad.add(f"{self._file}:{number}", error.wrong, error.expected)
            self._now.good = False
            return
        self._now.words.append(cells[columns.word])
        self._now.tags.append(tag)
        self._now.lines.append(number)
        for name, place in columns.features.items():
            self._now.features.setdefault(name, []).append(cells[place])

    def _cells(self, number: int, line: str) -> list[str]:
        cells = split(line)
        if self._width is None and len(cells) >= self._columns.least():
            self._width = len(cells), number
            self._check_columns(len(cells))
        if self._width is None:
            least = self._columns.least()
            raise BadRecord(f"{_columns_in(cells)}: {shown(line)}", f"at least {least}, separated by tabs or spaces")
        if len(cells) != self._width[0]:
            expected = f"{self._width[0]} as in line {self._width[1]}"
            raise BadRecord(f"{_columns_in(cells)}: {shown(line)}", expected)
        return cells

    def _check_columns(self, n_cells: int) -> None:
        word, tag = self._columns.word, self._columns.tag
        if tag is not None and word % n_cells == tag % n_cells:
            raise SpanwrightError(
                f"{self._file}: words and tags are to be read from the same column, {word % n_cells} of {n_cells} "
                f"(word_column={word}, tag_column={tag}). Expected two columns; they count from 0, negative ones from "
                "the last"
            )

    def _is_comment(self, line: str) -> bool:
        if self._now.words:
            return self._comments and _hash(line)
        match = DOMAIN.fullmatch(line)
        if match:
            self._now.id = match[1]
            return True
        # A row whose word is "#" has its tag after a tab, or no "=" after a known key.
        match = None if "\t" in line else COMMENT.fullmatch(line)
        if match is None:
            return self._comments and _hash(line)
        if match[1] in ("id", "sent_id"):
            self._now.id = match[2]
        elif match[1] in ("newdoc id", "doc", "doc_id"):
            self._doc = match[2]
        return True


def split(line: str) -> list[str]:
    """The cells of a row: at tabs if it has any, else at spaces. Other blanks (U+00A0, U+3000) may be in a word."""
    line = line.rstrip(" \t")
    if "\t" in line:
        first, *others = line.split("\t")
        return [first, *(cell.strip(" ") for cell in others)]
    return [cell for cell in line.split(" ") if cell]


def _document_name(line: str) -> str | None:
    """The name on a line that starts a document, in its first cell (``-DOCSTART- name``) or after it; None without."""
    first, tab, _ = line.partition("\t")
    if tab and first != DOCUMENT:
        return first[len(DOCUMENT) + 1 :]
    return " ".join(cell for cell in split(line)[1:] if cell not in FILLERS) or None


def _columns_in(cells: list[str]) -> str:
    return f"{len(cells)} column{'' if len(cells) == 1 else 's'}"


def _hash(line: str) -> bool:
    return line == "#" or line.startswith("# ")
