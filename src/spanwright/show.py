"""A document and its entities as a person, or the next program, wants to see them."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from html import escape
from zlib import crc32

from spanwright.select import outermost
from spanwright.terminal import PICTURES, visible, width
from spanwright.types import Document, Entity, Mention

# A mention wider than this does not push the labels of the others to the right.
WIDEST_COLUMN = 60

# JSON allows these in a string; but some programs end a line at them, and half a surrogate pair cannot be encoded.
ESCAPED_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")

# Colours are see-through, so that the same ones serve a light and a dark page, and deeper boxes are stronger.
STYLE = """\
.spanwright { white-space: pre-wrap; overflow-wrap: anywhere; line-height: calc(2em + .7em * var(--levels)); }
.spanwright mark { color: inherit; background: hsl(var(--hue) 70% 50% / .18); border: 1px solid hsl(var(--hue) 60% 50%);
  border-radius: .3em; margin: 0 .1em; padding: calc(.15em + .3em * var(--levels)) .25em; unicode-bidi: isolate;
  -webkit-box-decoration-break: clone; box-decoration-break: clone; }
.spanwright mark.goes-on { border-inline-end: 2px dotted; }
.spanwright mark.began { border-inline-start: 2px dotted; }
.spanwright b { color: #fff; background: hsl(var(--hue) 55% 28%); border-radius: .3em; margin-inline-start: .4em;
  padding: .1em .35em; font: 600 .65em sans-serif; unicode-bidi: isolate; user-select: none; }
"""
PAGE = """\
<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Entities</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ max-width: 50em; margin: 2em auto; padding: 0 1em; font-family: sans-serif; }}
{style}</style>
</head>
<body>
{body}
</body>
</html>"""

PICTURES_IN_HTML = {code: picture for code, picture in PICTURES.items() if code not in (9, 10)}  # tab, line feed

# Characters start:end, and all that is said of them, the best score first.
Span = tuple[int, int, list[Mention]]


def tree(document: Document) -> str:
    """For a terminal: every sentence, and below it its entities, each under the one that it lies in.

        The IL-2 gene enhancer binds NF-kappa B.
        ├─ IL-2 gene enhancer  DNA 0.98
        │  └─ IL-2             protein 0.91
        └─ NF-kappa B          protein 0.99

    Crossing entities stand side by side. A span with several labels has one line.
    """
    sentences = _sentence_characters(document)
    rows: list[list[tuple[int, Span]]] = [[] for _ in sentences]
    starts = [start for start, _ in sentences]
    at = 0
    for depth, span in _depths(_spans(document)):
        if depth == 0:  # what lies in an entity stays with it
            at = max(0, bisect_right(starts, span[0]) - 1)
        rows[at].append((depth, span))
    blocks = [
        "\n".join([visible(document.text[start:end]), *_branches(document.text, below)])
        for (start, end), below in zip(sentences, rows, strict=True)
    ]
    return "\n\n".join(blocks)


def html(document: Document, page: bool = True) -> str:
    """Nested boxes in the text: a whole page, or with ``page=False`` a part of one. Nothing else is needed to show it.

    Where entities cross, the later one is cut into pieces; dotted sides mark the cuts, and the last piece is labelled.
    """
    return html_page([document]) if page else f"<style>\n{STYLE}</style>\n{_boxes(document)}"


def html_page(documents: Iterable[Document]) -> str:
    """One page with all the documents."""
    parts = []
    for document in documents:
        head = f"<h2>{escape(visible(document.id))}</h2>\n" if document.id else ""
        parts.append(head + _boxes(document))
    return PAGE.format(style=STYLE, body="\n".join(parts))


def jsonl(document: Document) -> str:
    """One line of JSON: the text, and each entity with its characters, words, label and score."""
    row = document.to_dict()
    for entity in row["entities"]:
        entity["score"] = round(entity["score"], 6)
    line = json.dumps(row, ensure_ascii=False)
    return ESCAPED_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


def conll(document: Document) -> str:
    """One word, a tab and its IOB2 tag a line; a line break ends each sentence, so printed there is an empty line.

    One tag a word cannot say more than a flat set of entities: of those that overlap only the outermost is
    written (the longer one, then the one with the better score), and one that runs over the end of a sentence is
    cut there. White space in a word or in a label is written as "_".
    """
    words = [re.sub(r"\s", "_", word) for word in document.words]
    tags = ["O"] * len(words)
    for entity in outermost(_word_entities(document)):
        tags[entity.start : entity.end] = [f"B-{entity.label}"] + [f"I-{entity.label}"] * (len(entity) - 1)
    blocks = []
    for first, last in document.sentences or [(0, len(words))]:
        if tags[first:last] and tags[first].startswith("I-"):
            tags[first] = "B-" + tags[first][2:]
        blocks.append("".join(f"{words[i]}\t{tags[i]}\n" for i in range(first, last)))
    return "\n".join(blocks)


def _spans(document: Document) -> list[Span]:
    """The mentions of the same characters together, outer spans before those inside them."""
    spans: dict[tuple[int, int], list[Mention]] = {}
    for mention in sorted(document.entities, key=lambda m: (m.start_char, -m.end_char, -m.score, m.label)):
        spans.setdefault((mention.start_char, mention.end_char), []).append(mention)
    return [(start, end, mentions) for (start, end), mentions in spans.items()]


def _said(mentions: list[Mention]) -> str:
    return ", ".join(f"{visible(mention.label)} {mention.score:.2f}" for mention in mentions)


def _sentence_characters(document: Document) -> list[tuple[int, int]]:
    """Where each sentence lies in the text; a text without sentences is one."""
    offsets = document.offsets
    found = [(offsets[first][0], offsets[last - 1][1]) for first, last in document.sentences if first < last]
    return found or [(0, len(document.text))]


def _depths(spans: list[Span]) -> list[tuple[int, Span]]:
    """How many spans each one lies in, counted along the innermost ones."""
    rows = []
    ends: list[int] = []  # of the spans that the present one lies in
    for span in spans:
        # One that ends earlier does not hold this span, nor any later one that this span does not hold.
        while ends and ends[-1] < span[1]:
            ends.pop()
        rows.append((len(ends), span))
        ends.append(span[1])
    return rows


def _branches(text: str, rows: list[tuple[int, Span]]) -> list[str]:
    """The lines of one tree, whose rows come in order from the top."""
    lines: list[tuple[str, str, int]] = []  # what stands before the labels, the labels, the columns of the first
    below: set[int] = set()  # the depths at which something follows further down
    for depth, (start, end, mentions) in reversed(rows):
        stems = "".join("│  " if level in below else "   " for level in range(depth))
        shown = visible(text[start:end])
        left = f"{stems}{'├' if depth in below else '└'}─ {shown}"
        lines.append((left, _said(mentions), 3 * (depth + 1) + width(shown)))
        below = {level for level in below if level < depth} | {depth}
    column = max((columns for _, _, columns in lines if columns <= WIDEST_COLUMN), default=0)
    return [left + " " * (column - columns) + "  " + said for left, said, columns in reversed(lines)]


@dataclass
class _Piece:
    """A span, or what a box that it crosses leaves of it."""

    start: int
    end: int
    mentions: list[Mention]
    depth: int  # how many boxes it lies in
    began: bool  # an earlier piece of the span stands before it
    goes_on: bool  # a later piece follows
    levels: int = 0  # of boxes within it


def _pieces(spans: list[Span]) -> list[_Piece]:
    """Boxes that never cross, outer ones first. A span that crosses the box it starts in is cut at that box's end."""
    pieces = []
    waiting = [(start, -end, i, False) for i, (start, end, _) in enumerate(spans)]
    heapify(waiting)
    ends: list[int] = []  # of the boxes around the present place
    while waiting:
        start, minus_end, i, began = heappop(waiting)
        while ends and ends[-1] <= start:
            ends.pop()
        end = min([-minus_end, *ends[-1:]])
        goes_on = end < -minus_end
        if goes_on:
            heappush(waiting, (end, minus_end, i, True))
        pieces.append(_Piece(start, end, spans[i][2], len(ends), began, goes_on))
        ends.append(end)
    heights: dict[int, int] = {}  # depth -> levels of boxes there and within, since the last box around them
    for piece in reversed(pieces):
        piece.levels = heights.pop(piece.depth + 1, 0)
        heights[piece.depth] = max(heights.get(piece.depth, 0), piece.levels + 1)
    return pieces


def _boxes(document: Document) -> str:
    """The text with its spans as nested elements."""
    # As many characters as before, so that places stay; no browser draws the space at the end of a line.
    text = document.text.replace("\r\n", " \n").replace("\r", "\n").translate(PICTURES_IN_HTML)
    parts: list[str] = []
    opened: list[_Piece] = []
    at = 0

    def write_until(place: int) -> None:
        nonlocal at
        parts.append(escape(text[at:place]))
        at = place

    def close_until(place: int) -> None:
        while opened and opened[-1].end <= place:
            write_until(opened[-1].end)
            parts.append(_closing(opened.pop()))

    pieces = _pieces(_spans(document))
    for piece in pieces:
        close_until(piece.start)
        write_until(piece.start)
        parts.append(_opening(piece))
        opened.append(piece)
    close_until(len(text))
    write_until(len(text))
    levels = max((piece.depth + 1 for piece in pieces), default=0)
    return f'<div class="spanwright" dir="auto" style="--levels:{levels}">{"".join(parts)}</div>'


def _opening(piece: _Piece) -> str:
    kinds = " ".join(["box", *["began"] * piece.began, *["goes-on"] * piece.goes_on])
    style = f"--hue:{_hue(piece.mentions[0].label)};--levels:{piece.levels}"
    return f'<mark class="{kinds}" style="{style}" title="{escape(_said(piece.mentions))}">'


def _closing(piece: _Piece) -> str:
    if piece.goes_on:
        return "</mark>"
    return "".join(f'<b style="--hue:{_hue(m.label)}">{escape(_said([m]))}</b>' for m in piece.mentions) + "</mark>"


def _hue(label: str) -> int:
    """The same for a label wherever it appears."""
    return crc32(label.encode("utf-8", "surrogatepass")) % 360


def _word_entities(document: Document) -> list[Entity]:
    """The mentions as words of the document: all those that share a character with them."""
    starts = [start for start, _ in document.offsets]
    ends = [end for _, end in document.offsets]
    found = []
    for mention in document.entities:
        first, last = bisect_right(ends, mention.start_char), bisect_left(starts, mention.end_char)
        if first < last:
            found.append(Entity(first, last, re.sub(r"\s", "_", mention.label), mention.score))
    return found
