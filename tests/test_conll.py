"""CoNLL files in the shapes people have them: schemes, columns, documents, mended tags, bad lines."""

from __future__ import annotations

from io import BytesIO, StringIO
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from spanwright.data import BadData, Reader, read, write
from spanwright.data.tags import SCHEMES, decode, encode, parse_tag
from spanwright.types import Entity, Sentence, SpanwrightError

NEWS = [
    Sentence(("EU", "rejects", "German", "call", "."), frozenset({Entity(0, 1, "ORG"), Entity(2, 3, "MISC")})),
    Sentence(("Peter", "Blackburn"), frozenset({Entity(0, 2, "PER")})),
    Sentence(
        ("Paris", "Lyon", "New", "York", "City"),
        frozenset({Entity(0, 1, "LOC"), Entity(1, 2, "LOC"), Entity(2, 5, "LOC")}),
    ),
]
TAGS = ["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "I-Y"]


def reader(text: str, **options: Any) -> Reader:
    return read(BytesIO(text.encode()), format="conll", **options)


def contents(sentences: Any) -> list[tuple[tuple[str, ...], frozenset[Entity]]]:
    return [(sentence.words, sentence.entities) for sentence in sentences]


def spans(text: str, **options: Any) -> list[set[tuple[int, int, str]]]:
    return [{(e.start, e.end, e.label) for e in sentence.entities} for sentence in reader(text, **options)]


def column(*tags: str) -> str:
    return "".join(f"w{i} {tag}\n" for i, tag in enumerate(tags)) + "\n"


def complaints(text: str, **options: Any) -> list[str]:
    with pytest.raises(BadData) as caught:
        list(reader(text, **options))
    return [str(finding) for finding in caught.value.findings]


@pytest.mark.parametrize("name", ["iob1.conll", "iob2.tsv", "bioes.conll", "bilou.conll", "bmes.conll"])
def test_one_text_in_five_schemes_reads_the_same(data: Path, name: str) -> None:
    reading = read(data / "formats" / name)
    assert contents(reading) == contents(NEWS)
    assert len(reading.mended) == len(reading.bad) == len(reading.notes) == 0


@pytest.mark.parametrize(
    ("scheme", "name"),
    [("iob1", "iob1.conll"), ("iob2", "iob2.tsv"), ("BIOES", "bioes.conll"), ("bmeso", "bmes.conll")],
)
def test_the_scheme_may_be_named(data: Path, scheme: str, name: str) -> None:
    assert contents(read(data / "formats" / name, scheme=scheme)) == contents(NEWS)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_decoding_is_conlleval(length: int) -> None:
    for texts in product(TAGS, repeat=length):
        ours = decode([parse_tag(text, "auto") for text in texts])
        theirs = {Entity(start, last + 1, label) for label, start, last in get_entities(list(texts))}
        assert ours == theirs, texts


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_a_scheme_writes_it_reads_without_mending(scheme: str) -> None:
    for a, b, c in product(range(1, 4), ["X", "Y"], [0, 1]):
        entities = {Entity(0, a, "X"), Entity(a + c, a + c + 2, b)}
        text = column(*encode(a + c + 3, entities, scheme))
        for named in (scheme, "auto"):
            reading = reader(text, scheme=named)
            assert next(reading).entities == entities
            assert not list(reading) and not reading.mended


def test_iob1_marks_a_start_only_between_two_of_a_kind() -> None:
    entities = {Entity(0, 2, "X"), Entity(2, 3, "X"), Entity(3, 4, "Y")}
    assert encode(5, entities, "iob1") == ["I-X", "I-X", "B-X", "I-Y", "O"]


def test_overlapping_entities_have_no_tags() -> None:
    with pytest.raises(ValueError, match="overlaps"):
        encode(3, {Entity(0, 2, "X"), Entity(1, 3, "Y")}, "iob2")


def test_illegal_tags_are_mended_counted_and_told() -> None:
    told: list[str] = []
    reading = reader(column("B-X", "I-Y", "O", "I-X") + column("B-X", "I-X"), scheme="iob2", tell=told.append)
    assert [s.entities for s in reading] == [
        {Entity(0, 1, "X"), Entity(1, 2, "Y"), Entity(3, 4, "X")},
        {Entity(0, 2, "X")},
    ]
    assert [str(finding) for finding in reading.mended] == ["<input>:2: I-Y after B-X", "<input>:4: I-X after O"]
    assert len(told) == 1 and "2 illegal tags" in told[0]


@pytest.mark.parametrize(
    ("tags", "scheme", "count"),
    [
        (["I-X", "O", "I-Y"], "auto", 0),  # IOB1
        (["B-X", "O", "I-Y"], "auto", 1),  # one mistake in either
        (["B-X", "O", "B-X", "O", "I-Y"], "auto", 1),  # IOB2 with one mistake
        (["B-X", "I-X", "O"], "auto", 0),
        (["S-X", "B-X", "I-X", "O"], "auto", 1),  # BIOES without the end
        (["B-X", "I-X", "O"], "bioes", 1),
        (["B-X"], "bilou", 1),
        (["E-X", "O"], "bmes", 1),
        (["I-X", "O", "B-X"], "iob1", 1),
    ],
)
def test_what_counts_as_illegal(tags: list[str], scheme: str, count: int) -> None:
    reading = reader(column(*tags), scheme=scheme, tell=lambda _: None)
    list(reading)
    assert len(reading.mended) == count


def test_columns_may_be_anywhere() -> None:
    text = "1\tB-X\tIn Rome\tNNP\n2\tO\tsat\tVBD\n"
    (sentence,) = reader(text, word_column=2, tag_column=1, feature_columns={"pos": -1})
    assert sentence.words == ("In Rome", "sat")
    assert sentence.entities == {Entity(0, 1, "X")}
    assert sentence.features == {"pos": ("NNP", "VBD")}


def test_columns_of_runs_of_spaces_and_blanks_inside_words() -> None:
    (sentence,) = reader("a\u00a0b   NN  B-X \n\u3000 NN O\n")
    assert sentence.words == ("a\u00a0b", "\u3000")
    assert sentence.entities == {Entity(0, 1, "X")}


def test_a_file_without_tags() -> None:
    (first, second) = reader("Ann\nleft\n\nBo\n", tag_column=None)
    assert (first.words, second.words) == (("Ann", "left"), ("Bo",))
    assert not first.entities


def test_line_ends_marks_and_a_last_line_without_end() -> None:
    lines = b"\xef\xbb\xbfAnn B-X\r\n\r\n\r\n \t\r\nBo O"
    assert [s.words for s in read(BytesIO(lines), format="conll")] == [("Ann",), ("Bo",)]


def test_documents() -> None:
    text = "-DOCSTART- -X- -X- O\nAnn B-X\n\nBo O\n-DOCSTART- (12 CRICKET)\n\nCy O\n\n-DOCSTART-\tO\n\nDi O\n"
    assert [(s.words[0], s.doc) for s in reader(text)] == [
        ("Ann", "1"),
        ("Bo", "1"),
        ("Cy", "(12 CRICKET)"),
        ("Di", "3"),
    ]
    assert [s.doc for s in reader("Ann O\n\n-DOCSTART- my text\tO\n\nBo O\n")] == ["", "my text"]


def test_clear_comments_are_read_and_others_are_words() -> None:
    text = "# newdoc id = d1\n# sent_id = s 1\n# text = # hash\n# # B-X\nhash NN O\n\n# text O\n# = O\n"
    first, second = reader(text)
    assert (first.id, first.doc, first.words) == ("s 1", "d1", ("#", "hash"))
    assert first.entities == {Entity(0, 1, "X")}
    assert (second.id, second.doc, second.words) == ("", "d1", ("#", "#"))


def test_multiconer_ids() -> None:
    (sentence,) = reader("# id 5a-b\tdomain=train\nRome _ _ B-LOC\n")
    assert (sentence.id, sentence.words) == ("5a-b", ("Rome",))


def test_any_comment_if_asked() -> None:
    text = "# a file about Rome\nRome B-LOC\n# and more\nfell O\n"
    (sentence,) = reader(text, comments=True)
    assert sentence.words == ("Rome", "fell")
    assert len(complaints(text)) > 0


def test_bad_lines_are_listed_with_what_was_expected() -> None:
    text = "Ann B-PER\nsaw\nBo X-PER\nCy B-\nDi PER\n\nok O\n\nEd NN O\n"
    assert complaints(text) == [
        "<input>:2: 1 column: 'saw'; expected 2 as in line 1",
        "<input>:3: unknown tag 'X-PER'; expected O, or one of B, I, E, S, L, U, M with a label (B-LABEL)",
        "<input>:4: unknown tag 'B-'; expected O, or one of B, I, E, S, L, U, M with a label (B-LABEL)",
        "<input>:5: unknown tag 'PER'; expected O, or one of B, I, E, S, L, U, M with a label (B-LABEL)",
        "<input>:9: 3 columns: 'Ed NN O'; expected 2 as in line 1",
    ]
    reading = reader(text, skip_bad=True, tell=lambda _: None)
    assert [s.words for s in reading] == [("ok",)]
    assert len(reading.bad) == 5


def test_a_letter_of_another_scheme_is_bad() -> None:
    (line,) = complaints(column("O", "E-X"), scheme="iob2")
    assert line == "<input>:2: unknown tag 'E-X'; expected O, or one of B, I with a label (B-LABEL) in IOB2"


def test_lines_without_a_word() -> None:
    assert complaints("Ann\tO\n\tO\n") == ["<input>:2: the word is empty; expected a word"]
    assert complaints("Ann\n\nBo O\n")[0].startswith("<input>:1: 1 column: 'Ann'; expected at least 2")


def test_bad_bytes_take_their_sentence_with_them() -> None:
    reading = read(BytesIO(b"a O\nb\xff O\n\nc O\n"), format="conll", skip_bad=True, tell=lambda _: None)
    assert [s.words for s in reading] == [("c",)]
    assert [str(f) for f in reading.bad] == ["<input>:2: byte 2 of the line (0xff) is not UTF-8; expected UTF-8 text"]


def test_an_unknown_scheme() -> None:
    with pytest.raises(SpanwrightError, match="Did you mean 'bilou'"):
        reader("", scheme="bilo")
    with pytest.raises(SpanwrightError, match="to write"):
        write(StringIO(), [], format="conll", scheme="auto")


# ------------------------------------------------------------------------------------------------ writing


def written(sentences: list[Sentence], **options: Any) -> str:
    file = StringIO()
    write(file, sentences, format="conll", **options)
    return file.getvalue()


def test_what_a_file_looks_like() -> None:
    first = Sentence(("New", "York"), frozenset({Entity(0, 2, "LOC")}), id="s1", doc="d", features={"pos": ("A", "B")})
    assert written([first, NEWS[1]], features=[], scheme="bioes") == (
        "-DOCSTART- d\tO\n\n# id = s1\nNew\tB-LOC\nYork\tE-LOC\n\n-DOCSTART- \tO\n\nPeter\tB-PER\nBlackburn\tE-PER\n\n"
    )
    assert "New\tA\tB-LOC\n" in written([first], features=["pos"])


NESTED = Sentence(("the", "bank", "of", "Ghana"), frozenset({Entity(0, 4, "ORG"), Entity(3, 4, "LOC")}), id="s1")


def test_nested_gold_is_refused_or_its_loss_counted() -> None:
    with pytest.raises(
        SpanwrightError, match=r"sentence 1 \(s1\): 'Ghana' \(LOC\) overlaps 'the bank of Ghana' \(ORG\)"
    ):
        written([NESTED])
    file = StringIO()
    result = write(file, [NESTED, *NEWS], format="conll", nested="outermost")
    assert (result.sentences, result.entities, result.lost) == (4, 7, 1)
    assert next(reader(file.getvalue())).entities == {Entity(0, 4, "ORG")}


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        (Sentence(("a\tb",)), "tab"),
        (Sentence(("a\nb",)), "line break"),
        (Sentence(("",)), "empty word"),
        (Sentence(()), "no word"),
        (Sentence(("-DOCSTART-",)), "starts a document"),
        (Sentence(("a",), id="x\ty"), "tab"),
        (Sentence(("a",), frozenset({Entity(0, 1, "X ")})), "outer blank"),
        (Sentence(("a",), frozenset({Entity(0, 1, "")})), "no label"),
        (Sentence(("a",), frozenset({Entity(0, 2, "X")})), "outside"),
    ],
)
def test_what_could_not_be_read_back_is_refused(sentence: Sentence, message: str) -> None:
    with pytest.raises(SpanwrightError, match=message):
        written([sentence])


def test_a_missing_feature_is_named() -> None:
    with pytest.raises(SpanwrightError, match=r"sentence 1 has no feature 'pos'; it has none"):
        written(NEWS, features=["pos"])


plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"), min_size=1, max_size=6)
words = plain.filter(lambda word: not word.startswith("-DOCSTART-"))
labels = plain.filter(lambda label: label == label.strip(" ") and label.strip())


@st.composite
def flat_sentences(draw: st.DrawFn) -> Sentence:
    tokens = draw(st.lists(words, min_size=1, max_size=7))
    edges = sorted(draw(st.sets(st.integers(0, len(tokens)))))
    known = draw(st.lists(labels, min_size=1, max_size=2))
    pairs = [pair for pair in pairwise(edges) if draw(st.booleans())]
    entities = frozenset(Entity(start, end, draw(st.sampled_from(known))) for start, end in pairs)
    names = st.sampled_from(["", "d1", " d 2 ", "O"])
    return Sentence(tuple(tokens), entities, id=draw(st.just("") | plain), doc=draw(names))


@pytest.mark.parametrize("scheme", SCHEMES)
@given(sentences=st.lists(flat_sentences(), min_size=1, max_size=4))
def test_round_trip_in_every_scheme(scheme: str, sentences: list[Sentence]) -> None:
    text = written(sentences, scheme=scheme)
    for named in (scheme, "auto"):
        reading = reader(text, scheme=named)
        assert list(reading) == sentences
        assert not reading.mended


@given(sentences=st.lists(flat_sentences(), min_size=1, max_size=2), values=st.lists(labels, min_size=7, max_size=7))
def test_round_trip_with_features(sentences: list[Sentence], values: list[str]) -> None:
    tagged = [
        Sentence(s.words, s.entities, features={"pos": tuple(values[: len(s)])}, id=s.id, doc=s.doc) for s in sentences
    ]
    assert list(reader(written(tagged, features=["pos"]), feature_columns={"pos": 1})) == tagged


def test_line_ends_of_old_are_told_and_nothing_is_lost_in_silence(tmp_path: Path) -> None:
    """A file whose lines end in CR alone is one line to everybody else."""
    file = tmp_path / "old.conll"
    file.write_bytes(b"Ada B-P\rx O\r\rBo B-P\r")
    with pytest.raises(
        BadData, match=r"old\.conll:1: a carriage return within the line; expected lines that end in LF"
    ):
        list(read(file))


@pytest.mark.parametrize(("word", "tag"), [(-1, -1), (0, 0), (1, -1), (-2, 0)])
def test_words_and_tags_of_one_column_are_refused(word: int, tag: int) -> None:
    """Else the tags would be learnt as words, with a splendid score."""
    with pytest.raises(SpanwrightError, match=r"the same column, \d of 2 \(word_column"):
        list(read(StringIO("Ann B-X\nran O\n"), format="conll", word_column=word, tag_column=tag))
