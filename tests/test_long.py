"""Long sentences: cut into parts, and put together again without loss."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spanwright import long
from spanwright.types import Entity, Sentence

# words of a sentence, `max_words`, `widest`
SHAPES = st.tuples(st.integers(1, 400), st.integers(2, 60), st.integers(1, 80))


def held(max_words: int, widest: int) -> int:
    """Words of the widest entity that is promised to lie whole in a part: the widest, up to 7/8 of a part."""
    return max(1, min(widest, max_words - max(1, max_words // 8)))


@given(SHAPES)
def test_parts_cover_all_words_and_none_is_too_long(shape: tuple[int, int, int]) -> None:
    n_words, max_words, widest = shape
    places = long.ranges(n_words, max_words, widest)
    assert set().union(*(range(start, end) for start, end in places)) == set(range(n_words))
    assert all(0 < end - start <= max_words for start, end in places)
    assert places == sorted(set(places))


@given(SHAPES, st.data())
def test_a_span_up_to_the_widest_lies_whole_in_its_owner(shape: tuple[int, int, int], data: st.DataObject) -> None:
    n_words, max_words, widest = shape
    places = long.ranges(n_words, max_words, widest)
    width = data.draw(st.integers(1, min(held(max_words, widest), n_words)))
    begin = data.draw(st.integers(0, n_words - width))
    entity = Entity(begin, begin + width, "X")
    start, end = places[long.owner(entity, n_words, places)]
    assert start <= entity.start and entity.end <= end


@given(SHAPES, st.data())
def test_merging_what_every_part_saw_gives_each_entity_once(shape: tuple[int, int, int], data: st.DataObject) -> None:
    n_words, max_words, widest = shape
    fits = min(held(max_words, widest), n_words)
    drawn = data.draw(st.lists(st.tuples(st.integers(0, n_words - 1), st.integers(1, fits)), max_size=30))
    gold = frozenset(Entity(start, min(n_words, start + width), "X") for start, width in drawn)
    sentence = Sentence(tuple("w" * n_words), gold)
    places = long.ranges(n_words, max_words, widest)
    seen = [part.entities for part in long.parts(sentence, max_words, widest)]
    merged = long.merge(seen, n_words, places)
    assert sorted(merged) == sorted(gold)


def test_the_owner_shows_more_than_a_seam() -> None:
    places = long.ranges(300, 100, 10)
    for begin in range(0, 295):
        start, end = places[long.owner(Entity(begin, begin + 5, "X"), 300, places)]
        assert start == 0 or begin - start >= 8
        assert end == 300 or end - (begin + 5) >= 8


def test_a_part_keeps_features_spaces_and_the_context_at_its_own_end() -> None:
    sentence = Sentence(
        tuple("abcdef"), left=("l",), right=("r",), features={"pos": tuple("ABCDEF")}, spaces=(True,) * 6, doc="d"
    )
    entities = sorted(sentence.entities)
    first, last = long.part(sentence, 0, 4, entities), long.part(sentence, 3, 6, entities)
    assert (first.left, first.right, last.left, last.right) == (("l",), (), (), ("r",))
    assert last.features == {"pos": ("D", "E", "F")} and len(last.spaces) == 3 and last.doc == "d"


def test_training_parts_avoid_cutting_entities() -> None:
    gold = frozenset({Entity(8, 12, "X"), Entity(15, 17, "Y")})
    parts = long.training_parts(Sentence(tuple("w" * 25), gold), 10)
    assert sum(len(part) for part in parts) == 25
    assert max(len(part) for part in parts) <= 10
    assert sum(len(part.entities) for part in parts) == 2


def test_an_entity_that_no_cut_can_spare_is_lost_and_the_words_are_not() -> None:
    parts = long.training_parts(Sentence(tuple("w" * 30), frozenset({Entity(0, 30, "X")})), 10)
    assert [len(part) for part in parts] == [10, 10, 10]
    assert not any(part.entities for part in parts)
