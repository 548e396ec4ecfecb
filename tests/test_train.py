"""Training: exact resuming, what is told when it starts badly, what each setting does."""

from __future__ import annotations

import copy
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
from safetensors import safe_open
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


def last_weights(recipe: Recipe, output: Path, **options: Any) -> dict[str, torch.Tensor]:
    """Trains; the weights after the last update. (What is saved are those of the best epoch.)"""
    seen: dict[str, torch.Tensor] = {}
    original = train.final_report

    def look(run: train.Run) -> Any:
        seen.update({name: tensor.clone() for name, tensor in run.tagger.network.state_dict().items()})
        return original(run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "final_report", look)
        run(recipe, output, **options)
    return seen


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# What is trained in the tests of resuming: the head, then settings.
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "seqner": ("seqner", {}),
    "spanner": ("spanner", {}),
    "bundle": ("bundle", {}),
    "accumulate": ("spanner", {"accumulate": 2, "freeze_epochs": 1, "min_updates": 4}),
    "lstm": ("seqner", {"encoder": {"lstm": 16, "context": 1}, "precision": "bf16"}),
    "patience": ("seqner", {"head_settings": {"tagging": "crf"}, "patience": 1, "epochs": 4}),
}
Whole = tuple[Path, dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Whole]:
    """The folder and the last weights of a training that nothing interrupted."""
    done: dict[str, Whole] = {}

    def ended(name: str) -> Whole:
        if name not in done:
            head, settings = RUNS[name]
            folder = tmp_path_factory.mktemp(name)
            done[name] = folder, last_weights(recipe(data, head, **copy.deepcopy(settings)), folder)
        return done[name]

    return ended


@pytest.mark.parametrize(
    ("name", "update"),
    [(name, update) for name in ("seqner", "spanner", "bundle") for update in (1, 3, 4, 6)]
    + [(name, update) for name in ("accumulate", "lstm", "patience") for update in (3, 6)],
)
def test_interrupted_and_resumed_ends_with_the_same_weights_bit_for_bit(
    name: str, update: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Callable[[str], Whole]
) -> None:
    head, settings = RUNS[name]
    folder, weights = whole(name)
    with monkeypatch.context() as patch:
        interrupt_at(patch, update)
        with pytest.raises(train.Interrupted, match=f"update {update} of .*--resume"):
            run(recipe(data, head, **copy.deepcopy(settings)), tmp_path)
    torch.rand(1000)  # the generator stands elsewhere now
    assert equal(last_weights(recipe(data, head, **copy.deepcopy(settings)), tmp_path, resume=True), weights)
    assert same_weights(tmp_path, folder)
    assert epochs_told(tmp_path) == epochs_told(folder)
    assert checkpoint.latest(tmp_path) is None


@pytest.mark.parametrize("update", [20, 70, 100])
def test_the_best_epoch_survives_an_interruption(update: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run whose dev F1 rises and falls: before, in and after its best epoch."""
    settings = made_up_recipe(tmp_path, epochs=6, min_updates=18)
    weights = last_weights(settings, tmp_path / "whole")
    with monkeypatch.context() as patch:
        interrupt_at(patch, update)
        with pytest.raises(train.Interrupted):
            run(settings, tmp_path / "cut")
    assert equal(last_weights(settings, tmp_path / "cut", resume=True), weights)
    reports = [json.loads((tmp_path / name / "report.json").read_text()) for name in ("whole", "cut")]
    assert reports[0]["best_epoch"] > 1 and len(set(reports[0]["dev_f1"])) > 2
    machine = dict.fromkeys(("core_minutes", "memory_mb"))
    assert {**reports[0], **machine} == {**reports[1], **machine}
    assert 50 < reports[0]["memory_mb"] < 50_000 and reports[0]["device"] == "cpu"
    assert same_weights(tmp_path / "whole", tmp_path / "cut")


def test_killed_between_checkpoints_replays_what_was_lost(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Callable[[str], Whole]
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
    assert equal(last_weights(recipe(data), tmp_path, resume=True), whole("spanner")[1])
    assert epochs_told(tmp_path) == epochs_told(whole("spanner")[0])


def test_a_crash_while_writing_leaves_the_last_checkpoint_whole(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Callable[[str], Whole]
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
    with safe_open(checkpoint.place(tmp_path), "pt") as file:
        assert json.loads(file.metadata()["state"])["progress"]["epoch"] == 1
    assert equal(last_weights(recipe(data), tmp_path, resume=True), whole("spanner")[1])


@pytest.mark.parametrize("resume", [True, False])
def test_a_death_before_the_first_checkpoint_leaves_nothing_behind(
    resume: bool, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Callable[[str], Whole]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_whole", raising(MemoryError))
        with pytest.raises(MemoryError):
            run(recipe(data), tmp_path)
    assert epochs_told(tmp_path)  # the epoch had ended, its checkpoint was not yet written
    if not resume:
        with pytest.raises(SpanwrightError, match="holds a trained model: --overwrite"):
            run(recipe(data), tmp_path)
    assert equal(last_weights(recipe(data), tmp_path, resume=resume, overwrite=not resume), whole("spanner")[1])
    assert epochs_told(tmp_path) == epochs_told(whole("spanner")[0])


def raising(error: type[Exception]) -> Callable[..., None]:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


def test_other_data_are_not_resumed_on(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = list(read(data / "genia.jsonl"))
    write(tmp_path / "train.jsonl", sentences)
    settings = recipe(data, data={"train": str(tmp_path / "train.jsonl")})
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2)
        with pytest.raises(train.Interrupted):
            run(settings, tmp_path / "model")
    write(tmp_path / "train.jsonl", sentences[::-1])
    with pytest.raises(SpanwrightError, match="not those that the interrupted training began with"):
        run(settings, tmp_path / "model", resume=True)
    write(tmp_path / "train.jsonl", sentences)
    run(settings, tmp_path / "model", resume=True)


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
    with pytest.raises(SpanwrightError, match="give one of them"):
        run(recipe(data), tmp_path, resume=True, overwrite=True)
    run(recipe(data, epochs=1), tmp_path, overwrite=True)
    assert len(epochs_told(tmp_path)) == 1


def test_files_of_others_are_left_alone(data: Path, tmp_path: Path) -> None:
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "mine.py").write_text("mine")
    (tmp_path / "recipe.toml").write_text("# mine")
    for options in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(SpanwrightError, match="is not empty and holds no model: its files are left alone"):
            run(recipe(data), tmp_path, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoder", "recipe.toml"]


def test_a_saved_model_is_not_trained_over_unless_told(data: Path, tmp_path: Path) -> None:
    run(recipe(data), tmp_path / "one")
    load(tmp_path / "one").save(tmp_path / "copy")
    with pytest.raises(SpanwrightError, match="holds a trained model: --overwrite"):
        run(recipe(data), tmp_path / "copy")


def test_a_model_is_there_until_the_training_that_replaces_it_begins(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(recipe(data, "seqner"), tmp_path)
    with pytest.raises(SpanwrightError, match="no corpus"):
        run(recipe(data, data={"train": "nowhere.jsonl"}), tmp_path, overwrite=True)
    assert load(tmp_path) and (tmp_path / "report.json").exists()
    monkeypatch.setattr(train, "one_epoch", raising(MemoryError))
    with pytest.raises(MemoryError):
        run(recipe(data), tmp_path, overwrite=True)
    with pytest.raises(SpanwrightError, match="not a Spanwright model"):  # not the old one beside the new recipe
        load(tmp_path)


def test_the_folder_holds_the_resolved_recipe_and_it_trains_the_same(data: Path, tmp_path: Path) -> None:
    run(recipe(data), tmp_path / "a")
    resolved = load_recipe(tmp_path / "a" / "recipe.toml")
    assert resolved.head_table["max_width"] > 0
    run(resolved, tmp_path / "b")
    assert same_weights(tmp_path / "a", tmp_path / "b")


def test_it_learns(data: Path, tmp_path: Path) -> None:
    """Nested names in sentences that training has not seen: a city inside a university."""
    assert run(made_up_recipe(tmp_path, epochs=8, min_updates=15), tmp_path / "model").micro.f1 > 0.9


def made_up_recipe(folder: Path, **settings: Any) -> Recipe:
    draw = random.Random(0)
    for split, n in (("train", 150), ("dev", 40)):
        write(folder / f"{split}.jsonl", [made_up(draw) for _ in range(n)])
    rates: dict[str, Any] = {"lr_encoder": 2e-3, "lr_head": 1e-2}
    return recipe(folder, data={"train": str(folder), "dev": ""}, **rates, **settings)


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


def test_gold_that_is_taught_but_kept_from_the_answer_is_counted(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flat = recipe(data, "spanner", head_settings={"inference": {"overlap": "flat"}})
    text = told(flat, tmp_path, capsys)
    gold = [sentence.entities for sentence in read(data / "genia.jsonl")]
    assert 'cannot be answered beside others with inference.overlap = "flat"' in text
    n_beyond = int(re.search(r"(\d+) more are taught but", text)[1])  # type: ignore[index]
    inner = sum(any(other != one and other.contains(one) for other in given) for given in gold for one in given)
    assert 0 < n_beyond <= inner


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
    crf = {"heads": {"seqner": {"tagging": "crf"}, "spanner": {}}}
    run(recipe(data, "bundle", epochs=1, encoder={"lstm": 8}, head_settings=crf), tmp_path)
    network = load(tmp_path).network
    assert {"encoder.lstm.bias_ih_l0_reverse", "head.heads.seqner.start"} <= dict(network.named_parameters()).keys()
    settings = recipe(data).train
    groups = train.parameter_groups(network, settings)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    assert sum(len(group["params"]) for group in groups) == len(names)
    for group in groups:
        for parameter in group["params"]:
            name = names[id(parameter)]
            plain = "bias" in name or "LayerNorm" in name or name.endswith(".start")
            assert (group["weight_decay"] == 0.0) is plain, name
            own = name.startswith("encoder.transformer.")
            assert group["peak"] == (settings.lr_encoder if own else settings.lr_head)


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


def test_training_further_keeps_what_the_model_settled(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its encoder, how text becomes words, and the settings of the head that the recipe does not name."""
    row = {"text": "IL-2 is here.", "entities": [[0, 4, "protein"]]}
    (tmp_path / "raw.jsonl").write_text("\n".join([json.dumps(row)] * 12), encoding="utf-8")
    raw = {"train": str(tmp_path / "raw.jsonl"), "dev": str(tmp_path / "raw.jsonl")}
    heads = {"spanner": {"max_width": 2, "inference": {"overlap": "flat"}}, "seqner": {"repair": "strict"}}
    first = recipe(
        data, "bundle", data={**raw, "words": "hyphenated", "max_words": 64}, encoder={"context": 1, "pooling": "max"},
        head_settings={"heads": heads}, epochs=1,
    )  # fmt: skip
    run(first, tmp_path / "one")
    changed = {"heads": {"spanner": {"inference": {"threshold": 0.4}}}}
    further = recipe(data, "bundle", data=raw, head_settings=changed, start_from=str(tmp_path / "one"), epochs=1)
    text = told(further, tmp_path / "two", capsys)
    for kept in ('encoder.pooling = "max" (asked: "mean")', "context = 1", 'words = "hyphenated"', "max_words = 64"):
        assert kept in text
    resolved, tagger = load_recipe(tmp_path / "two" / "recipe.toml"), load(tmp_path / "two")
    assert resolved.encoder == tagger.encoder.config == first.encoder
    assert (resolved.data.words, tagger.rule.words, tagger.max_words) == ("hyphenated", "hyphenated", 64)
    assert tagger("IL-2 is here.").words[0] == "IL-2" and tagger.widest == 1
    assert tagger.head.inference.overlap == "flat" and tagger.head.inference.threshold == 0.4
    assert tagger.head.config.heads["seqner"]["repair"] == "strict"


def test_a_bundle_tells_what_each_of_its_heads_loses(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = told(recipe(data, "bundle", epochs=1), tmp_path, capsys)
    assert "are beyond the head seqner and are not taught" in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_or_a_precision_that_is_not_there_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(SpanwrightError, match="device 'cuda:1' cannot be used here"):
        run(recipe(data, run={"device": "cuda:1"}), tmp_path)
    with pytest.raises(SpanwrightError, match='"fp16" needs a GPU'):
        run(recipe(data, precision="fp16"), tmp_path)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_dev_without_gold_is_told(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = {"train": corpus(tmp_path / "a.jsonl", "person"), "dev": corpus(tmp_path / "b.jsonl", "")}
    assert "dev has no gold entity" in told(recipe(data, data=places, epochs=1), tmp_path / "model", capsys)


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
