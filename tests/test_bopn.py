"""BOPN: golden numbers, contracted scores against the formulas as they stand, the loss, the grid, decoding, scores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from spanwright.batch import pad_targets
from spanwright.config import EncoderConfig, from_dict, to_dict
from spanwright.encoder import build_encoder
from spanwright.head import States
from spanwright.heads.bopn import BOPN, FEW_TYPES, BOPNInference, per_type
from spanwright.nn.grid import Grid, grid_of
from spanwright.nn.offsets import offset_labels
from spanwright.tagger import Tagger
from spanwright.types import Entity, Labels, Sentence, SpanwrightError

GOLDEN = json.loads((Path(__file__).parent / "golden" / "bopn.json").read_text(encoding="utf-8"))
LABELS = Labels(["X", "Y", "Z"])
WIDTH = 6
SMALL: dict[str, Any] = {"biaffine_size": 5, "distance_size": 3, "region_size": 2}


def head(labels: Labels = LABELS, **settings: Any) -> BOPN:
    """Every parameter is random, those that start at zero or one as well."""
    torch.manual_seed(0)
    built = BOPN(BOPN.Config(**{**SMALL, **settings}), labels, WIDTH, WIDTH).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(0.5 * torch.randn_like(parameter))
    return built


def states(lengths: list[int], n_types: int = 3, padding: int = 0, seed: int = 1) -> States:
    torch.manual_seed(seed)
    n, longest = len(lengths), max(lengths)
    words, prefix = torch.randn(n, longest, WIDTH), torch.randn(n, n_types, WIDTH)
    words = torch.cat([words, torch.full((n, padding, WIDTH), 7.0)], dim=1)
    mask = torch.arange(longest + padding) < torch.tensor(lengths)[:, None]
    return States(words, mask, prefix, torch.zeros(n, WIDTH))


def sentence(n_words: int, *entities: tuple[int, int, str]) -> Sentence:
    return Sentence(("w",) * n_words, frozenset(Entity(*entity) for entity in entities))


def bucket(i: int, j: int) -> int:
    """The row of the distance table, from the table of the notes: 1, 2-3, 4-7, ...; i - j > 0, then < 0, then 0."""
    return 18 if i == j else min(9, abs(i - j).bit_length()) - 1 + (9 if i < j else 0)


def dense(bopn: BOPN, scores: Tensor) -> Tensor:
    """[B, N, K, L, M] -> [B, N, N, L, M], whatever the grid; 0 where it has no cell."""
    n, columns = scores.shape[1:3]
    if not bopn.reach:
        return scores
    lowest = 0 if bopn.config.grid == "upper" else -(columns // 2)
    out = scores.new_zeros(len(scores), n, n, *scores.shape[3:])
    for i in range(n):
        for column in range(columns):
            if 0 <= i + column + lowest < n:
                out[:, i, i + column + lowest] = scores[:, i, column]
    return out


# ------------------------------------------------------------------------------------------------ naive formulas


def cln(norm: Any, x: Tensor, condition: Tensor) -> Tensor:
    """Eq. (1)"""
    normal = (x - x.mean()) / (x.var(unbiased=False) + 1e-12).sqrt()
    return norm.gain(condition) * normal + norm.shift(condition)


def naive_cell(bopn: BOPN, batch: States, row: int, m: int, i: int, j: int) -> Tensor:
    """[L] Eq. (1) to (3) for one cell, with everything concatenated."""
    words, type_state = batch.words[row], (batch.prefix[row, m] if bopn.prefix() is not None else bopn.types[m])
    span = [cln(bopn.condition, words[i], words[j])]
    if bopn.distance is not None:
        span.append(bopn.distance.weight[bucket(i, j)])
    if bopn.region is not None:
        span.append(bopn.region.weight[int(i > j)])
    wide = torch.cat(span)
    one = torch.ones(1)
    x = torch.cat([F.relu(bopn.left(type_state)), one])
    y = torch.cat([F.relu(bopn.right(wide)), one])
    scores = torch.stack([x @ u @ y for u in bopn.biaffine])
    if bopn.config.scorer == "conditional":
        scores = scores + bopn.score(cln(bopn.type_condition, type_state, wide))
    return scores


def naive_logits(bopn: BOPN, batch: States, row: int, belongs: Any) -> Tensor:
    """[L, M, N, N] of one sentence without its padding, by torch's own three-dimensional layers."""
    n, n_types, n_labels = int(batch.mask[row].sum()), len(bopn.labels), len(bopn.offsets)
    c = torch.zeros(n_labels, n_types, n, n)
    inside = torch.zeros(n, n)
    for i in range(n):
        for j in range(n):
            if belongs(i, j):
                inside[i, j] = 1
                for m in range(n_types):
                    c[:, m, i, j] = naive_cell(bopn, batch, row, m, i, j)
    return c + naive_convolutions(bopn, c, inside) if bopn.config.conv_layers else c


def naive_convolutions(bopn: BOPN, c: Tensor, inside: Tensor) -> Tensor:
    """[L, M, N, N] Eq. (4) and (5)"""
    n_labels = len(bopn.offsets)
    q = F.gelu(F.conv3d(c, bopn.stem.weight[:, :, None, None, None], bopn.stem.bias)) * inside
    layers = []
    for d, kernel in enumerate(bopn.kernels, 1):
        assert isinstance(kernel, nn.Conv3d)
        q = F.gelu(F.conv3d(q, kernel.weight, kernel.bias, padding=d, dilation=d, groups=n_labels)) * inside
        layers.append(q)
    return F.conv3d(torch.cat(layers), bopn.combine.weight[:, :, None, None, None], bopn.combine.bias) * inside


FORMS: dict[str, dict[str, Any]] = {
    "default": {},
    "full": {"grid": "full"},
    "S = 0": {"max_offset": 0},
    "S = 3, start": {"max_offset": 3, "offsets": "start"},
    "end, full": {"offsets": "end", "grid": "full"},
    "plain embeddings": {"type_input": "embedding"},
    "no distance": {"distance_size": 0},
    "no region": {"grid": "full", "region_size": 0},
    "neither": {"distance_size": 0, "region_size": 0, "grid": "full"},
    "Eq. (3) alone": {"scorer": "concatenated"},
    "no convolution": {"conv_layers": 0},
    "one": {"conv_layers": 1},
    "three": {"conv_layers": 3},
    "band": {"max_width": 3},
    "band, full": {"max_width": 3, "grid": "full"},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lengths", [[7, 3, 1], [2], [1], [8, 8]])
def test_scores_are_those_of_the_naive_formula(form: str, lengths: list[int]) -> None:
    bopn, batch = head(**FORMS[form]), states(lengths, padding=2)

    def belongs(i: int, j: int) -> bool:
        return (i <= j or bopn.config.grid == "full") and (not bopn.reach or abs(i - j) < bopn.reach)

    with torch.no_grad():
        scores = dense(bopn, bopn(batch)["scores"])
        for row, n in enumerate(lengths):
            wanted = naive_logits(bopn, batch, row, belongs).permute(2, 3, 0, 1)
            torch.testing.assert_close(scores[row, :n, :n], wanted, atol=2e-4, rtol=1e-4)
            assert not scores[row, n:].any() and not scores[row, :, n:].any()


def test_scores_are_the_published_ones() -> None:
    given = GOLDEN["head_forward"]
    config = BOPN.Config(max_offset=1, grid="full", biaffine_size=5, distance_size=3, region_size=3)
    bopn = BOPN(config, Labels(["A", "B"]), 6, 6).eval()
    words, biaffine, layers = given["cln_w2w"], given["biaffine"], given["opt"]
    distance = np.reshape(given["grid"]["distance_embeddings.weight"], (20, 3))[1:]  # row 0 is for padding
    region = np.reshape(given["grid"]["region_embeddings.weight"], (3, 3))[[2, 1]]
    values = {
        "distance.weight": distance, "region.weight": region, "biaffine": biaffine["weight"],
    }  # fmt: skip
    for part in ("weight", "bias"):
        values |= {f"{side}.{part}": biaffine[f"{side}.linear.{part}"] for side in ("left", "right")}
        values |= {f"kernels.{k}.{part}": layers[f"conv.convs.{k}.{part}"] for k in (0, 1)}
        values |= {f"score.{part}": given["linear"][part], f"stem.{part}": layers[f"conv.base.1.{part}"]}
        values |= {f"combine.{part}": layers[f"predictor.{part}"]}
    for ours, theirs in (("condition", words), ("type_condition", given["cln_p2w2w"])):
        values |= {f"{ours}.gain.weight": theirs["gamma_dense.weight"], f"{ours}.gain.bias": theirs["gamma"]}
        values |= {f"{ours}.shift.weight": theirs["beta_dense.weight"], f"{ours}.shift.bias": theirs["beta"]}
    assert values.keys() | {"types"} == bopn.state_dict().keys()
    with torch.no_grad():
        for name, parameter in bopn.named_parameters():
            if name in values:
                parameter.copy_(torch.tensor(np.asarray(values[name]).tolist()).view(parameter.shape))
        prefix, tokens = (torch.tensor(given[name]).view(1, -1, 6) for name in ("prompts", "tokens"))
        batch = States(tokens, torch.ones(1, 4, dtype=torch.bool), prefix, torch.zeros(1, 6))
        for conv_layers, name in ((2, "out_final"), (0, "out_scores_before_conv")):
            bopn.config = replace(bopn.config, conv_layers=conv_layers)
            found = bopn(batch)["scores"].permute(0, 4, 1, 2, 3)
            torch.testing.assert_close(found, torch.tensor(given[name]).view(found.shape), atol=2e-5, rtol=1e-5)


def test_distances_fall_into_the_published_buckets() -> None:
    bopn = head(grid="full")
    far = max(map(int, GOLDEN["dis2idx_at"]))
    _, code = bopn._places(Grid(torch.arange(far + 1), torch.zeros(far + 1, dtype=torch.int64), None, torch.zeros(0)))
    theirs = GOLDEN["dis2idx_at"] | {"0": 19}  # their row 0 is for padding
    assert {n: int(code[int(n)]) + 1 for n in theirs} == theirs
    _, code = bopn._places(grid_of(torch.ones(1, 40, dtype=torch.bool), upper=False))
    square = code.view(40, 40) + 1
    assert square[0].tolist() == GOLDEN["distance_buckets_row0"]
    assert square[:, 0].tolist() == GOLDEN["distance_buckets_col0"]


# -------------------------------------------------------------------------------------------------------- the loss


@pytest.mark.parametrize("smoothing", ["0.0", "0.01", "0.1"])
def test_loss_is_the_published_one(smoothing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = GOLDEN["loss"]
    logits = torch.tensor(given["logits"]).view(given["shape"])  # [1, M, N, N, L]
    bopn = head(Labels(["A", "B"]), max_offset=1, grid="full", label_smoothing=float(smoothing))
    monkeypatch.setattr(bopn, "_logits", lambda *_: logits.permute(0, 2, 3, 4, 1))
    labels = np.array(given["labels"])[0]
    monkeypatch.setattr(bopn, "_annotated", lambda *_: torch.from_numpy(labels).permute(1, 2, 0)[None])
    total, count = bopn.loss(states([3], 2), {"offsets": torch.zeros(1, 0, 4, dtype=torch.int64)})["bopn"]
    assert count == labels.size
    assert (total / count).item() == pytest.approx(given["label_smoothing"][smoothing], rel=1e-5)


@pytest.mark.parametrize("form", ["default", "full", "band", "band, full", "S = 0", "S = 3, start"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_the_mean_over_all_cells(form: str, smoothing: float) -> None:
    """Eq. (7) written out over every cell of every sentence; padding counts for nothing."""
    bopn, batch = head(**FORMS[form], label_smoothing=smoothing), states([6, 2, 1])
    golds = [
        sentence(6, (0, 3, "X"), (1, 2, "X"), (1, 2, "Z"), (2, 6, "Y")), sentence(2, (0, 2, "Y")), sentence(1)
    ]  # fmt: skip
    targets = pad_targets([bopn.targets(gold) for gold in golds])
    total, count = bopn.loss(batch, targets)["bopn"]
    scores = dense(bopn, bopn(batch)["scores"])
    n_labels, wanted, cells = len(bopn.offsets), 0.0, 0
    for row, gold in enumerate(golds):
        labels = {(i, j, m): label for m, i, j, label in bopn.targets(gold)["offsets"].tolist()}
        n = len(gold)
        for i in range(n):
            for j in range(n):
                if (i > j and bopn.config.grid == "upper") or (bopn.reach and abs(i - j) >= bopn.reach):
                    continue
                for m in range(3):
                    logs = scores[row, i, j, :, m].log_softmax(0)
                    label = labels.get((min(i, j), max(i, j), m), 0)
                    wanted -= ((1 - smoothing) * logs[label] + smoothing * logs.mean()).item()
                    cells += 1
    assert n_labels == {"S = 0": 2, "S = 3, start": 8}.get(form, 10)
    assert count == cells
    assert total.item() == pytest.approx(wanted, rel=1e-4)


def test_targets_are_the_annotation_of_each_type() -> None:
    for case in GOLDEN["annotation"]:
        labels = Labels([f"T{kind}" for kind in range(case["n_types"])])
        bopn = head(labels, max_offset=case["S"], offsets=case["mode"])
        gold = sentence(case["N"], *((start, end + 1, f"T{kind}") for start, end, kind in case["entities"]))
        found = np.zeros((case["n_types"], case["N"], case["N"]), dtype=int)
        for m, i, j, label in bopn.targets(gold)["offsets"].tolist():
            assert i <= j
            found[m, i, j] = found[m, j, i] = label
        assert found.tolist() == case["labels"]


def test_a_band_teaches_what_it_can_answer() -> None:
    bopn = head(max_width=2)
    gold = sentence(6, (0, 2, "X"), (2, 6, "X"), (3, 4, "Y"), (0, 1, "elsewhere"))
    assert bopn.representable(gold) == {Entity(0, 2, "X"), Entity(3, 4, "Y")}
    assert all(j - i < 2 for _, i, j, _ in bopn.targets(gold)["offsets"].tolist())
    alone = sentence(6, (0, 2, "X"), (3, 4, "Y"))
    assert np.array_equal(bopn.targets(gold)["offsets"], bopn.targets(alone)["offsets"])
    assert bopn.reach == 2 and head().reach is None
    bopn.set_inference(max_width=1)
    assert bopn.reach == 1
    assert bopn.representable(gold) == {Entity(3, 4, "Y")}
    assert np.array_equal(bopn.targets(gold)["offsets"], bopn.targets(alone)["offsets"])  # it still can be taught
    with pytest.raises(SpanwrightError, match=r"max_width = 9: expected at most max_width = 2"):
        bopn.set_inference(max_width=9)


@pytest.mark.parametrize("form", ["default", "full", "three", "one", "no convolution", "S = 3, start"])
@pytest.mark.parametrize("max_width", [1, 3])
@pytest.mark.parametrize("decode", ["rules", "all", "centre"])
def test_a_band_after_training_only_leaves_out_what_is_wider(form: str, max_width: int, decode: Any) -> None:
    bopn, batch, lengths = head(**FORMS[form]), states([23, 4, 1]), [23, 4, 1]
    bopn.set_inference(decode=decode)
    with torch.no_grad():
        whole = bopn.decode(bopn(batch), lengths)
        loss = bopn.loss(batch, pad_targets([bopn.targets(sentence(n, (0, n, "X"))) for n in lengths]))["bopn"]
        bopn.set_inference(max_width=max_width)
        scores = bopn(batch)
        narrow = bopn.decode(scores, lengths)
        again = bopn.loss(batch, pad_targets([bopn.targets(sentence(n, (0, n, "X"))) for n in lengths]))["bopn"]
    for row in (0, 1, 2):
        kept = {entity: entity.score for entity in whole[row] if len(entity) <= max_width}
        assert {entity: pytest.approx(entity.score, abs=1e-4) for entity in narrow[row]} == kept
    assert scores["scores"].shape[2] < 23 * (2 if form == "full" else 1)
    assert loss == again  # a choice after training does not change training


@pytest.mark.parametrize("form", ["band", "band, full"])
@pytest.mark.parametrize("n", [1, 2, 9])
def test_a_band_always_has_all_its_columns(form: str, n: int) -> None:
    bopn = head(**FORMS[form])
    assert bopn(states([n]))["scores"].shape[:3] == (1, n, 3 if form == "band" else 5)


def test_many_types_are_scored_as_few_are() -> None:
    """Above a number of types another product is taken."""
    torch.manual_seed(0)
    weight, bias = torch.randn(4, 3), torch.randn(4)
    for n_types in (1, FEW_TYPES, FEW_TYPES + 1, 40):
        cells = torch.randn(2, 5, 3 * n_types)
        wanted = F.linear(cells.view(2, 5, 3, n_types).transpose(2, 3), weight, bias).transpose(2, 3).flatten(2)
        torch.testing.assert_close(per_type(weight, bias, cells, n_types), wanted, atol=1e-5, rtol=1e-5)
        without = per_type(weight, None, cells, n_types)
        torch.testing.assert_close(without, wanted - bias.repeat_interleave(n_types), atol=1e-5, rtol=1e-5)


# ------------------------------------------------------------------------------------------------------------ dropout


@pytest.mark.parametrize("form", ["default", "no convolution"])
def test_dropout_before_the_feedforward_layers_alone(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It falls on the types and on v_ij, before the layers of Eq. (2); the conditional path sees neither."""
    bopn, batch = head(**FORMS[form]).train(), states([4])
    bopn.conv_dropout = nn.Identity()  # type: ignore[assignment]
    seen: list[tuple[int, ...]] = []

    def zeroed(given: Tensor) -> Tensor:
        seen.append(tuple(given.shape))
        return 0 * given

    monkeypatch.setattr(bopn.biaffine_dropout, "forward", zeroed)
    with torch.no_grad():
        dropped = bopn._scores(batch.prefix, batch.words, grid_of(batch.mask, upper=True))
        monkeypatch.undo()
        bopn.left.weight.zero_()
        bopn.right.weight[:, :WIDTH] = 0
        wanted = bopn.eval()._scores(batch.prefix, batch.words, grid_of(batch.mask, upper=True))
    assert seen == [(1, 3, WIDTH), (1, 10, WIDTH)]
    torch.testing.assert_close(dropped, wanted, atol=1e-5, rtol=1e-5)


def test_dropout_before_the_convolutions_takes_whole_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all types at once; what the convolutions add to stays whole."""
    bopn, batch, n = head().train(), states([5]), 5
    dropped: list[Tensor] = []

    def without_label_2(given: Tensor) -> Tensor:
        assert given.shape[:2] == (1, len(bopn.offsets)) and given.shape[3] == 3
        kept = given.clone()
        kept[:, 2] = 0
        dropped.append(kept)
        return kept

    bopn.biaffine_dropout.p = 0.0
    monkeypatch.setattr(bopn.conv_dropout, "forward", without_label_2)
    with torch.no_grad():
        found = bopn._logits(batch, grid_of(batch.mask, upper=True))[0].permute(2, 3, 0, 1)
        inside = torch.ones(n, n).triu()
        c = torch.stack([torch.stack([naive_cell(bopn, batch, 0, m, i, j) for i in range(n) for j in range(n)], 1)
                         for m in range(3)], 1).view(-1, 3, n, n) * inside  # fmt: skip
        thinned = c.clone()
        thinned[2] = 0
        wanted = c + naive_convolutions(bopn, thinned, inside)
    assert len(dropped) == 1
    torch.testing.assert_close(found, wanted, atol=2e-4, rtol=1e-4)
    assert isinstance(head().conv_dropout, nn.Dropout2d)


def test_it_begins_as_the_paper_says() -> None:
    """CLN as a plain layer norm, type tokens drawn from a normal distribution, the table of defaults."""
    torch.manual_seed(0)
    bopn = BOPN(BOPN.Config(), Labels([f"T{kind}" for kind in range(50)]), WIDTH, 64)
    for norm in (bopn.condition, bopn.type_condition):
        assert not norm.gain.weight.any() and not norm.shift.weight.any() and not norm.shift.bias.any()
        assert bool((norm.gain.bias == 1).all())
    assert bopn.types.std().item() == pytest.approx(1, abs=0.1) and bool(bopn.biaffine.any())
    config = BOPN.Config()
    assert (config.max_offset, config.offsets, config.grid, config.conv_layers) == (2, "both", "upper", 2)
    assert (config.biaffine_size, config.biaffine_dropout, config.conv_dropout) == (150, 0.33, 0.2)
    assert (config.label_smoothing, config.distance_size, config.region_size) == (0.01, 20, 20)
    assert (config.inference.decode, config.inference.votes, config.inference.threshold) == ("rules", 0, 0.0)


@pytest.mark.parametrize("type_input", ["encoder", "embedding"])
def test_the_width_of_the_words_is_not_that_of_the_input(type_input: Any) -> None:
    encoder = build_encoder(EncoderConfig(name="tiny", lstm=12))
    assert encoder.width == 12 and encoder.input_width == 32
    config = BOPN.Config(**SMALL, type_input=type_input)
    tagger = Tagger(encoder, BOPN(config, LABELS, encoder.width, encoder.input_width))
    gold = [sentence(5, (1, 3, "X")), sentence(2, (0, 1, "Y"))]
    total, count = tagger.loss(tagger.collate(gold))["bopn"]
    assert total.isfinite() and count == 3 * (15 + 3)
    assert len(tagger.predict(gold)) == 2


# -------------------------------------------------------------------------------------- defects that are not repeated


@pytest.mark.parametrize("form", ["default", "full", "three", "band"])
def test_scores_do_not_depend_on_padding(form: str) -> None:
    """Published, a sentence's scores change with the length of its neighbour, for padding enters the convolutions."""
    bopn = head(**FORMS[form])
    with torch.no_grad():
        for parameter in bopn.kernels.parameters():
            parameter.mul_(3)
        alone = bopn(states([5]))["scores"]
        padded = bopn(states([5], padding=6))["scores"]
    columns = alone.shape[2]
    torch.testing.assert_close(padded[:, :5, :columns], alone, atol=1e-5, rtol=1e-5)
    assert not padded[:, 5:].any()


def test_the_order_of_the_types_matters_and_is_kept(tmp_path: Path) -> None:
    """The convolution reads the neighbouring types, so the order belongs to the model."""
    encoder = build_encoder(EncoderConfig(name="tiny"))
    labels = Labels(["zeta", "alpha", "mid"])
    torch.manual_seed(0)
    tagger = Tagger(encoder, BOPN(BOPN.Config(), labels, encoder.width, encoder.input_width))
    tagger.network.eval()
    text = [Sentence(("a", "bc", "d"))]
    scores = tagger.scores(tagger.collate(text))["scores"]
    tagger.save(tmp_path / "model")
    again = Tagger.load(tmp_path / "model", device="cpu")
    assert again.labels.names == labels.names
    assert torch.equal(again.scores(again.collate(text))["scores"], scores)
    types = tagger.head.get_parameter("types")
    with torch.no_grad():
        types.copy_(types[[2, 1, 0]].clone())
    turned = tagger.scores(tagger.collate(text))["scores"].flip(-1)
    assert not torch.allclose(turned, scores, atol=1e-4)


def test_a_row_has_room_for_the_type_tokens_and_the_special_pieces() -> None:
    """Published, a sentence of 511 - M or 512 - M pieces crashes and a longer one is dropped."""
    encoder = build_encoder(EncoderConfig(name="tiny"))  # reads 128 pieces
    tagger = Tagger(encoder, BOPN(BOPN.Config(), LABELS, encoder.width, encoder.input_width))
    tagger.head.set_inference(decode="all")
    for n_words in (122, 123, 124, 125, 126, 127, 128, 200):
        long = Sentence(("ab",) * n_words, frozenset({Entity(0, 1, "X"), Entity(n_words - 1, n_words, "Y")}))
        assert sum(map(len, tagger.encoder.pieces(long.words))) >= n_words
        total, count = tagger.loss(tagger.collate([long]))["bopn"]
        assert total.isfinite() and count == 3 * n_words * (n_words + 1) / 2
        ((_, scores, _),) = tagger.scored([long])
        assert scores["scores"].shape[1] == n_words and bool(scores["scores"][0, -1, -1].any())


# ----------------------------------------------------------------------------------------------------------- decoding


DECODES: dict[Literal["centre", "rules"], tuple[str, str]] = {
    "centre": ("center_entities", "decode_of_gold_center"),
    "rules": ("with_rule_entities", "decode_of_gold_with_rule"),
}


def certain(labels: list, n_labels: int = 10) -> Tensor:
    """Scores of which the given labels [M][N][N] are the most probable."""
    return 30.0 * F.one_hot(torch.tensor(labels).permute(1, 2, 0), n_labels).transpose(2, 3)[None].float()


def entities(found: frozenset[Entity]) -> list[list[int]]:
    return sorted([entity.start, entity.end - 1, int(entity.label[1:])] for entity in found)


@pytest.mark.parametrize("case", GOLDEN["decoding"])
def test_decoding_is_the_published_one(case: dict) -> None:
    labels = Labels([f"T{kind}" for kind in range(case["n_types"])])
    scores = certain(case["labels"], 4 * case["S"] + 2)
    for decode, (wanted, _) in DECODES.items():
        bopn = head(labels, max_offset=case["S"], inference=BOPNInference(decode=decode))
        (found,) = bopn.decode({"scores": scores}, [case["N"]])
        assert entities(found) == sorted(case[wanted])


@pytest.mark.parametrize("case", GOLDEN["annotation"], ids=lambda case: f"{case['mode']}-S{case['S']}-N{case['N']}")
def test_gold_labels_are_decoded_as_published(case: dict) -> None:
    labels = Labels([f"T{kind}" for kind in range(case["n_types"])])
    scores = certain(case["labels"], len(offset_labels(case["S"], case["mode"])))
    for decode, (_, wanted) in DECODES.items():
        bopn = head(labels, max_offset=case["S"], offsets=case["mode"], inference=BOPNInference(decode=decode))
        (found,) = bopn.decode({"scores": scores}, [case["N"]])
        assert entities(found) == sorted(case[wanted])


@given(st.integers(1, 7), st.lists(st.integers(0, 9), min_size=49, max_size=49), st.integers(0, 4))
def test_decoding_cell_by_cell(n: int, drawn: list[int], needed: int) -> None:
    """All: whatever any cell points at. Rules: centres, and what enough cells of one kind point at."""
    names = offset_labels(2, "both").names
    grid = [[drawn[7 * i + j] for j in range(n)] for i in range(n)]
    pointed: dict[tuple[int, int], list[str]] = {}
    for i in range(n):
        for j in range(i, n):
            kind, _, w = names[grid[i][j]].partition(":")
            place = {"s": (i - int(w or 0), j), "e": (i, j - int(w or 0)), "c": (i, j)}.get(kind)
            if place and 0 <= place[0] <= place[1] < n:
                pointed.setdefault(place, []).append(kind)
    wanted: dict[Literal["all", "centre", "rules"], set[tuple[int, int]]] = {
        "all": set(pointed),
        "centre": {place for place, kinds in pointed.items() if "c" in kinds},
        "rules": {
            place
            for place, kinds in pointed.items()
            if "c" in kinds or max(kinds.count("s"), kinds.count("e")) >= (needed or 2)
        },
    }
    for decode, places in wanted.items():
        bopn = head(Labels(["A"]), inference=BOPNInference(decode=decode, votes=needed))
        (found,) = bopn.decode({"scores": certain([grid])}, [n])
        assert {(entity.start, entity.end - 1) for entity in found} == places
        assert all(0 <= entity.score <= 1 for entity in found)


@pytest.mark.parametrize("form", ["default", "full", "band", "band, full"])
def test_the_score_is_the_probability_of_a_centre(form: str) -> None:
    """Also of an entity whose own cell says something else, and that is answered because others point at it."""
    bopn, batch = head(**FORMS[form]), states([7, 4])
    bopn.set_inference(decode="all")
    with torch.no_grad():
        scores = bopn(batch)
        probabilities = dense(bopn, scores["scores"]).softmax(3)[:, :, :, bopn.offsets.centre]
    seen = 0
    for row, found in enumerate(bopn.decode(scores, [7, 4])):
        for entity in found:
            wanted = probabilities[row, entity.start, entity.end - 1, LABELS.index(entity.label)]
            assert entity.score == pytest.approx(wanted.item(), rel=1e-5)
            seen += 1
    assert seen > 20


# ------------------------------------------------------------------------------------------------------------- config


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"max_offset": -1}, "max_offset = -1: expected at least 0"),
        ({"offsets": "sides"}, "offsets"),
        ({"conv_layers": -1}, "conv_layers"),
        ({"conv_layers": 4}, "one of 0, 1, 2, 3"),
        ({"max_width": 3, "inference": {"max_width": 4}}, "expected at most max_width = 3"),
        ({"label_smoothing": 1.0}, "label_smoothing"),
        ({"inference": {"votes": 5}}, "expected at most 4, twice max_offset"),
        ({"inference": {"decode": "center"}}, 'Did you mean "centre"?'),
        ({"inference": {"max_width": -1}}, "max_width"),
    ],
)
def test_bad_settings_are_refused(settings: dict, told: str) -> None:
    with pytest.raises(SpanwrightError) as error:
        from_dict(BOPN.Config, settings, "head")
    assert told in str(error.value)


def test_settings_survive_a_round_trip() -> None:
    config = BOPN.Config(max_offset=3, offsets="end", grid="full", inference=BOPNInference(decode="all", votes=1))
    assert from_dict(BOPN.Config, to_dict(config), "head") == config


def test_there_is_no_array_of_types_by_cells_by_width() -> None:
    """The largest array is smaller than that one by far."""
    n, n_types, width = 24, 40, 64
    bopn = BOPN(BOPN.Config(), Labels([f"T{kind}" for kind in range(n_types)]), width, width).eval()
    words, types = torch.randn(1, n, width), torch.randn(1, n_types, width)
    batch = States(words, torch.ones(1, n, dtype=torch.bool), types, torch.zeros(1, width))
    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for one in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(one, Tensor):
                    largest = max(largest, one.numel())
            return out

    with torch.no_grad(), Watch():
        bopn(batch)
    assert largest <= n_types * n * n * len(bopn.offsets) * bopn.config.conv_layers < n_types * n * n * width
