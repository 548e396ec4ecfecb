"""JSONL and raw text in and out, bad records, files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanwright.data import BadData, Reader, read, write
from spanwright.data.jsonl import RESERVED
from spanwright.text import TextRule
from spanwright.types import Entity, Sentence, SpanwrightError


def reader(*rows: object, **options: Any) -> Reader:
    """Rows as objects, or as lines as they stand."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    return read(BytesIO("\n".join(lines).encode()), **{"format": "jsonl", **options})


def complaint(*rows: object, **options: Any) -> str:
    with pytest.raises(BadData) as caught:
        list(reader(*rows, **options))
    (finding,) = caught.value.findings
    return str(finding)


def tokens(*entities: object, **others: object) -> dict[str, object]:
    return {"tokens": ["Ann", "met", "Bo"], "entities": list(entities), **others}


def found(sentence: Sentence) -> set[tuple[str, str]]:
    return {(" ".join(sentence.words[e.start : e.end]), e.label) for e in sentence.entities}


# ------------------------------------------------------------------------------------------------ words


def test_a_row_in_words() -> None:
    row = tokens(
        {"start": 0, "end": 1, "label": "person"},
        {"start": 0, "end": 3, "label": "event", "score": 0.5},
        [2, 3, "person"],
        doc="d",
        id=7,
        space_after=[True, True, False],
        pos=["NNP", "VBD", "NNP"],
        topics=["a"],
        source="web",
        left=["Hi"],
    )
    reading = reader(row, tell=lambda _: None)
    (sentence,) = reading
    assert sentence == Sentence(
        ("Ann", "met", "Bo"),
        frozenset({Entity(0, 1, "person"), Entity(0, 3, "event"), Entity(2, 3, "person")}),
        left=("Hi",),
        features={"pos": ("NNP", "VBD", "NNP")},
        id="7",
        doc="d",
        spaces=(True, True, False),
    )
    assert {e.score for e in sentence.entities if e.label == "event"} == {0.5}
    assert [str(note) for note in reading.notes] == [
        "<input>:1: 'topics' has 1 values for 3 tokens and was passed over"
    ]


def test_rows_need_no_entities() -> None:
    assert list(reader({"tokens": ["a"]}, "", {"tokens": ["b"], "doc": None})) == [Sentence(("a",)), Sentence(("b",))]


def test_an_entity_given_twice_counts_once_and_is_told() -> None:
    told: list[str] = []
    (sentence,) = reader(tokens([0, 1, "x"], [0, 1, "x"], [0, 1, "y"]), tell=told.append)
    assert len(sentence.entities) == 2
    assert told == ["<input>: 1 note\n  <input>:1: entity 0:1 x is there twice"]


@pytest.mark.parametrize(
    ("row", "wrong", "expected"),
    [
        ('{"tokens": ["a"', "not JSON", "one JSON object on each line"),
        ('{"tokens": ["a"], "score": NaN}', "NaN is not a JSON number", "one JSON object"),
        ("[" * 100_000, "nested too deeply", "one object"),
        ('"text"', "a JSON string", "a JSON object"),
        ("null", "a JSON null", "a JSON object"),
        ({"entities": []}, "neither 'tokens' nor 'text'", "one of them"),
        ({"tokens": []}, "tokens is empty", "at least one token"),
        ({"tokens": "Ann met"}, "tokens is 'Ann met'", "a list of strings"),
        ({"tokens": ["a", 1]}, "tokens[1] is 1", "a string"),
        ({"tokens": ["a", ""]}, "tokens[1] is ''", "a string that is not empty"),
        ('{"tokens": ["\\ud83d"]}', "half a character, \\ud83d", "both halves"),
        (tokens([0, 4, "x"]), "outside the 3 tokens", "0 <= start < end <= 3"),
        (tokens([-1, 2, "x"]), "outside the 3 tokens", "0 <= start"),
        (tokens([1, 1, "x"]), "has no tokens", "start < end"),
        (tokens([0, 1.0, "x"]), "[0, 1.0, 'x']", "whole numbers"),
        (tokens([False, True, "x"]), "[False, True, 'x']", "whole numbers"),
        (tokens(["0", "1", "x"]), "['0', '1', 'x']", "whole numbers"),
        (tokens({"start": 0, "label": "x"}), "'start': 0", "whole numbers"),
        (tokens({"start_char": 0, "end_char": 3, "label": "x"}), "start_char", "counted in tokens"),
        (tokens({"start": 0, "end": 1}), "has no label", "a string and not empty"),
        (tokens([0, 1, " "]), "has no label", "not empty"),
        (tokens([0, 1, 5]), "has the label 5", "a string"),
        (tokens({"start": 0, "end": 1, "label": "x", "score": True}), "has the score True", "a number"),
        (tokens("x"), "entity 'x'", "[start, end, label]"),
        (tokens([0, 1]), "entity [0, 1]", "[start, end, label]"),
        ({"tokens": ["a"], "entities": {}}, "entities is {}", "a list"),
        ({"tokens": ["a"], "ner_tags": ["B-X"]}, "no 'entities', but a list 'ner_tags'", "'entities'"),
        ({"text": "Ann", "label": [[0, 3, "x"]]}, "no 'entities', but a list 'label'", "'entities'"),
        (tokens(space_after=[True]), "space_after has 1 values for 3 tokens", "one for each"),
        (tokens(space_after=[1, 1, 0]), "space_after is [1, 1, 0]", "true and false"),
        (tokens(doc=["d"]), "doc is ['d']", "a string"),
        ({"text": 5}, "text is 5", "a string"),
        ({"text": " \n"}, "text is empty", "at least one word"),
        ({"text": "Ann", "entities": [[0, 4, "x"]]}, "outside the 3 characters", "<= 3"),
        ({"text": "Ann  Bo", "entities": [[3, 4, "x"]]}, "hold no word", "at least one word"),
    ],
)
def test_bad_rows_say_what_is_wrong_and_what_was_expected(row: object, wrong: str, expected: str) -> None:
    where, _, rest = complaint({"tokens": ["fine"]}, row).partition(": ")
    given, _, wanted = rest.rpartition("; expected ")
    assert where == "<input>:2"
    assert wrong in given and expected in wanted
    assert len(rest) < 300


def test_an_object_over_many_lines_is_explained_once() -> None:
    for text in ('[\n{"tokens": ["a"]}\n]', '{\n"tokens": ["a"]\n}', '[{"tokens": ["a"]}]'):
        with pytest.raises(SpanwrightError, match="one JSON object on each line") as caught:
            list(reader(text))
        assert len(str(caught.value)) < 200


def test_bad_records_are_listed_up_to_twenty_after_the_good_ones() -> None:
    rows = [{"tokens": ["a"]}, *["no"] * 25, {"tokens": ["b"]}]
    reading = reader(*rows)
    assert [next(reading).words, next(reading).words] == [("a",), ("b",)]
    with pytest.raises(BadData) as caught:
        next(reading)
    lines = str(caught.value).splitlines()
    assert lines[0] == "25 bad records in <input>:"
    assert lines[1].startswith("  <input>:2: not JSON") and lines[20].startswith("  <input>:21: ")
    assert lines[21] == "  and 5 more"
    assert "skip" in lines[22]


def test_skipped_records_are_told_and_kept() -> None:
    told: list[str] = []
    reading = reader("no", {"tokens": ["a"], "entities": []}, "no", skip_bad=True, tell=told.append)
    assert list(reading) == [Sentence(("a",))]
    assert len(reading.bad) == 2
    assert len(told) == 1 and told[0].startswith("<input>: 2 bad records left out\n  <input>:1: not JSON")


def test_what_is_told_is_a_warning_by_default(caplog: pytest.LogCaptureFixture) -> None:
    list(reader("no", {"tokens": ["a"], "entities": []}, skip_bad=True))
    assert [(r.name, r.levelname) for r in caplog.records] == [("spanwright.data", "WARNING")]


def test_nothing_good_is_an_error_even_if_bad_records_are_skipped() -> None:
    with pytest.raises(BadData, match="no good sentence is left"):
        list(reader("no", skip_bad=True))


@pytest.mark.parametrize("form", ["jsonl", "conll"])
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_bad(form: str, content: bytes) -> None:
    with pytest.raises(BadData, match="is empty; expected at least one sentence"):
        list(read(BytesIO(content), format=form, skip_bad=True))


def test_bytes_that_are_not_utf8() -> None:
    content = b'\xef\xbb\xbf{"tokens": ["a"]}\r\n{"tokens": ["\xe4"]}\r\n{"tokens": ["\xc3\xa4\xe2\x80\xa8"]}'
    reading = read(BytesIO(content), format="jsonl", skip_bad=True, tell=lambda _: None)
    assert [s.words for s in reading] == [("a",), ("ä\u2028",)]
    assert [str(f) for f in reading.bad] == ["<input>:2: byte 14 of the line (0xe4) is not UTF-8; expected UTF-8 text"]
    with pytest.raises(SpanwrightError, match="UTF-16"):
        list(read(BytesIO('{"tokens": ["a"]}'.encode("utf-16")), format="jsonl"))


def test_reading_holds_one_record_at_a_time() -> None:
    read_so_far = 0

    class Endless(BytesIO):
        def __iter__(self) -> Iterator[bytes]:
            nonlocal read_so_far
            while True:
                read_so_far += 1
                yield b'{"tokens": ["a"]}\n'

    reading = read(Endless())
    for _ in range(50):
        next(reading)
    assert read_so_far <= 51


# ------------------------------------------------------------------------------------------------ raw text


def test_a_row_of_text(data: Path) -> None:
    first, second, third = read(data / "formats" / "raw.jsonl")
    assert found(first) == {
        ("Ann Lee", "person"),
        ("Bo", "person"),
        ("Yale - New Haven Hospital", "organization"),
        ("New Haven", "place"),
    }
    assert (first.doc, second.words, second.doc) == ("note-1", ("He", "left", "."), "note-1")
    assert found(third) == {("Köln", "place"), ("Zoë", "person")}
    assert third.doc == "2" and third.id != first.id


ROW = {"text": "The Parisians left Rome.", "entities": [[4, 9, "place"], [19, 23, "place"]]}


def test_an_entity_that_cuts_a_word_is_widened() -> None:
    reading = reader(ROW)
    (sentence,) = reading
    assert found(sentence) == {("Parisians", "place"), ("Rome", "place")}
    assert not reading.notes


def test_an_entity_that_cuts_a_word_is_widened_and_reported() -> None:
    told: list[str] = []
    reading = reader(ROW, cut="report", tell=told.append)
    (sentence,) = reading
    assert found(sentence) == {("Parisians", "place"), ("Rome", "place")}
    (note,) = reading.notes
    assert note.where == "<input>:1"
    assert "4:9 place ('Paris')" in note.wrong and "'Parisians'" in note.wrong and "whole word" in note.wrong
    assert len(told) == 1


def test_an_entity_that_cuts_a_word_is_refused() -> None:
    line = complaint({"text": "fine"}, ROW, cut="refuse")
    assert line.startswith("<input>:2: entity 4:9 place ('Paris')") and "cut='widen'" in line


def test_two_entities_widened_to_one_are_told() -> None:
    row = {"text": "Parisians", "entities": [[0, 5, "place"], [0, 9, "place"]]}
    reading = reader(row, tell=lambda _: None)
    assert [found(sentence) for sentence in reading] == [{("Parisians", "place")}]
    assert len(reading.notes) == 1


def test_an_entity_over_the_end_of_a_sentence_is_not_lost() -> None:
    text = "We saw it. Then Ann left. She ran."
    (first, second) = reader({"text": text, "entities": [[7, 19, "odd"]], "doc": "d"})
    assert found(first) == {("it . Then Ann", "odd")}
    assert (second.words, second.doc) == (("She", "ran", "."), "d")


def test_text_is_cut_by_the_rule_given() -> None:
    row = {"text": "今天在北京。", "entities": [[3, 5, "place"]]}
    (sentence,) = reader(row, rule=TextRule(words="characters", sentences="none"))
    assert found(sentence) == {("北 京", "place")}
    (sentence,) = reader({"text": "a-b c"}, rule=TextRule(words="custom"), tokenizer=str.split)
    assert sentence.words == ("a-b", "c")


def test_entities_of_our_own_documents_are_read_by_their_characters() -> None:
    mention = {"text": "Bo", "label": "person", "start_char": 4, "end_char": 6, "start": 1, "end": 2}
    (sentence,) = reader({"text": "Ann Bo", "entities": [mention]})
    assert found(sentence) == {("Bo", "person")}


# ------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"tokens": ["a"]}'),
        ("a.JSON", '{"tokens": ["a"]}'),
        ("a.txt", '\n{"tokens": ["a"]}'),
        ("a", '{"tokens": ["a"]}'),
        ("a.txt", "a O\n"),
        ("a.bio", "a O\n"),
        ("a.tsv", "{\tO\n"),
        ("a", "\na O\n"),
    ],
)
def test_the_format_is_told_by_the_name_or_the_first_line(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    assert [len(sentence.words) for sentence in read(path)] == [1]
    assert [len(sentence.words) for sentence in read(str(path))] == [1]


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").touch()
    with pytest.raises(SpanwrightError, match=r"there is no file .*trian.jsonl. Nearest there: train.jsonl"):
        read(tmp_path / "trian.jsonl")
    with pytest.raises(SpanwrightError, match=r"is a folder; expected a file. .* holds train.jsonl"):
        read(tmp_path)
    with pytest.raises(SpanwrightError, match=r"Nor is there a folder"):
        read(tmp_path / "no" / "train.jsonl")


def test_unknown_options_are_named() -> None:
    with pytest.raises(SpanwrightError, match="format is 'xml'; expected one of 'jsonl', 'conll'"):
        read(BytesIO(), format="xml")
    with pytest.raises(SpanwrightError, match="cut is 'drop'"):
        reader(cut="drop")
    with pytest.raises(SpanwrightError, match="format is 'xml'"):
        write(StringIO(), [], format="xml")
    with pytest.raises(SpanwrightError, match="nested is 'drop'"):
        write(StringIO(), [], format="conll", nested="drop")  # type: ignore[arg-type]


SENTENCE = Sentence(("Ann", "met", "Bo"), frozenset({Entity(0, 3, "event"), Entity(0, 1, "person")}), doc="d")


def test_what_is_written() -> None:
    file = StringIO()
    result = write(file, [SENTENCE])
    assert file.getvalue() == (
        '{"tokens":["Ann","met","Bo"],"doc":"d","entities":'
        '[{"start":0,"end":3,"label":"event"},{"start":0,"end":1,"label":"person"}]}\n'
    )
    assert (result.sentences, result.entities, result.lost) == (1, 2, 0)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write(path, [SENTENCE])
    before = path.read_bytes()

    def failing() -> Iterator[Sentence]:
        yield Sentence(("other",))
        assert path.read_bytes() == before
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        write(path, failing())
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["out.jsonl"]
    write(path, (sentence for sentence in read(path)))
    assert path.read_bytes() == before


def test_writing_where_one_cannot(tmp_path: Path) -> None:
    with pytest.raises(SpanwrightError, match="there is no folder"):
        write(tmp_path / "no" / "a.jsonl", [SENTENCE])
    with pytest.raises(SpanwrightError, match="is a folder"):
        write(tmp_path, [SENTENCE])


def test_writing_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    link = tmp_path / "link.jsonl"
    link.symlink_to(tmp_path / "real.jsonl")
    write(link, [SENTENCE])
    assert link.is_symlink() and list(read(tmp_path / "real.jsonl")) == [SENTENCE]


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        (Sentence(("a",), features={"doc": ("x",)}), "feature 'doc'; that key is taken"),
        (Sentence(("a",), features={"pos": ()}), "0 values of 'pos' for 1 words"),
        (Sentence(("a",), spaces=(True, True)), "2 spaces for 1 words"),
        (Sentence(("\ud83d",)), "cannot be written as JSON"),
        (Sentence(("a",), frozenset({Entity(0, 1, "x", score=float("nan"))})), "cannot be written as JSON"),
        (Sentence(("a",), frozenset({Entity(0, 2, "x")})), "outside its 1 words"),
        (Sentence(()), "no word"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(sentence: Sentence, message: str) -> None:
    with pytest.raises(SpanwrightError, match=message):
        write(StringIO(), [sentence])


characters = st.characters(exclude_categories=["Cs"])
anything = st.text(characters, min_size=1, max_size=4)


@st.composite
def any_sentences(draw: st.DrawFn) -> Sentence:
    words = draw(st.lists(anything, min_size=1, max_size=4))
    spans = st.tuples(st.integers(0, len(words) - 1), st.integers(1, len(words))).filter(lambda span: span[0] < span[1])
    given = draw(st.lists(st.tuples(spans, anything.filter(str.strip), st.floats(0, 1)), max_size=4))
    entities = frozenset(Entity(start, end, label, score) for (start, end), label, score in given)
    keys = anything.filter(lambda key: key not in RESERVED)
    each = st.lists(st.text(characters, max_size=2), min_size=len(words), max_size=len(words)).map(tuple)
    context = st.lists(anything, max_size=2).map(tuple)
    spaces = st.just(()) | st.lists(st.booleans(), min_size=len(words), max_size=len(words)).map(tuple)
    return Sentence(
        tuple(words),
        entities,
        left=draw(context),
        right=draw(context),
        features=draw(st.dictionaries(keys, each, max_size=2)),
        id=draw(st.just("") | anything),
        doc=draw(st.just("") | anything),
        spaces=draw(spaces),
    )


@settings(max_examples=30)
@given(st.lists(any_sentences(), min_size=1, max_size=2))
def test_round_trip(sentences: list[Sentence]) -> None:
    file = StringIO()
    write(file, sentences)
    again = list(read(BytesIO(file.getvalue().encode()), format="jsonl"))
    assert again == sentences
    scores = [[{(e, e.score) for e in s.entities} for s in group] for group in (sentences, again)]
    assert scores[0] == scores[1]


def test_a_slip_in_the_key_of_the_entities_is_bad() -> None:
    with pytest.raises(BadData, match=r"there is no 'entities', but 'entites'; expected the entities under the key"):
        list(reader({"tokens": ["a"], "entites": [{"start": 0}]}))
    assert len(list(reader({"tokens": ["a"], "n_entities": [0], "entites": 0}, tell=lambda _: None))) == 1


def test_records_without_entities_are_counted() -> None:
    told: list[str] = []
    assert len(list(reader({"tokens": ["a"]}, {"tokens": ["b"], "entities": []}, tell=told.append))) == 2
    assert told == ["<input>: 1 record without 'entities', taken to have none"]


def test_a_text_that_contradicts_the_tokens_is_noted() -> None:
    told: list[str] = []
    same = {"tokens": ["Ada", "ate", "."], "text": "Ada ate.", "entities": []}
    assert len(list(reader(same, {**same, "text": "Bo ate."}, tell=told.append))) == 2
    assert len(told) == 1 and "<input>:2: 'tokens' were read; 'text' says something else" in told[0]


@pytest.mark.parametrize(
    ("cut", "seen"), [("widen", "entities that cut a word: 1, widened"), ("report", "cut the word")]
)
def test_gold_that_is_widened_is_told(cut: str, seen: str) -> None:
    told: list[str] = []
    row = {"text": "Adalia ran", "entities": [[0, 3, "A"], [7, 10, "B"]]}
    (sentence,) = reader(row, cut=cut, tell=told.append)
    assert sentence.entities == {Entity(0, 1, "A"), Entity(1, 2, "B")}
    assert len(told) == 1 and seen in told[0]


def test_documents_without_a_sentence_are_not_called_empty() -> None:
    with pytest.raises(BadData, match="holds no sentence in its 2 lines; expected at least one"):
        list(read(BytesIO(b"-DOCSTART- O\n\n"), format="conll"))
