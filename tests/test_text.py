"""Raw text to words, sentences and back: the laws for any Unicode text, and each rule by example."""

from __future__ import annotations

import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanwright.text import (
    CutWord,
    SentenceRule,
    TextRule,
    WordRule,
    from_words,
    read_text,
    rebuild,
    sentences_of,
    to_words,
    with_entities,
)
from spanwright.types import Document, Entity, Mention, Sentence, SpanwrightError

FAMILY = "👩\u200d👩\u200d👧"
ENGLAND = "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
NASTY = [
    "\0", "\x1c", "\x7f", "\r\n", "\n", "\r", "\t", " ", "\u00a0", "\u2028", "\u2029", "\u3000", "\x85",
    "\u00ad", "\u200b", "\u200c", "\u200d", "\u200e", "\u202b", "\u202c", "\u2060", "\ufeff", "\ufe0f", "\u0600",
    "\u0301", "\u20e3", "\u0e31", "e\u0301", "𝔘", "🏽", FAMILY, ENGLAND, "🇬🇧", "🇬", "1\ufe0f\u20e3", "한", "ᄒ", "ᅡ", "ᆫ",
    "שלום", "عَرَبِي", "٣٫١٤", "क्षि", "ไทย", "漢", "ー", "ｶﾞ", "。", "！", "」", "…",
]  # fmt: skip
FRAGMENTS = [
    "don't", "N’T", "'s", "’", "'", "l'", "gonna", "cannot", "U.S.", "Dr.", "J.", "e.g.", "p. 5", "1,000.50", "10:30",
    ".5", "http://a.b/c?d=(e).", "www.", "a.b@c.org", "@me", "#tag", "&amp;", "x.com", "IL-2", "C/EBP", "CD4+", "A",
    "b", "7", "_", ".", "...", "!", "?", ",", '"', "(", ")", "-", "--", "/", "&", "The", "[1]", "1.", "* ", "x" * 130,
]  # fmt: skip
TEXTS = st.one_of(
    st.text(st.one_of(st.sampled_from([c for c in NASTY if len(c) == 1]), st.characters(exclude_categories=["Cs"]))),
    st.lists(st.sampled_from(NASTY + FRAGMENTS), max_size=30).map("".join),
)
RULES = st.builds(
    TextRule,
    st.sampled_from([rule for rule in get_args(WordRule) if rule != "custom"]),
    st.sampled_from(get_args(SentenceRule)),
)


def words(text: str, rule: WordRule = "words") -> list[str]:
    return list(read_text(text, TextRule(words=rule)).words)


def sentences(text: str, rule: SentenceRule = "punctuation", word_rule: WordRule = "words") -> list[str]:
    """The text of each sentence, from its first word to its last."""
    document = read_text(text, TextRule(word_rule, rule))
    return [text[document.offsets[a][0] : document.offsets[b - 1][1]] for a, b in document.sentences]


def visible(character: str) -> bool:
    return not character.isspace() and unicodedata.category(character) not in {"Cc", "Cf"}


def lawful(document: Document) -> None:
    """Offsets ascend without overlap, every visible character is in a word, and sentences share out the words."""
    text, edges = document.text, [0, *(edge for span in document.offsets for edge in span), len(document.text)]
    assert edges == sorted(edges)
    assert all(start < end for start, end in document.offsets)
    assert not any(map(visible, "".join(text[end:start] for end, start in zip(edges[::2], edges[1::2], strict=True))))
    limits = [0, *(limit for span in document.sentences for limit in span), len(document.offsets)]
    assert limits[::2] == limits[1::2]
    assert all(start < end for start, end in document.sentences)
    for mention in document.entities:
        assert text[mention.start_char : mention.end_char] == mention.text


@given(TEXTS, RULES)
def test_laws_hold_for_any_text_under_every_rule(text: str, rule: TextRule) -> None:
    document = read_text(text, rule)
    lawful(document)
    assert document.text == text
    assert not any(character.isspace() for word in document.words for character in word)


@given(TEXTS, RULES)
def test_mentions_have_the_characters_of_their_words(text: str, rule: TextRule) -> None:
    document = read_text(text, rule)
    found = [
        [Entity(start, end, "X", 0.5) for start in range(b - a) for end in range(start + 1, min(b - a, start + 3) + 1)]
        for a, b in document.sentences
    ]
    tagged = with_entities(document, found)
    lawful(tagged)
    assert [set(entities) for entities in found] == [sentence.entities for sentence in sentences_of(tagged)]
    for mention in tagged.entities:
        assert to_words(tagged, mention.start_char, mention.end_char, cut="refuse") == (mention.start, mention.end)


@given(TEXTS, RULES, st.data())
def test_characters_become_the_words_they_touch(text: str, rule: TextRule, data: st.DataObject) -> None:
    document = read_text(text, rule)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    touched = [i for i, (a, b) in enumerate(document.offsets) if a < end and start < b]
    if start == end or not touched:
        with pytest.raises(ValueError):
            to_words(document, start, end)
        return
    assert to_words(document, start, end) == (touched[0], touched[-1] + 1)
    left_out = text[document.offsets[touched[0]][0] : start] + text[end : document.offsets[touched[-1]][1]]
    if any(map(visible, left_out)):
        with pytest.raises(CutWord):
            to_words(document, start, end, cut="refuse")
    else:
        assert to_words(document, start, end, cut="refuse") == (touched[0], touched[-1] + 1)


@given(
    st.lists(st.tuples(st.sampled_from([word for word in NASTY + FRAGMENTS if word]), st.booleans()), max_size=12),
    st.data(),
)
def test_given_words_come_back(pairs: list[tuple[str, bool]], data: st.DataObject) -> None:
    given_words = tuple(word for word, _ in pairs)
    spaces = data.draw(st.sampled_from([(), tuple(space for _, space in pairs)]))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(pairs) - 1)))) if len(pairs) > 1 else []
    ranges = list(pairwise([0, *cuts, len(pairs)])) if pairs else []
    document = from_words(given_words, spaces, ranges)
    assert document.words == given_words
    assert [document.text[a:b] for a, b in document.offsets] == list(given_words)
    assert [sentence.words for sentence in sentences_of(document)] == [given_words[a:b] for a, b in ranges]
    if spaces and all(not word[0].isspace() for word in given_words):
        assert tuple(space for sentence in sentences_of(document) for space in sentence.spaces) == spaces


@given(
    st.lists(
        st.lists(st.sampled_from([word for word in NASTY + FRAGMENTS if any(map(visible, word))]), min_size=1),
        min_size=1,
    ),
    RULES,
)
def test_rebuilt_documents_hold_the_gold_mentions(rows: list[list[str]], rule: TextRule) -> None:
    gold = [Sentence(tuple(row), frozenset({Entity(0, 1, "A"), Entity(0, len(row), "B")}), doc="d") for row in rows]
    (document,) = rebuild(gold, rule)
    lawful(document)
    expected = sorted([row[0] for row in rows] + [" ".join(row) for row in rows])
    assert sorted(mention.text for mention in document.entities) == expected
    assert sum(len(sentence.entities) > 0 for sentence in sentences_of(document)) >= 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Well-known, isn't it?", "Well - known , is n't it ?"),
        ("I can’t; you're Dr. Smith's", "I ca n’t ; you 're Dr. Smith 's"),
        ("do n't, it 's: cannot, gonna, GOTTA", "do n't , it 's : can not , gon na , GOT TA"),
        ("O'Reilly o'clock rock'n'roll dogs' 'quoted'", "O'Reilly o'clock rock'n'roll dogs ' ' quoted '"),
        ("l'homme d’Italie qu'elle dell'arte", "l' homme d’ Italie qu' elle dell' arte"),
        ("$1,000.50 3.5% 10:30 1/2 .265 20th 1,2 2009.", "$ 1,000.50 3.5 % 10:30 1/2 .265 20th 1 , 2 2009 ."),
        ("U.S. and e.g. J. K. Rowling vs. Inc. etc.", "U.S. and e.g. J. K. Rowling vs. Inc. etc."),
        ("plan B. Then no. 5, no. Yes", "plan B . Then no. 5 , no . Yes"),
        ("(see http://x.com/a_(b)?c=1). www.y.de, z.org!", "( see http://x.com/a_(b)?c=1 ) . www.y.de , z.org !"),
        ("mail a.b-c@d.co.uk, @me_2 #tag1 #1 &amp; a@b", "mail a.b-c@d.co.uk , @me_2 #tag1 #1 &amp; a @ b"),
        ("AT&T, a&b, snake_case _it_", "AT&T , a & b , snake_case _ it _"),
        ("wait... what?! -- no — yes", "wait ... what ?! -- no — yes"),
        ("end.Next IL-2 C/EBP 2020-01-31", "end . Next IL - 2 C / EBP 2020 - 01 - 31"),
        ("他在New York住了3.5年。", "他 在 New York 住 了 3.5 年 。"),
        ("コーヒーを飲む、ｶﾞ", "コ ー ヒ ー を 飲 む 、 ｶﾞ"),
        ("ไทย နေ", "ไ ท ย နေ"),
        ("서울에서 만나요", "서울에서 만나요"),
        ("שלום, עולם؟ عَرَبِي ٣٫١٤", "שלום , עולם ؟ عَرَبِي ٣٫١٤"),
        ("cafe\u0301 क्षि \u0301x", "cafe\u0301 क्षि \u0301 x"),
        ("co\u00adop می\u200cخواهم a\u200bb \ufeffc", "co\u00adop می\u200cخواهم a b c"),
        ("nul\0in\x85it\u00a0all\u3000", "nul in it all"),
        (f"{FAMILY}{ENGLAND}🇬🇧🇫🇷👍🏽❤\ufe0f!", f"{FAMILY} {ENGLAND} 🇬🇧 🇫🇷 👍🏽 ❤\ufe0f !"),
        ("𝔘𝔫𝔦 1\ufe0f\u20e3", "𝔘𝔫𝔦 1\ufe0f\u20e3"),
    ],
)
def test_words(text: str, expected: str) -> None:
    assert words(text) == expected.split(" ")


def test_hyphenated_keeps_what_words_splits() -> None:
    text = "IL-2, NF-kappaB/Rel CD4+ C++ PU.1 5'-flanking 5-lipoxygenase don't end - a--b -x."
    assert words(text, "hyphenated") == (
        [
            "IL-2",
            ",",
            "NF-kappaB/Rel",
            "CD4+",
            "C++",
            "PU.1",
            "5'-flanking",
            "5-lipoxygenase",
            "do",
            "n't",
            "end",
            "-",
            "a",
            "--",
            "b",
            "-",
            "x",
            ".",
        ]
    )


def test_characters_are_what_a_reader_counts() -> None:
    assert words(f"e\u0301a 3\r\n漢字。{FAMILY}🇬🇧🇬 한\u200b\u0600 ", "characters") == [
        "e\u0301", "a", "3", "漢", "字", "。", FAMILY, "🇬🇧", "🇬", "한", "\u0600",
    ]  # fmt: skip


def test_whitespace_words_are_what_stands_between_spaces() -> None:
    text = "Don't-do\u00a0it,  \r\n(now)\u200b \u200b 漢字。a"
    assert words(text, "whitespace") == ["Don't-do", "it,", "(now)\u200b", "漢字。a"]


@pytest.mark.parametrize("rule", [rule for rule in get_args(WordRule) if rule != "custom"])
@pytest.mark.parametrize("text", ["", " ", "\r\n\n", "\0\u200b\u00ad\ufeff"])
def test_text_without_anything_to_see_has_no_words(text: str, rule: WordRule) -> None:
    document = read_text(text, TextRule(rule), id="a")
    assert document == Document(text, (), (), id="a")
    assert sentences_of(document) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
        ("Dr. Smith of the U.S. Army met J. K. Rowling at 5 p.m. on Jan. 3. Fine.", 2),
        ("It ended in the U.S. The rest of Smith Inc. followed plan B. Then it stopped.", 3),
        ("He paid 3.50 vs. 4.00 in approx. 5 days (see Fig. 3). Yes.", 2),
        ("So did I. You did not.", 2),
        (
            '"Why?" he asked. "Go!" She went. (Really.) “Yes.” No.',
            ['"Why?" he asked.', '"Go!"', "She went.", "(Really.)", "“Yes.”", "No."],
        ),
        ("Well... maybe. Wait ... No.", ["Well... maybe.", "Wait ...", "No."]),
        ("It is known.[1] Others [2] agree. [3] End.", ["It is known.[1]", "Others [2] agree. [3]", "End."]),
        ("1. First item. 2. Second item.", ["1. First item.", "2. Second item."]),
        ("Title\n\nText goes\non here\r\n \r\nEnd", ["Title", "Text goes\non here", "End"]),
        (
            "Buy:\n- milk\n* bread\n 2) tea\n(a) jam\nand more",
            ["Buy:", "- milk", "* bread", "2) tea", "(a) jam\nand more"],
        ),
        ("Heading\n" + "Long " * 30 + "\nNext\nlast", ["Heading", ("Long " * 30).strip(), "Next\nlast"]),
        ("今天很好。明天呢？“走吧！”他说…好", ["今天很好。", "明天呢？", "“走吧！”", "他说…好"]),
        ("यह है। वह है।", ["यह है।", "वह है।"]),
        ("كيف حالك؟ بخير.", ["كيف حالك؟", "بخير."]),
        ("See x.y.com or 1.2.3 end.Next", 1),
    ],
)
def test_sentences_by_punctuation(text: str, expected: list[str] | int) -> None:
    found = sentences(text)
    assert (found if isinstance(expected, list) else len(found)) == expected


@pytest.mark.parametrize("break_", ["\n", "\r\n", "\r", "\u2028"])
def test_a_single_line_break_is_a_space_to_sentences_by_punctuation(break_: str) -> None:
    text = "Yesterday Barack Obama met J. K. Rowling in New York. The U.S. Army was there, too. It rained."
    wrapped = text.replace(" ", break_)
    assert words(wrapped) == words(text)
    assert [found.replace(break_, " ") for found in sentences(wrapped)] == sentences(text)


def test_sentences_by_lines_and_none() -> None:
    text = "One. Two\r\nthree\n\n \nfour\u2028five"
    assert sentences(text, "lines") == ["One. Two", "three", "four", "five"]
    assert sentences(text, "none") == [text]


def test_a_sentence_ends_behind_the_word_that_holds_its_end() -> None:
    assert sentences("你好。再见 朋友", word_rule="whitespace") == ["你好。再见", "朋友"]


@pytest.mark.parametrize(
    "tokenizer",
    [
        lambda text: ["New York", " is", "big", "", " ", ".\n"],
        lambda text: [(0, 8), (8, 11), [12, 15], (15, 15), (15, 17)],
    ],
)
def test_a_custom_tokenizer_is_aligned(tokenizer: Callable[[str], list[str]]) -> None:
    document = read_text("New York is big.\n", TextRule("custom"), tokenizer)
    assert document.words == ("New York", "is", "big", ".")
    lawful(document)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (["a", "c"], r"word 1 .*'c'.* character 1 with ' b, a'"),
        (["a", "b", "a"], r"word 2 .*'a'.* character 3 with ', a'"),
        (["a", "b", ","], r"leave out the end of the text, from character 5: 'a'"),
        ([], r"leave out the end of the text, from character 0: 'a b, a'"),
        ([(0, 3), (2, 4), (5, 6)], r"word 1 .*\(2, 4\).* character 3"),
        ([(0, 1), (2, 9)], r"word 1 .*\(2, 9\)"),
        ([None], r"word 0 .*None"),
    ],
)
def test_a_custom_tokenizer_that_does_not_fit_is_refused(found: list[str], message: str) -> None:
    with pytest.raises(SpanwrightError, match=message):
        read_text("a b, a", TextRule("custom"), lambda text: found)


def test_custom_needs_a_tokenizer_and_other_rules_take_none() -> None:
    with pytest.raises(SpanwrightError, match="no tokenizer was given"):
        read_text("a", TextRule("custom"))
    with pytest.raises(SpanwrightError, match='words="words" and would ignore it'):
        read_text("a", TextRule(), str.split)


def test_a_text_must_be_a_string() -> None:
    with pytest.raises(SpanwrightError, match="must be a str, got bytes"):
        read_text(b"a")  # type: ignore[arg-type]


def test_a_rule_is_a_plain_dict_and_back() -> None:
    rule = TextRule("characters", "lines")
    assert asdict(rule) == {"words": "characters", "sentences": "lines"}
    assert TextRule(**asdict(rule)) == rule


def test_an_unknown_rule_names_the_nearest() -> None:
    with pytest.raises(SpanwrightError, match=r'words="word" is unknown; .*did you mean "words"'):
        TextRule("word")  # type: ignore[arg-type]
    with pytest.raises(SpanwrightError, match=r'sentences="line" is unknown; .*did you mean "lines"'):
        TextRule(sentences="line")  # type: ignore[arg-type]


def test_words_without_spaces_known_are_put_one_space_apart() -> None:
    assert from_words(["a", "b", "."], id="x") == Document("a b .", ((0, 1), (2, 3), (4, 5)), ((0, 3),), id="x")
    assert from_words(["a", "b", "."], [True, False, True]).text == "a b. "
    assert from_words([]) == Document("", (), ())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a", ""],), "word 1 is empty"),
        ((["a", "b"], [True]), "got 1 for 2 words"),
        ((["a", "b"], (), [(0, 1)]), "must cover words 0:2"),
        ((["a", "b"], (), [(0, 1), (1, 1), (1, 2)]), "must cover words 0:2"),
    ],
)
def test_words_that_make_no_document_are_refused(arguments: tuple[list[str]], message: str) -> None:
    with pytest.raises(SpanwrightError, match=message):
        from_words(*arguments)


def test_sentences_carry_their_document_and_spaces() -> None:
    first, second = sentences_of(read_text("It's late. Go!", id="d"))
    assert first == Sentence(("It", "'s", "late", "."), id="d:0", doc="d", spaces=(False, True, False, True))
    assert second == Sentence(("Go", "!"), id="d:1", doc="d", spaces=(False, False))


def test_entities_are_relative_to_their_sentence_and_keep_their_score() -> None:
    document = with_entities(
        read_text("Hi. Ann Lee, Bo."), [[], [Entity(3, 4, "B", 0.25), Entity(0, 1, "A"), Entity(0, 2, "A")]]
    )
    assert [mention.to_dict() for mention in document.entities] == [
        {"text": "Ann Lee", "label": "A", "score": 1.0, "start_char": 4, "end_char": 11, "start": 2, "end": 4},
        {"text": "Ann", "label": "A", "score": 1.0, "start_char": 4, "end_char": 7, "start": 2, "end": 3},
        {"text": "Bo", "label": "B", "score": 0.25, "start_char": 13, "end_char": 15, "start": 5, "end": 6},
    ]
    assert sorted(sentences_of(document)[1].entities)[-1].score == 0.25


@pytest.mark.parametrize(
    "found", [[[]], [[], [Entity(0, 3, "A")]], [[], [Entity(-1, 1, "A")]], [[Entity(1, 1, "A")], []]]
)
def test_entities_outside_their_sentences_are_refused(found: list[list[Entity]]) -> None:
    with pytest.raises(ValueError, match="sentence"):
        with_entities(read_text("Go. Stay!"), found)


def test_sentences_that_an_entity_crosses_are_joined() -> None:
    text = "Yes. I saw Yahoo! Inc and Dr. Who! Now? No."
    document = read_text(text)
    start, end = text.index("Yahoo"), text.index("Who") + 3
    crossing = Mention(start, end, "X", text[start:end])
    tagged = Document(text, document.offsets, document.sentences, (crossing,))
    assert len(document.sentences) == 5
    joined = sentences_of(tagged)
    assert [len(sentence.entities) for sentence in joined] == [0, 1, 0, 0]
    assert sum((sentence.words for sentence in joined), ()) == document.words
    assert with_entities(tagged, [sentence.entities for sentence in joined]).entities == (crossing,)


def test_a_span_that_cuts_a_word_is_widened_or_refused() -> None:
    document = read_text("The Barcelonian co\u00adops.")
    assert to_words(document, 4, 12) == (1, 2)
    with pytest.raises(CutWord, match=r"4:12 \('Barcelon'\) cut the word 'Barcelonian' at characters 4:15"):
        to_words(document, 4, 12, cut="refuse")
    assert to_words(document, 3, 16, cut="refuse") == (1, 2)
    with pytest.raises(SpanwrightError, match='cut="maybe" is unknown'):
        to_words(document, 0, 1, cut="maybe")  # type: ignore[arg-type]


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (2, 2), (3, 2), (0, 9), (1, 2)])
def test_a_span_without_a_word_is_no_words(start: int, end: int) -> None:
    with pytest.raises(ValueError, match=f"{start}:{end}"):
        to_words(read_text("a  b"), start, end)


def test_rebuilt_text_follows_the_spaces() -> None:
    rows = [
        Sentence(("IL-2", "'s"), frozenset({Entity(0, 1, "P")}), doc="one", spaces=(False, True)),
        Sentence(("Go", "!"), frozenset({Entity(0, 2, "Q")}), doc="one", spaces=(False, False)),
        Sentence(("No", "spaces", "."), id="s1"),
        Sentence((), doc="two"),
        Sentence(("Last",), id="s2"),
    ]
    first, second, third = rebuild(rows)
    assert (first.text, first.id) == ("IL-2 's Go!".replace(" '", "'"), "one")
    assert [(m.text, m.start, m.end) for m in first.entities] == [("IL-2", 0, 3), ("Go!", 4, 6)]
    assert (second.text.strip(), second.id) == ("No spaces .", "s1")
    assert (third.text.strip(), third.id) == ("Last", "s2")


def test_rebuilt_sentences_by_lines_are_the_given_ones() -> None:
    rows = [Sentence(("A", "."), doc="d"), Sentence(("B", ". C"), doc="d")]
    (document,) = rebuild(rows, TextRule(sentences="lines"))
    assert [document.words[a:b] for a, b in document.sentences] == [("A", "."), ("B", ".", "C")]


@pytest.mark.parametrize(
    ("unit", "rule"),
    [
        (unit, "hyphenated")
        for unit in ("a", "a.", "a-", "a'", "a@", "a好", "1,", "?)", "🇬", "\0", "👩\u200d", "\n", "l'", "x@y.")
    ]
    + [(unit, "characters") for unit in ("🇬", "\u0600", "e\u0301")],
)
def test_time_grows_with_the_text_alone(unit: str, rule: WordRule) -> None:
    # A rule that takes quadratic time needs minutes here; the bound leaves room for a slow machine.
    text = unit * (60_000 // len(unit))
    before = time.process_time()
    read_text(text, TextRule(rule))
    assert time.process_time() - before < 4


def test_nothing_here_imports_torch() -> None:
    code = "import sys, spanwright.text; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
