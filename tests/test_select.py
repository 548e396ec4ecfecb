"""Selection, held against the definitions written out naively."""

from __future__ import annotations

import random
import time
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanwright.select import MODES, outermost, select
from spanwright.types import Entity, SpanwrightError

# Scores are eighths, so that ties are common and sums are exact.
eighths = st.integers(0, 8).map(lambda n: n / 8)


@st.composite
def candidate_lists(draw: st.DrawFn, most: int = 14, words: int = 9) -> list[Entity]:
    def one() -> Entity:
        start = draw(st.integers(0, words - 1))
        return Entity(start, draw(st.integers(start + 1, words)), draw(st.sampled_from("ABC")), draw(eighths))

    return [one() for _ in range(draw(st.integers(0, most)))]


def scored(entities: frozenset[Entity]) -> set[tuple[int, int, str, float]]:
    """Equality of entities ignores the score; here it counts."""
    return {(e.start, e.end, e.label, e.score) for e in entities}


def naive_order(candidates: list[Entity]) -> list[Entity]:
    return sorted(candidates, key=lambda e: (-e.score, -(e.end - e.start), e.start, e.label))


def naive_nested(candidates: list[Entity]) -> frozenset[Entity]:
    kept: list[Entity] = []
    for entity in naive_order(candidates):
        if not any(entity.crosses(k) or (entity.start, entity.end) == (k.start, k.end) for k in kept):
            kept.append(entity)
    return frozenset(kept)


def naive_flat(candidates: list[Entity]) -> frozenset[Entity]:
    kept: list[Entity] = []
    for entity in naive_order(candidates):
        if not any(entity.overlaps(k) for k in kept):
            kept.append(entity)
    return frozenset(kept)


def naive_optimum(candidates: list[Entity]) -> tuple[float, int, int]:
    """The best (total score, words covered, minus the number of entities) of all sets without overlap."""
    best = (0.0, 0, 0)
    for size in range(1, len(candidates) + 1):
        for chosen in combinations(candidates, size):
            if not any(a.overlaps(b) for a, b in combinations(chosen, 2)):
                best = max(best, (sum(e.score for e in chosen), sum(map(len, chosen)), -size))
    return best


# The rule of the Bundling Learning paper: spans [start, end inclusive, probability] -> the spans that stay.
GOLDEN: list[tuple[list[tuple[int, int, float]], list[tuple[int, int]]]] = [
    ([(0, 1, 0.9), (1, 2, 0.5)], [(0, 1)]),
    ([(0, 3, 0.9), (1, 2, 0.95), (2, 5, 0.97)], [(2, 5)]),
    ([(0, 0, 0.6)], [(0, 0)]),
    ([(0, 4, 0.6), (0, 1, 0.7), (3, 4, 0.65)], [(0, 1), (3, 4)]),
    ([(3, 3, 0.366), (1, 4, 0.479), (7, 10, 0.631)], [(1, 4), (7, 10)]),
    ([(3, 4, 0.542), (3, 6, 0.835)], [(3, 6)]),
    ([(6, 6, 0.712), (1, 3, 0.43), (1, 4, 0.82), (3, 6, 0.512), (4, 7, 0.949)], [(1, 3), (4, 7)]),
    ([(7, 7, 0.937), (0, 1, 0.839), (2, 3, 0.418), (6, 8, 0.66), (0, 3, 0.516)], [(0, 1), (2, 3), (7, 7)]),
    ([(2, 3, 0.663), (5, 6, 0.699), (6, 8, 0.542), (6, 9, 0.965)], [(2, 3), (6, 9)]),
    ([(2, 3, 0.479), (4, 5, 0.377), (5, 6, 0.503)], [(2, 3), (5, 6)]),
    ([(7, 7, 0.632), (3, 5, 0.481), (4, 6, 0.618), (4, 7, 0.571)], [(4, 6), (7, 7)]),
    ([(0, 1, 0.816), (1, 3, 0.901), (3, 5, 0.913), (4, 7, 0.821), (5, 8, 0.762)], [(0, 1), (3, 5)]),
]


@pytest.mark.parametrize(("spans", "expected"), GOLDEN)
def test_flat_is_the_rule_of_the_paper(spans: list[tuple[int, int, float]], expected: list[tuple[int, int]]) -> None:
    kept = select([Entity(start, last + 1, "X", score) for start, last, score in spans], "flat")
    assert sorted((e.start, e.end - 1) for e in kept) == expected


@given(candidate_lists())
def test_all_keeps_the_best_score_of_each_span_and_label(candidates: list[Entity]) -> None:
    best: dict[tuple[int, int, str], float] = {}
    for e in candidates:
        best[e.start, e.end, e.label] = max(e.score, best.get((e.start, e.end, e.label), 0.0))
    assert scored(select(candidates, "all")) == {(*key, score) for key, score in best.items()}


@given(candidate_lists())
def test_nested_equals_the_definition(candidates: list[Entity]) -> None:
    assert scored(select(candidates, "nested")) == scored(naive_nested(candidates))


def test_nested_equals_the_definition_on_many_long_lists() -> None:
    draw = random.Random(7)
    for _ in range(60):
        starts = [draw.randrange(60) for _ in range(200)]
        spans = [Entity(s, s + draw.randint(1, 40), draw.choice("AB"), draw.randint(0, 50) / 50) for s in starts]
        assert scored(select(spans, "nested")) == scored(naive_nested(spans))


@given(candidate_lists())
def test_flat_equals_the_definition(candidates: list[Entity]) -> None:
    assert scored(select(candidates, "flat")) == scored(naive_flat(candidates))


@given(candidate_lists(most=9))
def test_optimal_equals_brute_force(candidates: list[Entity]) -> None:
    kept = select(candidates, "optimal")
    assert not any(a.overlaps(b) for a, b in combinations(kept, 2))
    reached = (sum(e.score for e in kept), sum(map(len, kept)), -len(kept))
    assert reached == naive_optimum(candidates)
    assert scored(kept) <= scored(select(candidates, "all"))


def test_optimal_may_give_up_the_best_span_where_flat_may_not() -> None:
    spans = [Entity(1, 3, "A", 0.9), Entity(0, 2, "A", 0.6), Entity(2, 4, "A", 0.6)]
    assert select(spans, "flat") == {Entity(1, 3, "A")}
    assert select(spans, "optimal") == {Entity(0, 2, "A"), Entity(2, 4, "A")}


@given(candidate_lists(), st.randoms(use_true_random=False), st.sampled_from(MODES), eighths)
def test_order_and_repetition_of_the_input_do_not_matter(
    candidates: list[Entity], random_: random.Random, overlap: str, threshold: float
) -> None:
    shuffled = candidates + candidates[::2]
    random_.shuffle(shuffled)
    assert scored(select(shuffled, overlap, threshold)) == scored(select(iter(candidates), overlap, threshold))


@given(candidate_lists(), st.sampled_from(MODES), eighths)
def test_a_threshold_is_a_selection_beforehand(candidates: list[Entity], overlap: str, threshold: float) -> None:
    above = [e for e in candidates if e.score >= threshold]
    assert scored(select(candidates, overlap, threshold)) == scored(select(above, overlap))


@given(candidate_lists(), st.sampled_from(MODES))
def test_what_was_selected_is_selected_again(candidates: list[Entity], overlap: str) -> None:
    kept = select(candidates, overlap)
    assert scored(select(kept, overlap)) == scored(kept)


@pytest.mark.parametrize("overlap", MODES)
def test_ties_go_to_the_longer_then_the_earlier_then_the_alphabet(overlap: str) -> None:
    if overlap != "all":
        assert select([Entity(0, 2, "B"), Entity(0, 2, "A")], overlap) == {Entity(0, 2, "A")}
    if overlap in ("nested", "flat"):
        assert select([Entity(2, 4, "A"), Entity(1, 3, "A")], overlap) == {Entity(1, 3, "A")}
    if overlap != "nested":
        assert Entity(0, 4, "A") in select([Entity(2, 3, "A", 0.5), Entity(0, 4, "A", 0.5)], overlap)
    assert select([Entity(0, 4, "A"), Entity(3, 5, "A")], overlap) >= {Entity(0, 4, "A")}


def test_ties_of_the_best_total_go_to_more_words_then_to_fewer_entities() -> None:
    three = [Entity(0, 1, "A", 0.25), Entity(1, 2, "A", 0.25), Entity(2, 4, "A", 0.25)]
    assert select([*three, Entity(0, 3, "A", 0.75)], "optimal") == set(three)
    two = [Entity(0, 3, "A", 0.5), Entity(3, 4, "A", 0.25)]
    assert select([*three, *two], "optimal") == set(two)


def test_a_score_at_the_threshold_passes_and_one_that_is_no_number_never_does() -> None:
    candidates = [Entity(0, 1, "A", 0.5), Entity(1, 2, "A", 0.4999), Entity(2, 3, "A", float("nan"))]
    assert select(candidates, threshold=0.5) == {Entity(0, 1, "A")}
    assert select(candidates) == {Entity(0, 1, "A"), Entity(1, 2, "A")}


@given(candidate_lists())
def test_outermost_keeps_what_nothing_larger_overlaps(entities: list[Entity]) -> None:
    kept = outermost(entities)
    assert not any(a.overlaps(b) for a, b in combinations(kept, 2))
    for e in entities:
        if not any(len(o) >= len(e) and o.overlaps(e) and (o.start, o.end) != (e.start, e.end) for o in entities):
            assert any((k.start, k.end) == (e.start, e.end) and k.score >= e.score for k in kept)


def test_outermost_of_one_span_with_two_labels_is_the_better_score() -> None:
    assert outermost([Entity(0, 3, "A", 0.6), Entity(0, 3, "B", 0.7), Entity(1, 2, "C")]) == {Entity(0, 3, "B")}


def test_a_mode_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(SpanwrightError, match=r"'nestd'.*'all', 'nested', 'flat', 'optimal'"):
        select([], "nestd")


@pytest.mark.parametrize("threshold", [-0.1, 50, float("nan")])
def test_a_threshold_that_no_score_can_meet_is_refused(threshold: float) -> None:
    with pytest.raises(SpanwrightError, match="from 0 to 1"):
        select([], threshold=threshold)


def test_a_candidate_without_a_word_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one word"):
        select([Entity(3, 3, "A")])


@pytest.mark.parametrize("overlap", MODES)
def test_time_grows_with_the_candidates_and_not_with_their_pairs(overlap: str) -> None:
    def seconds(starts: int) -> float:
        draw = random.Random(1)
        spans = [Entity(start, start + width, "A", draw.random()) for start in range(starts) for width in range(1, 9)]
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            select(spans, overlap)
            best = min(best, time.process_time() - began)
        return best

    # 8 times as many: about 9 times as long; comparing with every kept span would take some 60 times as long.
    assert seconds(4000) < 25 * seconds(500)
