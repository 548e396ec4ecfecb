"""Training: exact resuming, what is told when it starts badly, what each setting does."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from spanwright import checkpoint, journal, train
from spanwright.config import Recipe, load_recipe, recipe_of
from spanwright.data import read, write
from spanwright.folder import load
from spanwright.journal import Journal
from spanwright.types import Entity, Sentence, SpanwrightError


def recipe(here: Path, head: str = "spanner", **settings: Any) -> Recipe:
    """Two quick epochs on twenty sentences of genia; `settings` are of [train], but for the tables' names."""
    tables: dict[str, Any] = {
        "data": {"train": str(here / "genia.jsonl"), "dev": str(here / "genia.jsonl")},
        "encoder": {"name": "tiny"},
        "head": {"name": head, **settings.pop("head_settings", {})},
        "run": {"device": "cpu"},
    }
    for table in ("data", "encoder", "run"):
        tables[table].update(settings.pop(table, {}))
    return recipe_of({**tables, "train": {"epochs": 2, "min_updates": 4, **settings}})


def run(recipe: Recipe, output: Path, **options: Any) -> Any:
    return train.train(recipe, output, quiet=True, **options)


def interrupt_at(monkeypatch: pytest.MonkeyPatch, update: int, number: int = signal.SIGINT) -> None:
    """The process gets a real signal while the given update runs."""
    original = Journal.update

    def update_and_signal(self: Journal, state: Any, *rest: Any) -> None:
        original(self, state, *rest)
        if state.update == update:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Journal, "update", update_and_signal)


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a training of a head that nothing interrupted."""
    done: dict[str, Path] = {}

    def folder(head: str) -> Path:
        if head not in done:
            done[head] = tmp_path_factory.mktemp(head)
            run(recipe(data, head), done[head])
        return done[head]

    return folder


@pytest.mark.parametrize("head", ["seqner", "spanner", "bundle"])
@pytest.mark.parametrize("update", [1, 3, 4, 6])
def test_interrupted_and_resumed_ends_with_the_same_weights_bit_for_bit(
    head: str, update: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Callable[[str], Path]
) -> None:
    with monkeypatch.context() as patch:
        interrupt_at(patch, update)
        with pytest.raises(train.Interrupted, match=f"update {update} of .*--resume"):
            run(recipe(data, head), tmp_path)
    torch.rand(1000)  # the generator stands elsewhere now
    run(recipe(data, head), tmp_path, resume=True)
    assert same_weights(tmp_path, whole(head))
    assert epochs_told(tmp_path) == epochs_told(whole(head))
    assert checkpoint.latest(tmp_path) is None


def test_killed_between_checkpoints_replays_what_was_lost(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Callable[[str], Path]
) -> None:
    original = Journal.update

    def die(self: Journal, state: Any, *rest: Any) -> None:
        original(self, state, *rest)
        if state.update == 6:  # of the second epoch; the last checkpoint is of the end of the first
            raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "update", die)
        with pytest.raises(MemoryError):
            run(recipe(data), tmp_path)
    run(recipe(data), tmp_path, resume=True)
    assert same_weights(tmp_path, whole("spanner"))
    assert epochs_told(tmp_path) == epochs_told(whole("spanner"))


def test_a_crash_while_writing_leaves_the_last_checkpoint_whole(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Callable[[str], Path]
) -> None:
    written: list[int] = []
    original = save_file

    def fail(*arguments: Any) -> None:
        written.append(1)
        if len(written) == 2:
            raise OSError("disk full")
        original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", fail)
        with pytest.raises(OSError, match="disk full"):
            run(recipe(data), tmp_path)
    state = json.loads((tmp_path / "checkpoint" / "state.json").read_text())
    assert state["progress"]["epoch"] == 1
    run(recipe(data), tmp_path, resume=True)
    assert same_weights(tmp_path, whole("spanner"))


def same_weights(first: Path, second: Path) -> bool:
    return (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()


def epochs_told(folder: Path) -> list[tuple[int, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(row["epoch_ended"], row["dev"]) for row in rows if "epoch_ended" in row]


def test_sigterm_stops_like_ctrl_c(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(monkeypatch, 2, signal.SIGTERM)
    with pytest.raises(train.Interrupted):
        run(recipe(data), tmp_path)
    assert checkpoint.latest(tmp_path)


def test_resume_refuses_another_recipe_and_names_what_differs(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2)
        with pytest.raises(train.Interrupted):
            run(recipe(data), tmp_path)
    with pytest.raises(SpanwrightError, match=r"another recipe \(differs in train\.clip\)"):
        run(recipe(data, clip=0.5), tmp_path, resume=True)
    with pytest.raises(SpanwrightError, match="unfinished training: --resume"):
        run(recipe(data), tmp_path)
    run(recipe(data, checkpoint_minutes=0.0), tmp_path, resume=True)


def test_a_finished_folder_is_not_trained_over_unless_told(data: Path, tmp_path: Path) -> None:
    run(recipe(data), tmp_path)
    with pytest.raises(SpanwrightError, match="--overwrite"):
        run(recipe(data), tmp_path)
    with pytest.raises(SpanwrightError, match="nothing to resume"):
        run(recipe(data), tmp_path, resume=True)
    run(recipe(data, epochs=1), tmp_path, overwrite=True)
    assert len(epochs_told(tmp_path)) == 1


def test_the_folder_holds_the_resolved_recipe_and_it_trains_the_same(data: Path, tmp_path: Path) -> None:
    run(recipe(data), tmp_path / "a")
    resolved = load_recipe(tmp_path / "a" / "recipe.toml")
    assert resolved.head_table["max_width"] > 0
    run(resolved, tmp_path / "b")
    assert same_weights(tmp_path / "a", tmp_path / "b")


def test_it_learns(data: Path, tmp_path: Path) -> None:
    """Nested names in sentences that training has not seen: a city inside a university."""
    draw = random.Random(0)
    for split, n in (("train", 150), ("dev", 40)):
        write(tmp_path / f"{split}.jsonl", [made_up(draw) for _ in range(n)])
    rates: dict[str, Any] = {"lr_encoder": 2e-3, "lr_head": 1e-2}
    settings = recipe(data, data={"train": str(tmp_path), "dev": ""}, epochs=8, min_updates=15, **rates)
    assert run(settings, tmp_path / "model").micro.f1 > 0.9


def made_up(draw: random.Random) -> Sentence:
    city, verb = draw.choice(["Oslo", "Rome", "Bergen", "Turin"]), draw.choice(["saw", "left", "likes", "owns"])
    words = (draw.choice(["Ann", "Bo", "Cy"]), verb, "the", "University", "of", city, draw.choice([".", "!"]))
    return Sentence(words, frozenset({Entity(0, 1, "person"), Entity(3, 6, "school"), Entity(5, 6, "place")}))


# --------------------------------------------------------------------------------------------------- bad starts


def told(recipe: Recipe, output: Path, capsys: pytest.CaptureFixture[str]) -> str:
    train.train(recipe, output)
    return " ".join(capsys.readouterr().err.split())


def corpus(path: Path, *labels: str, n: int = 12) -> str:
    words = ("Anna", "lives", "in", "Rome", ".")
    write(path, [Sentence(words, frozenset({Entity(0, 1, label)} if label else ())) for label in labels * n])
    return str(path)


def test_no_entity_at_all(data: Path, tmp_path: Path) -> None:
    empty = corpus(tmp_path / "none.jsonl", "")
    with pytest.raises(SpanwrightError, match="no entity in 12 training sentences"):
        run(recipe(data, data={"train": empty}), tmp_path / "model")


def test_dev_labels_that_train_does_not_have(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = {"train": corpus(tmp_path / "a.jsonl", "person"), "dev": corpus(tmp_path / "b.jsonl", "PER")}
    assert "dev has labels that train does not have, and so nobody can find: PER (12)" in told(
        recipe(data, data=places), tmp_path / "model", capsys
    )


def test_zero_f1_after_an_epoch_says_what_to_look_at(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cold = recipe(data, lr_encoder=1e-9, lr_head=1e-9, epochs=1)
    assert "no dev entity is right" in told(cold, tmp_path, capsys)


def test_a_loss_that_is_no_number_stops_the_run(data: Path, tmp_path: Path) -> None:
    with pytest.raises(SpanwrightError, match=r"loss spanner is not a number.*Lower train\.lr_encoder"):
        run(recipe(data, lr_head=1e30, lr_encoder=1e30, clip=0.0), tmp_path)


def test_a_log_file_gets_lines_of_progress(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "EVERY_SECONDS", 0.0)
    text = told(recipe(data), tmp_path, capsys)
    assert re.search(r"epoch 2/2: \d+ of 20 sentences, \d+ sentences/s, \d+:\d\d left, spanner \d", text)


def test_dev_is_set_aside_and_said(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(recipe(data, data={"dev": ""}), tmp_path, capsys)
    n_sentences = len(list(read(data / "genia.jsonl")))
    assert f"of {n_sentences} training sentences are set aside" in text


def test_gold_beyond_the_head_is_counted_and_still_counts_in_recall(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = told(recipe(data, "seqner"), tmp_path, capsys)
    n_gold = sum(len(sentence.entities) for sentence in read(data / "genia.jsonl"))
    assert f"of {n_gold} training entities" in text and "are not taught" in text
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["scores"]["micro"]["gold"] == n_gold


# ----------------------------------------------------------------------------------------------------- settings


def test_freezing(data: Path, tmp_path: Path) -> None:
    run(recipe(data, freeze_layers=1, epochs=1), tmp_path / "layers")
    run(recipe(data, freeze_epochs=1, epochs=1), tmp_path / "epochs")
    run(recipe(data, epochs=1), tmp_path / "free")
    start = dict(load(tmp_path / "free").encoder.state_dict())
    from spanwright.encoder import tiny_encoder

    fresh = tiny_encoder().state_dict()
    for name, folder, frozen in (
        ("transformer.encoder.layer.0.output.dense.weight", "layers", True),
        ("transformer.embeddings.word_embeddings.weight", "layers", True),
        ("transformer.encoder.layer.1.output.dense.weight", "layers", False),
        ("transformer.encoder.layer.1.output.dense.weight", "epochs", True),
    ):
        trained = load_file(tmp_path / folder / "model.safetensors")[f"encoder.{name}"]
        assert torch.equal(trained, fresh[name]) is frozen
        assert not torch.equal(start[name], fresh[name])


def test_norms_and_biases_do_not_decay_and_the_encoder_has_its_own_rate(data: Path, tmp_path: Path) -> None:
    run(recipe(data, "bundle", epochs=1), tmp_path)
    network = load(tmp_path).network
    settings = recipe(data).train
    groups = train.parameter_groups(network, settings)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    assert sum(len(group["params"]) for group in groups) == len(names)
    for group in groups:
        for parameter in group["params"]:
            name = names[id(parameter)]
            assert (group["weight_decay"] == 0.0) is (name.endswith("bias") or "LayerNorm" in name)
            assert group["peak"] == (settings.lr_encoder if name.startswith("encoder.") else settings.lr_head)


def test_the_rate_rises_and_falls_linearly() -> None:
    rates = [train.rate(update, 100, 0.1) for update in range(100)]
    assert rates[:10] == pytest.approx([k / 10 for k in range(1, 11)])
    assert rates[10] == pytest.approx(1.0)
    assert rates[99] == pytest.approx(1 / 90)


def test_patience_stops_and_the_best_epoch_is_kept(data: Path, tmp_path: Path) -> None:
    run(recipe(data, lr_encoder=1e-9, lr_head=1e-9, epochs=9, patience=2), tmp_path)
    assert len(epochs_told(tmp_path)) == 3
    assert json.loads((tmp_path / "report.json").read_text())["best_epoch"] == 1


def test_several_batches_to_an_update(data: Path, tmp_path: Path) -> None:
    run(recipe(data, epochs=1, accumulate=3, batch_tokens=200, min_updates=1), tmp_path / "a")
    rows = [json.loads(line) for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    run(recipe(data, epochs=1, batch_tokens=200, min_updates=1), tmp_path / "b")
    others = [json.loads(line) for line in (tmp_path / "b" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["update"] == -(-others[-1]["update"] // 3)


def test_bf16_trains_and_saves_full_precision(data: Path, tmp_path: Path) -> None:
    run(recipe(data, precision="bf16", epochs=1), tmp_path)
    assert {tensor.dtype for tensor in load_file(tmp_path / "model.safetensors").values()} == {torch.float32}


def test_training_further_with_more_labels(data: Path, tmp_path: Path) -> None:
    first = corpus(tmp_path / "a.jsonl", "person")
    second = corpus(tmp_path / "b.jsonl", "person", "place")
    run(recipe(data, data={"train": first, "dev": first}, epochs=4, lr_head=1e-2), tmp_path / "one")
    further = recipe(data, data={"train": second, "dev": second}, start_from=str(tmp_path / "one"))
    run(further, tmp_path / "two")
    assert list(load(tmp_path / "two").labels) == ["person", "place"]
    with pytest.raises(SpanwrightError, match="needs the same one"):
        run(replace(further, head_name="seqner", head_table={}), tmp_path / "three")


def test_tensorboard_gets_the_metrics(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run(recipe(data, trackers=("tensorboard",)), tmp_path)
    assert list(tmp_path.rglob("events.out.tfevents.*"))


def test_a_tokenizer_of_ones_own_cuts_raw_text_in_training_and_after(data: Path, tmp_path: Path) -> None:
    row = {"text": "Ann-Bo met Cy.", "entities": [[0, 3, "person"], [4, 6, "person"]]}
    (tmp_path / "raw.jsonl").write_text("\n".join([json.dumps(row)] * 12), encoding="utf-8")
    places = {"train": str(tmp_path / "raw.jsonl"), "dev": "", "words": "custom"}
    settings = recipe(data, data=places, epochs=1)
    with pytest.raises(SpanwrightError, match="tokenizer"):
        run(settings, tmp_path / "without")

    def cut(text: str) -> list[str]:
        return text.replace("-", " - ").replace(".", " .").split()

    run(settings, tmp_path / "with", tokenizer=cut)
    with pytest.raises(SpanwrightError, match="tokenizer"):
        load(tmp_path / "with")("Ann-Bo")
    assert load(tmp_path / "with", tokenizer=cut)("Ann-Bo").words == ("Ann", "-", "Bo")
