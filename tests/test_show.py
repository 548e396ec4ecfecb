"""Documents as people and programs see them."""

from __future__ import annotations

import colorsys
import json
import re
from collections import defaultdict
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanwright.show import STYLE, conll, html, html_page, jsonl, tree
from spanwright.terminal import width
from spanwright.types import Document, Mention

Found = tuple[str, str, float]


def document(text: str, *found: Found, sentences: int = 1, id: str = "") -> Document:
    """Words are runs of word characters or single other ones; as many `sentences`, each ended by a full stop."""
    offsets = tuple((match.start(), match.end()) for match in re.finditer(r"\w+|[^\w\s]", text))
    stops = [i + 1 for i, (start, _) in enumerate(offsets) if text[start] == "."]
    ends = [*stops[: sentences - 1], len(offsets)]
    mentions = [Mention(text.index(t), text.index(t) + len(t), label, t, score) for t, label, score in found]
    ordered = sorted(mentions, key=lambda m: (m.start_char, -m.end_char))
    return Document(text, offsets, tuple(zip([0, *ends], ends, strict=False)), tuple(ordered), id)


GENES = document(
    "The IL-2 gene enhancer binds NF-kappa B. It does. B cells too",
    ("IL-2 gene enhancer", "DNA", 0.98),
    ("IL-2", "protein", 0.914),
    ("NF-kappa B", "protein", 0.99),
    ("B cells", "cell", 1.0),
    sentences=3,
)
CROSSING = document("one two three four", ("one two three", "A", 0.5), ("two", "C", 0.6), ("three four", "B", 0.7))

HARD = "ab <&>\"'\n\r\t\x00\x1b\x85\u2028北👍\u200d\u202eש\ud800{}"


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Any text with any mentions: nested, crossing, twice the same span, over the ends of words and sentences."""
    text = draw(st.text(HARD, max_size=25))
    offsets = tuple((match.start(), match.end()) for match in re.finditer(r"\S", text))
    sentences: tuple[tuple[int, int], ...] = ()
    if cut := draw(st.integers(0, len(offsets))):  # 0: a document without sentences
        sentences = tuple(s for s in ((0, cut), (cut, len(offsets))) if s[0] < s[1])
    places = st.integers(0, max(0, len(text) - 1))
    mentions = set()
    for _ in range(draw(st.integers(0, 6)) if text else 0):
        start = draw(places)
        end = draw(st.integers(start + 1, len(text)))
        label = draw(st.sampled_from(["A", "B", "<script>", "l\n\x1b\tl"]))
        mentions.add(Mention(start, end, label, text[start:end], draw(st.sampled_from([0.25, 0.5]))))
    return Document(text, offsets, sentences, tuple(sorted(mentions, key=lambda m: (m.start_char, -m.end_char))))


# For the terminal.


def test_a_tree_is_the_sentence_and_its_entities_in_one_another() -> None:
    assert tree(GENES) == (
        "The IL-2 gene enhancer binds NF-kappa B.\n"
        "├─ IL-2 gene enhancer  DNA 0.98\n"
        "│  └─ IL-2             protein 0.91\n"
        "└─ NF-kappa B          protein 0.99\n"
        "\n"
        "It does.\n"
        "\n"
        "B cells too\n"
        "└─ B cells  cell 1.00"
    )


def test_a_tree_branches_at_every_depth() -> None:
    found = [("a b c d", "1", 1.0), ("a b", "2", 1.0), ("b", "3", 1.0), ("c d", "4", 1.0), ("d", "5", 1.0)]
    assert tree(document("a b c d e", *found, ("e", "6", 1.0))).splitlines()[1:] == [
        "├─ a b c d  1 1.00",
        "│  ├─ a b   2 1.00",
        "│  │  └─ b  3 1.00",
        "│  └─ c d   4 1.00",
        "│     └─ d  5 1.00",
        "└─ e        6 1.00",
    ]


def test_a_span_with_two_labels_has_one_line_the_better_first() -> None:
    shown = tree(document("x y", ("x y", "worse", 0.3), ("x y", "better", 0.7)))
    assert shown.splitlines()[1:] == ["└─ x y  better 0.70, worse 0.30"]


def test_crossing_entities_stand_side_by_side() -> None:
    assert tree(CROSSING).splitlines()[1:] == [
        "├─ one two three  A 0.50",
        "│  └─ two         C 0.60",
        "└─ three four     B 0.70",
    ]


def test_wide_characters_keep_the_column() -> None:
    found = [("北京大学的👨\u200d👩\u200d👧", "人", 0.9), ("北京", "地", 0.8), ("abc", "X", 0.7)]
    rows = tree(document("北京大学的👨\u200d👩\u200d👧 abc", *found)).splitlines()[1:]
    assert {width(row[: row.index(mark)]) for row, mark in zip(rows, "人地X", strict=True)} == {17}


def test_a_very_long_entity_does_not_push_the_others_away() -> None:
    long = "word " * 40 + "end"
    rows = tree(document(f"{long} x", (long, "A", 1.0), ("x", "B", 1.0))).splitlines()
    assert rows[1] == f"├─ {long}  A 1.00"
    assert rows[2] == "└─ x  B 1.00"


def test_a_tree_never_sends_a_control_to_the_terminal() -> None:
    hostile = document("red \x1b[31m\r\n alert\x07 .", ("\x1b[31m\r\n alert", "la\x1b[0mbel\n", 0.5))
    assert tree(hostile) == "red ␛[31m alert␇ .\n└─ ␛[31m alert  la␛[0mbel  0.50"


@given(documents())
def test_a_tree_shows_every_mention_on_one_line_each_span(any_document: Document) -> None:
    shown = tree(any_document)
    spans = {(m.start_char, m.end_char) for m in any_document.entities}
    lines = shown.split("\n")
    assert len([line for line in lines if "─ " in line]) == len(spans)
    assert all(len(line.splitlines()) <= 1 for line in lines)
    assert len(re.findall(r" 0\.(?:25|50)\b", shown)) == len(any_document.entities)
    shown.encode("utf-8")


def test_a_tree_of_nothing() -> None:
    assert tree(Document("", (), ())) == ""
    assert tree(Document(" just this ", (), ())).strip() == "just this"


def test_very_deep_nesting_is_no_trouble() -> None:
    text = "x" * 1500
    mentions = tuple(Mention(0, end, "A", text[:end]) for end in range(1500, 0, -1))
    deep = Document(text, ((0, 1500),), ((0, 1),), mentions)
    assert len(tree(deep).splitlines()) == 1501
    assert html(deep).count("</mark>") == 1500


# For the browser.


class Boxes(HTMLParser):
    """Reads the boxes back: the text, and for each title the places in the text that its boxes hold."""

    def __init__(self, page: str):
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.places: dict[str, set[int]] = defaultdict(set)
        self.tags: list[str] = []
        self.labels: list[str] = []
        self.deepest = 0
        self.elements: set[str] = set()
        self._open: list[tuple[str, str]] = []
        self.feed(page)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        if tag != "meta":
            self._open.append((tag, dict(attributes).get("title") or ""))
        if tag == "b":
            self.labels.append("")
        self.deepest = max(self.deepest, len([name for name, _ in self._open if name == "mark"]))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        inside = [tag for tag, _ in self._open]
        if "b" in inside:
            self.labels[-1] += data
        elif "div" in inside:
            for tag, title in self._open:
                if tag == "mark":
                    self.places[title] |= set(range(len(self.text), len(self.text) + len(data)))
            self.text += data


def test_nested_entities_are_nested_boxes() -> None:
    page = html(GENES)
    boxes = Boxes(page)
    assert page.startswith("<!DOCTYPE html>")
    assert boxes.text == GENES.text
    assert boxes.deepest == 2
    assert boxes.labels == ["protein 0.91", "DNA 0.98", "protein 0.99", "cell 1.00"]
    for mention in GENES.entities:
        assert set(range(mention.start_char, mention.end_char)) <= boxes.places[f"{mention.label} {mention.score:.2f}"]


def test_crossing_entities_are_cut_and_labelled_once() -> None:
    boxes = Boxes(html(CROSSING, page=False))
    assert boxes.places == {
        "A 0.50": set(range(13)),
        "C 0.60": set(range(4, 7)),
        "B 0.70": set(range(8, 18)),
    }
    assert boxes.labels == ["C 0.60", "A 0.50", "B 0.70"]


@given(documents())
def test_boxes_hold_what_the_mentions_hold(any_document: Document) -> None:
    boxes = Boxes(html(any_document))
    expected: dict[str, set[int]] = defaultdict(set)
    for start, end in {(m.start_char, m.end_char) for m in any_document.entities}:
        same = [m for m in any_document.entities if (m.start_char, m.end_char) == (start, end)]
        same.sort(key=lambda m: (-m.score, m.label))
        title = ", ".join(f"{m.label} {m.score:.2f}" for m in same).replace("l\n\x1b\tl", "l ␛ l")
        expected[title] |= set(range(start, end))
    assert boxes.places == expected
    assert len(boxes.labels) == len(any_document.entities)
    assert len(boxes.text) == len(any_document.text)
    assert boxes.elements <= {"html", "head", "meta", "title", "style", "body", "div", "mark", "b"}


def test_nothing_of_the_text_or_of_a_label_becomes_markup() -> None:
    attack = "<script>alert(1)</script>"
    quotes = "\" onmouseover='x' x=\""
    page = html(document(f"{attack} & {quotes}", (attack, attack, 1.0), (quotes, quotes, 1.0), id=attack))
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    boxes = Boxes(page)
    assert boxes.text == f"{attack} & {quotes}"
    assert set(boxes.places) == {f"{attack} 1.00", f"{quotes} 1.00"}
    assert "script" not in boxes.elements


def test_controls_and_line_ends_in_a_page() -> None:
    boxes = Boxes(html(Document("a\r\nb\rc\td\x00\x1be\ud800", (), ()), page=False))
    assert boxes.text == "a \nb\nc\td␀␛e\ufffd"


def test_a_label_has_one_colour_everywhere() -> None:
    def hue(text: str, label: str) -> str:
        found = re.search(r'<mark class="box" style="--hue:(\d+)', html(document(text, (text, label, 1.0)), page=False))
        assert found
        return found[1]

    assert hue("one", "protein") == hue("two", "protein") == "338"  # the same in every process
    assert len({hue("one", label) for label in ("protein", "DNA", "RNA", "cell_line", "cell_type")}) == 5


def test_labels_can_be_read_on_their_ground_whatever_the_colour() -> None:
    found = re.search(r"color: #fff; background: hsl\(var\(--hue\) (\d+)% (\d+)%\)", STYLE)
    assert found
    for hue in range(360):
        ground = colorsys.hls_to_rgb(hue / 360, int(found[2]) / 100, int(found[1]) / 100)
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in ground]
        luminance = sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
        assert 1.05 / (luminance + 0.05) >= 4.5  # what WCAG asks of small text


def test_a_page_and_a_part_of_one_need_nothing_else() -> None:
    part = html(GENES, page=False)
    assert part.startswith("<style>") and "<html" not in part and "<body" not in part
    assert "color-scheme: light dark" in html(GENES)
    for shown in (part, html(GENES)):
        assert not re.search(r"https?:|src=|href=|url\(|@import", shown)


def test_one_page_with_many_documents_has_their_names() -> None:
    named = document("x", ("x", "A", 1.0), id="first <one>")
    page = html_page([named, GENES])
    assert page.count("<style>") == page.count("</html>") == 1
    assert "<h2>first &lt;one&gt;</h2>" in page
    assert Boxes(page).text == "x" + GENES.text


# For programs.


@given(documents())
def test_jsonl_is_one_line_that_says_it_all(any_document: Document) -> None:
    line = jsonl(any_document)
    assert len(line.splitlines()) == 1
    line.encode("utf-8")
    assert json.loads(line) == any_document.to_dict()


def test_jsonl_leaves_letters_as_they_are() -> None:
    assert "北京 é 😀" in jsonl(document("北京 é 😀", ("北京", "地", 1.0), id="7"))


def test_conll_writes_the_outermost_entities() -> None:
    assert conll(GENES) == (
        "The\tO\nIL\tB-DNA\n-\tI-DNA\n2\tI-DNA\ngene\tI-DNA\nenhancer\tI-DNA\nbinds\tO\n"
        "NF\tB-protein\n-\tI-protein\nkappa\tI-protein\nB\tI-protein\n.\tO\n"
        "\n"
        "It\tO\ndoes\tO\n.\tO\n"
        "\n"
        "B\tB-cell\ncells\tI-cell\ntoo\tO\n"
    )


def test_conll_prefers_the_longer_then_the_better() -> None:
    assert conll(CROSSING) == "one\tB-A\ntwo\tI-A\nthree\tI-A\nfour\tO\n"
    same = document("x y", ("x y", "worse", 0.3), ("x y", "better", 0.7))
    assert conll(same) == "x\tB-better\ny\tI-better\n"


def test_conll_cuts_at_the_end_of_a_sentence_and_tells_neighbours_apart() -> None:
    over = document("a b . c d", ("b . c", "A", 1.0), ("d", "A", 1.0), sentences=2)
    assert conll(over) == "a\tO\nb\tB-A\n.\tI-A\n\nc\tB-A\nd\tB-A\n"


def test_conll_has_two_columns_whatever_is_in_a_word_or_label() -> None:
    odd = Document("a b\tc\nd", ((0, 3), (4, 5), (6, 7)), ((0, 3),), (Mention(0, 5, "my label\n", "a b\tc"),))
    assert conll(odd) == "a_b\tB-my_label_\nc\tI-my_label_\nd\tO\n"


@given(documents())
def test_conll_has_every_word_once_and_only_legal_tags(any_document: Document) -> None:
    sentences = [block.splitlines() for block in conll(any_document).split("\n\n")]
    rows = [[line.split("\t") for line in lines] for lines in sentences]
    assert [row[0] for lines in rows for row in lines] == list(any_document.words)
    for lines in rows:
        before = "O"
        for _, tag in lines:
            assert tag == "O" or tag[:2] == "B-" or before in ("B-" + tag[2:], "I-" + tag[2:])
            before = tag


@pytest.mark.parametrize("show", [tree, html, jsonl, conll])
def test_a_document_without_entities_can_be_shown(show: object) -> None:
    assert callable(show)
    assert "plain" in show(document("plain text ."))
