"""The papers' analyses, against tables counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from spanwright.analyse import offset_table, ranking
from spanwright.config import EncoderConfig
from spanwright.encoder import build_encoder
from spanwright.evaluate import Score
from spanwright.head import Head, States
from spanwright.heads.bopn import BOPN
from spanwright.heads.bundle import Bundle, BundleInference
from spanwright.heads.spanner import SpanNER
from spanwright.tagger import Tagger
from spanwright.types import Entity, Labels, Sentence, SpanwrightError

LABELS = Labels(["A", "B"])
GOLD = [
    Sentence(tuple("abcde"), frozenset({Entity(1, 4, "A")})),
    Sentence(()),
    Sentence(tuple("ab"), frozenset({Entity(0, 2, "B"), Entity(0, 1, "B")})),
]


def tagger(build: Any) -> Tagger:
    encoder = build_encoder(EncoderConfig(name="tiny"))
    return Tagger(encoder, build(encoder.width, encoder.input_width))


class Says(BOPN):
    """Says of each sentence, told by its length, what the table says: (type, i, j) -> label by name."""

    table: dict[int, dict[tuple[int, int, int], str]]

    def forward(self, states: States) -> dict[str, Tensor]:
        n, k = states.mask.shape[1], self.band or states.mask.shape[1]
        scores = torch.zeros(len(states.mask), n, k, len(self.offsets), len(self.labels))
        scores[:, :, :, 0] = 9.0
        for row, length in enumerate(states.mask.sum(1).tolist()):
            for (kind, i, j), name in self.table[length].items():
                scores[row, i, j - i if self.band else j, self.offsets.names.index(name), kind] = 20.0
        return {"scores": scores}


def saying(table: dict[int, dict[tuple[int, int, int], str]], **settings: Any) -> Tagger:
    Says.table = table
    return tagger(lambda *sizes: Says(Says.Config(max_offset=1, **settings), LABELS, *sizes))


RIGHT = {
    5: {(0, 1, 3): "c:0", (0, 0, 3): "s:-1", (0, 2, 3): "s:1", (0, 1, 2): "e:-1", (0, 1, 4): "e:1"},
    2: {(1, 0, 1): "c:0", (1, 0, 0): "c:0", (1, 1, 1): "s:1"},
}


@pytest.mark.parametrize("settings", [{}, {"max_width": 4}])
def test_the_table_of_a_model_that_is_right(settings: dict[str, Any]) -> None:
    table = offset_table(saying(RIGHT, **settings), GOLD)
    assert list(table) == ["-1S", "1S", "-1E", "1E", "0", "all", "rules", "centre"]
    support = {"-1S": 1, "1S": 2, "-1E": 1, "1E": 1, "0": 3, "all": 3, "rules": 3, "centre": 3}
    assert table == {name: Score.of(count, count, count) for name, count in support.items()}
    narrow = offset_table(saying(RIGHT, **settings).with_options(max_width=2), iter(GOLD))
    assert {name: narrow[name] for name in ("1S", "0")} == {name: table[name] for name in ("1S", "0")}
    assert narrow["centre"] == Score.of(2, 2, 3)


def test_the_table_counts_cells_and_then_entities() -> None:
    """The centre of 1:4 is missed, but two starts and an end point at it; one end points at what is none."""
    wrong = {5: {**RIGHT[5], (0, 1, 3): "pad", (1, 0, 1): "e:1"}, 2: {(1, 0, 0): "c:0", (0, 0, 1): "c:0"}}
    table = offset_table(saying(wrong), GOLD)
    assert table["-1S"] == Score.of(1, 1, 1)
    assert table["1S"] == Score.of(1, 1, 2)
    assert table["1E"] == Score.of(1, 2, 1)
    assert table["0"] == Score.of(1, 2, 3)
    assert table["centre"] == Score.of(1, 2, 3)
    assert table["all"] == Score.of(2, 4, 3)
    assert table["rules"] == table["all"]  # with an offset of 1, one vote is as many as there can be


def test_a_bundle_is_asked_for_the_head_that_answers() -> None:
    def bundle(output: str) -> Tagger:
        config = Bundle.Config(
            {"bopn": {}, "spanner": {"max_width": 3}}, {"bopn": 1.0, "spanner": 1.0}, BundleInference(output=output)
        )
        return tagger(lambda *sizes: Bundle(config, LABELS, *sizes))

    assert len(offset_table(bundle("bopn"), GOLD)) == 9 + 3
    with pytest.raises(SpanwrightError, match="head is BOPN; this one answers with SpanNER"):
        offset_table(bundle("spanner"), GOLD)


def test_ranking_counts_the_pairs() -> None:
    def scored(*scores: float) -> list[Entity]:
        return [Entity(i, i + 1, "A", score) for i, score in enumerate(scores)]

    gold = [Sentence(tuple("abc"), frozenset(scored(1, 1))), Sentence(tuple("abc"))]
    assert ranking(gold, [scored(0.9, 0.8, 0.1), scored(0.7)]) == 1.0
    assert ranking(gold, [scored(0.9, 0.2, 0.1), scored(0.7)]) == 0.75
    assert ranking(gold, [scored(0.5, 0.5, 0.5), []]) == 0.5
    assert ranking(gold, [scored(0.5, 0.5), []]) is None
    assert ranking(gold, [[], scored(0.5)]) is None
    with pytest.raises(SpanwrightError, match="2 gold sentences and 1 predicted ones"):
        ranking(gold, [[]])


def test_other_heads_have_no_offsets() -> None:
    def spanner(*sizes: int) -> Head:
        return SpanNER(SpanNER.Config(max_width=3), LABELS, *sizes)

    with pytest.raises(SpanwrightError, match="needs a model whose head is BOPN"):
        offset_table(tagger(spanner), GOLD)
