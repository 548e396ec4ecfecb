"""The tagger: text in, documents out, whatever the batches, however long the text."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spanwright.config import EncoderConfig
from spanwright.encoder import tiny_encoder
from spanwright.heads import build_head, head_class
from spanwright.tagger import SORTED_SENTENCES, Tagger
from spanwright.text import TextRule
from spanwright.types import Document, Entity, Labels, Mention, Sentence, SpanwrightError

LABELS = Labels(["place", "person"])
WORDS = ("Ann", "Bo", "went", "to", "Oslo", "and", "Rome", "the", "mayor", "of", "Bergen", ",", ".", "😀", "naïve")


def tagger(head: str = "spanner", encoder: dict[str, Any] | None = None, **options: Any) -> Tagger:
    """Random weights that answer with many entities; the same every time."""
    tiny = tiny_encoder(EncoderConfig(name="tiny", **(encoder or {})))
    kind: Any = head_class(head)
    config = kind.Config(max_width=4) if head == "spanner" else kind.Config()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        built = build_head(head, config, LABELS, tiny.width, tiny.input_width)
        for parameter in built.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    return Tagger(tiny, built, **{"widest": 4, **options})


def sentences(n: int, seed: int = 0, longest: int = 20) -> list[Sentence]:
    draw = random.Random(seed)
    return [Sentence(tuple(draw.choices(WORDS, k=draw.randint(1, longest)))) for _ in range(n)]


def same(found: Sequence[Iterable[Entity]], others: Sequence[Iterable[Entity]]) -> None:
    """The same entities, and scores within 1e-5."""
    assert [set(entities) for entities in found] == [set(entities) for entities in others]
    for entities, more in zip(found, others, strict=True):
        scores = {entity: entity.score for entity in more}
        assert {entity: entity.score for entity in entities} == pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize("head", ["spanner", "seqner"])
def test_batches_change_nothing(head: str) -> None:
    one, given = tagger(head), sentences(70)
    alone = one.predict(given, batch_size=1)
    assert sum(map(len, alone)) > 70
    for size in (7, 32, 64):
        same(one.predict(given, batch_size=size), alone)
    same(one.predict(given, batch_tokens=100), alone)
    order = random.Random(1).sample(range(70), 70)
    shuffled = one.predict([given[i] for i in order])
    same(shuffled, [alone[i] for i in order])
    beside = one.predict([given[0], Sentence(tuple(WORDS * 10))], batch_size=2)
    same(beside[:1], alone[:1])


def test_what_is_no_text_or_sentence_is_refused_by_name() -> None:
    one: Any = tagger()
    calls: list[tuple[Any, str]] = [
        (lambda: list(one.stream("Ann")), "an iterable of texts, got 'Ann'"),
        (lambda: list(one.stream(None)), "an iterable of texts, got None"),
        (lambda: one(b"Ann"), r"got b'Ann'"),
        (lambda: one(words=["Ann", 3]), r"a list of words, got \['Ann', 3\]"),
        (lambda: one(words=[["Ann"]]), "sentences one by one"),
        (lambda: one.predict(["Ann"]), "Sentence objects.*got 'Ann'"),
        (lambda: one.predict("Ann"), "Sentence objects.*got 'Ann'"),
        (lambda: one.predict(None), "Sentence objects.*got None"),
        (lambda: one.predict(Sentence(("Ann",))), "a list of Sentence objects"),
        (lambda: one.with_options(threshold="0.3"), 'threshold = "0.3": expected a number'),
    ]
    for wrong, told in calls:
        with pytest.raises(SpanwrightError, match=told):
            wrong()
    assert repr(one) == "<Tagger: SpanNER over tiny, labels place, person>"


def test_texts_without_words_do_not_pile_up() -> None:
    read: list[int] = []

    def feed() -> Iterator[str]:
        for i in range(5 * SORTED_SENTENCES):
            read.append(i)
            yield ""

    next(iter(tagger().stream(feed())))
    assert len(read) <= SORTED_SENTENCES


def test_what_came_before_a_bad_document_is_answered() -> None:
    one = tagger()
    good = one.read("Ann went to Oslo.")
    bad = replace(good, entities=(Mention(0, 99, "place", "?"),))
    found: list[Document] = []
    with pytest.raises(ValueError, match="characters 0:99"):
        found.extend(one.stream([good, bad]))
    assert [document.text for document in found] == [good.text]


def test_what_is_drawn_changes_with_the_seed_the_epoch_and_the_sentence_alone() -> None:
    one = tagger()
    examples = [one.example(sentence, index) for index, sentence in enumerate(sentences(3))]
    keys = {
        (seed, epoch): one.batch(examples, seed, epoch).targets["key"].tolist() for seed in (1, 2) for epoch in (0, 1)
    }
    assert len({key for batch in keys.values() for key in batch}) == 12
    assert one.batch(examples[::-1], 1, 1).targets["key"].tolist() == keys[1, 1][::-1]


def test_a_string_a_list_and_words() -> None:
    one = tagger()
    document = one("Ann 😀 went to Rome. Bo stayed home.")
    assert isinstance(document, Document) and document.entities
    assert one([document.text, "Oslo"])[0].entities == document.entities
    assert one(words=["Ann", "went", "home"]).words == ("Ann", "went", "home")
    assert one([]) == [] and one("").entities == () and one(" \n ").entities == ()


@given(st.text(st.sampled_from("Ann Bo Oslo😀\u0301\u200d\u00ad\u202e א中\r\n\t\0.,'-"), max_size=80))
@settings(max_examples=40)
def test_offsets_are_exact_whatever_the_text(text: str) -> None:
    document = SHARED(text)
    for entity in document.entities:
        assert text[entity.start_char : entity.end_char] == entity.text != ""
        assert document.words[entity.start : entity.end][0] == entity.text[: len(document.words[entity.start])]
        assert 0.0 <= entity.score <= 1.0 and entity.label in LABELS


SHARED = tagger()


def test_the_rule_of_training_is_used() -> None:
    assert tagger(rule=TextRule(words="characters"))("中文字").words == ("中", "文", "字")
    custom = tagger(rule=TextRule(words="custom"), tokenizer=str.split)
    assert custom("a-b c").words == ("a-b", "c")
    with pytest.raises(SpanwrightError, match="tokenizer"):
        tagger(rule=TextRule(words="custom"))("a b")


def test_options_share_the_weights_and_leave_the_tagger_alone() -> None:
    one = tagger()
    strict = one.with_options(threshold=0.9, overlap="flat")
    assert strict.encoder is one.encoder
    assert all(a is b for a, b in zip(strict.head.parameters(), one.head.parameters(), strict=True))
    assert one.head.inference.threshold == 0.5
    given = sentences(30)
    for few, every in zip(strict.predict(given), one.with_options(overlap="all").predict(given), strict=True):
        assert all(entity.score >= 0.9 for entity in few)
        assert not any(a.overlaps(b) for a in few for b in few - {a})
        assert few <= every  # not of the nested ones: there a crossing span may have lost to one that flat drops
    assert any(a != b for a, b in zip(strict.predict(given), one.predict(given), strict=True))
    with pytest.raises(SpanwrightError, match=r"treshold.*threshold, overlap"):
        one.with_options(treshold=0.1)


def test_both_outputs_of_a_bundle() -> None:
    bundle = tagger_of_bundle()
    spans, tags = bundle.predict(sentences(5)), bundle.with_options(output="seqner").predict(sentences(5))
    assert spans != tags
    with pytest.raises(SpanwrightError, match="nobody"):
        bundle.with_options(output="nobody")


def tagger_of_bundle() -> Tagger:
    tiny = tiny_encoder()
    kind: Any = head_class("bundle")
    config = kind.fit(kind.Config(), [Sentence(("a", "b"), frozenset({Entity(0, 2, "place")}))])
    torch.manual_seed(0)
    return Tagger(tiny, build_head("bundle", config, LABELS, tiny.width, tiny.input_width))


# ------------------------------------------------------------------------------------------------ long and many


def test_a_long_sentence_is_tagged_to_its_end() -> None:
    one = tagger(max_words=20)
    words = tuple(random.Random(2).choices(WORDS, k=500))
    (found,) = one.predict([Sentence(words)])
    covered = {i for entity in found for i in range(entity.start, entity.end)}
    assert min(covered) < 10 and max(covered) > 490
    assert max(b - a for a, b in zip(sorted(covered), sorted(covered)[1:], strict=False)) < 20


def test_short_sentences_are_not_touched_by_the_limit() -> None:
    given = sentences(20, longest=18)
    assert tagger(max_words=20).predict(given) == tagger(max_words=256).predict(given)


def test_streaming_reads_no_more_than_it_needs() -> None:
    read = 0

    def texts() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "Ann went to Rome ."

    assert len(list(islice(SHARED.stream(texts()), 3))) == 3
    assert read <= SORTED_SENTENCES + 1


def test_a_stream_keeps_order_and_answers_empty_texts() -> None:
    texts = ["Ann .", "", "Bo went to Oslo . Ann stayed .", "\n", "Rome"] * 200
    found = list(SHARED.stream(texts))
    assert [document.text for document in found] == texts
    assert [document.entities for document in found[:5]] == [SHARED(text).entities for text in texts[:5]]


def test_neighbouring_sentences_are_context_and_change_the_answer() -> None:
    text = "Ann went to Rome. Bo stayed in Oslo. The mayor went home."
    alone, together = tagger(), tagger(encoder={"context": 1})
    assert [m.score for m in alone(text).entities] != [m.score for m in together(text).entities]
    assert together(text).text == text


def test_what_came_before_an_error_is_answered() -> None:
    def given() -> Iterator[str]:
        yield from ("Ann left.", "Bo left.")
        raise KeyError("the third")

    stream = SHARED.stream(given())
    assert [next(stream).text, next(stream).text] == ["Ann left.", "Bo left."]
    with pytest.raises(KeyError, match="the third"):
        next(stream)


def test_what_is_not_text_is_told() -> None:
    for wrong in (7, None, {"text": "Ann"}):
        with pytest.raises(SpanwrightError, match="nothing to tag"):
            SHARED(wrong)  # type: ignore[arg-type]
    with pytest.raises(SpanwrightError, match="expected one of them"):
        SHARED("Ann", words=["Ann"])  # type: ignore[call-overload]
    with pytest.raises(SpanwrightError, match="expected text, got int"):
        SHARED([1])  # type: ignore[list-item]
    with pytest.raises(SpanwrightError, match="list of words"):
        SHARED(words="Ann went")
