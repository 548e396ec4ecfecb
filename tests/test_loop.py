"""The training loop does what its settings say. (That it resumes exactly is in test_train.)"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from spanwright import checkpoint, train
from spanwright.config import Recipe, recipe_of
from spanwright.data import read, write
from spanwright.evaluate import evaluate
from spanwright.folder import load
from spanwright.heads.spanner import SpanNER
from spanwright.journal import Journal
from spanwright.types import Entity, Sentence, SpanwrightError, WorkFailed

Weights = dict[str, Tensor]


def recipe(here: Path, head: str = "spanner", **settings: Any) -> Recipe:
    """Two epochs on twenty sentences of genia, without dropout; `settings` are of [train], but for tables' names."""
    tables: dict[str, Any] = {
        "data": {"train": str(here / "genia.jsonl"), "dev": str(here / "genia.jsonl")},
        "encoder": {"name": "tiny", "dropout": 0.0},
        "head": {"name": head, "dropout": 0.0},
        "run": {"device": "cpu"},
    }
    for table in ("data", "run"):
        tables[table].update(settings.pop(table, {}))
    return recipe_of({**tables, "train": {"epochs": 2, "min_updates": 4, **settings}})


def at_work(recipe: Recipe, output: Path, look: Callable[[train.Run], None]) -> None:
    """Calls `look` in the place of the loop."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "fit", lambda run, _: look(run))
        patch.setattr(train, "final_report", lambda run: None)
        train.train(recipe, output, quiet=True)


def weights(run: train.Run) -> Weights:
    return {name: tensor.clone() for name, tensor in run.tagger.network.state_dict().items()}


def gradients(run: train.Run) -> Weights:
    named = run.tagger.network.named_parameters()
    return {name: parameter.grad.clone() for name, parameter in named if parameter.grad is not None}


def after_each_epoch(monkeypatch: pytest.MonkeyPatch, f1: list[float] | None = None) -> list[Weights]:
    """The weights that dev is scored with; `f1`, of 0, 0.5 and 1, is what dev is made to say."""
    seen: list[Weights] = []
    judge, score = train.judge, train.score

    def look(run: train.Run) -> None:
        seen.append(weights(run))
        judge(run)

    def said(tagger: Any, sentences: list[Sentence]) -> Any:
        if f1 is None or len(seen) > len(f1):
            return score(tagger, sentences)
        gold = [Sentence(("a", "b"), frozenset({Entity(0, 1, "X"), Entity(1, 2, "X")}))]
        found = {0.0: [], 0.5: [Entity(0, 1, "X"), Entity(0, 2, "X")], 1.0: gold[0].entities}[f1[len(seen) - 1]]
        return evaluate(gold, [found])

    monkeypatch.setattr(train, "judge", look)
    monkeypatch.setattr(train, "score", said)
    return seen


def test_the_best_epochs_weights_are_kept_not_the_lasts(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = after_each_epoch(monkeypatch, [0.5, 1.0, 0.5])
    train.train(recipe(data, epochs=3), tmp_path, quiet=True)
    saved = load(tmp_path).network.state_dict()
    assert all(torch.equal(saved[name], tensor) for name, tensor in seen[1].items())
    assert not all(torch.equal(saved[name], tensor) for name, tensor in seen[2].items())
    assert json.loads((tmp_path / "report.json").read_text())["best_epoch"] == 2


def test_an_update_of_two_batches_takes_the_mean_of_their_gradients(data: Path, tmp_path: Path) -> None:
    def look(run: train.Run) -> None:
        run.optimizer.step = lambda: None
        examples = run.prepared.examples
        batches = [examples[:2], examples[2:7]]
        alone = []
        for batch in batches:
            train.update(run, [batch])
            alone.append(gradients(run))
        train.update(run, batches)
        for name, gradient in gradients(run).items():
            torch.testing.assert_close(gradient, (alone[0][name] + alone[1][name]) / 2)

    at_work(recipe(data, clip=0.0), tmp_path, look)


def test_gradients_are_shortened_to_clip(data: Path, tmp_path: Path) -> None:
    def look(run: train.Run) -> None:
        run.optimizer.step = lambda: None
        train.update(run, [run.prepared.examples[:4]])
        length = torch.stack([gradient.norm() for gradient in gradients(run).values()]).norm()
        assert length.item() == pytest.approx(0.01, rel=1e-3)

    at_work(recipe(data, clip=0.01), tmp_path, look)


def test_rates_follow_the_schedule(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[tuple[float, float]] = []
    original = train.update

    def look(run: train.Run, batches: Any) -> Any:
        at = run.progress.update
        losses = original(run, batches)
        share = train.rate(at, run.n_updates, 0.25)
        used.extend((group["lr"], group["peak"] * share) for group in run.optimizer.param_groups)
        return losses

    monkeypatch.setattr(train, "update", look)
    train.train(recipe(data, warmup=0.25, lr_encoder=1e-4, lr_head=3e-3), tmp_path, quiet=True)
    assert used and all(rate == wanted for rate, wanted in used)
    assert {peak for _, peak in used} >= {1e-4, 3e-3}  # each reaches its own peak


def test_a_frozen_encoder_thaws(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = after_each_epoch(monkeypatch)
    start: list[Weights] = []
    original = train.fit

    def look(run: train.Run, stopping: Any) -> None:
        start.append(weights(run))
        original(run, stopping)

    monkeypatch.setattr(train, "fit", look)
    train.train(recipe(data, freeze_epochs=1), tmp_path, quiet=True)
    body = [name for name in start[0] if name.startswith("encoder.transformer.") and "bias" not in name]
    assert all(torch.equal(start[0][name], seen[0][name]) for name in body)
    assert any(not torch.equal(seen[0][name], seen[1][name]) for name in body)
    assert not torch.equal(start[0]["head.classify.weight"], seen[0]["head.classify.weight"])


def test_the_seed_decides(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = after_each_epoch(monkeypatch)
    for i, seed in enumerate((1, 1, 2)):
        train.train(recipe(data, epochs=1, run={"seed": seed}), tmp_path / str(i), quiet=True)
    name = "head.classify.weight"
    assert torch.equal(seen[0][name], seen[1][name]) and not torch.equal(seen[0][name], seen[2][name])


def test_the_seed_decides_the_first_weights_and_the_dropout(data: Path, tmp_path: Path) -> None:
    """Before any update, so that neither the order of the batches nor the drawn negatives can make the difference."""
    seen: list[tuple[Tensor, Tensor]] = []

    def look(run: train.Run) -> None:
        seen.append((weights(run)["head.classify.weight"], torch.rand(4)))  # what dropout would draw next

    for i, seed in enumerate((1, 1, 2)):
        torch.rand(i)  # the generator stands elsewhere each time
        at_work(recipe(data, run={"seed": seed}), tmp_path / str(i), look)
    for once, again, other in zip(*seen, strict=True):
        assert torch.equal(once, again) and not torch.equal(once, other)


def test_every_epoch_draws_anew(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[list[int]] = []
    original = SpanNER.loss

    def look(self: SpanNER, states: Any, targets: Any) -> Any:
        keys.append(targets["key"].tolist())
        return original(self, states, targets)

    monkeypatch.setattr(SpanNER, "loss", look)
    train.train(recipe(data), tmp_path, quiet=True)
    seen = list(chain.from_iterable(keys))
    assert len(seen) == len(set(seen)) == 2 * len(list(read(data / "genia.jsonl")))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_epoch_has_the_updates_it_should(data: Path, tmp_path: Path, accumulate: int) -> None:
    def look(run: train.Run) -> None:
        assert 2 * 4 <= run.n_updates <= 2 * 6

    at_work(recipe(data, accumulate=accumulate), tmp_path, look)


@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_gradient_that_is_no_number_stops_before_the_weights_are_spoilt(
    clip: float, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = SpanNER.loss

    def rooted(self: SpanNER, states: Any, targets: Any) -> Any:
        total, count = original(self, states, targets)["spanner"]
        bias = self.classify.bias
        return {"spanner": (total + (bias - bias.detach()).sum().abs().sqrt(), count)}  # 0, with a gradient of 0 / 0

    seen: list[train.Run] = []
    original_fit = train.fit
    monkeypatch.setattr(SpanNER, "loss", rooted)

    def look(run: train.Run, stopping: Any) -> None:
        seen.append(run)
        original_fit(run, stopping)

    monkeypatch.setattr(train, "fit", look)
    with pytest.raises(WorkFailed, match="the gradient is not a number at update 1"):
        train.train(recipe(data, clip=clip), tmp_path, quiet=True)
    assert all(tensor.isfinite().all() for tensor in weights(seen[0]).values())


def test_a_signal_while_the_loop_looks_does_not_stop_it_without_a_checkpoint(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def signalled() -> Iterator[Callable[[], bool]]:
        asked = count()
        yield lambda: next(asked) > 0  # it comes right after the first look

    monkeypatch.setattr(train, "stop_on_signal", signalled)
    with pytest.raises(train.Interrupted):
        train.train(recipe(data), tmp_path, quiet=True)
    assert checkpoint.latest(tmp_path)


# ------------------------------------------------------------------------------------------------ folders and data


def interrupted(settings: Recipe, output: Path) -> None:
    original = Journal.update

    def stop(self: Journal, state: Any, *rest: Any) -> None:
        original(self, state, *rest)
        if state.update == 6:  # of the second epoch
            raise MemoryError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "update", stop)
        with pytest.raises(MemoryError):
            train.train(settings, output, quiet=True)


def test_another_dev_is_not_resumed_on(data: Path, tmp_path: Path) -> None:
    sentences = list(read(data / "genia.jsonl"))
    write(tmp_path / "dev.jsonl", sentences)
    settings = recipe(data, data={"dev": str(tmp_path / "dev.jsonl")})
    interrupted(settings, tmp_path / "model")
    write(tmp_path / "dev.jsonl", sentences[:3])
    with pytest.raises(SpanwrightError, match="training or dev data are not those"):
        train.train(settings, tmp_path / "model", resume=True, quiet=True)


def test_a_shortened_journal_is_not_filled_with_zeros(data: Path, tmp_path: Path) -> None:
    interrupted(recipe(data), tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    train.train(recipe(data), tmp_path, resume=True, quiet=True)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch_ended"] for row in rows if "epoch_ended" in row] == [2]


def test_a_checkpoint_left_beside_a_report_is_no_unfinished_training(data: Path, tmp_path: Path) -> None:
    """Killed between the two last steps: the report is written, the checkpoint not yet removed."""
    interrupted(recipe(data), tmp_path)
    left = checkpoint.place(tmp_path).read_bytes()
    train.train(recipe(data), tmp_path, resume=True, quiet=True)
    checkpoint.place(tmp_path).write_bytes(left)
    with pytest.raises(SpanwrightError, match="holds a trained model"):
        train.train(recipe(data), tmp_path, quiet=True)


def test_a_model_is_not_trained_further_into_its_own_folder(data: Path, tmp_path: Path) -> None:
    train.train(recipe(data), tmp_path / "model", quiet=True)
    again = recipe(data, start_from=str(tmp_path / "model"))
    for place in (tmp_path / "model", tmp_path / "x" / ".." / "model"):
        with pytest.raises(SpanwrightError, match=r"start_from and --output are both"):
            train.train(again, place, overwrite=True, quiet=True)
    assert load(tmp_path / "model")


def told(recipe: Recipe, output: Path, capsys: pytest.CaptureFixture[str]) -> str:
    train.train(recipe, output)
    return " ".join(capsys.readouterr().err.split())


def test_a_label_that_only_the_sentences_set_aside_have_is_not_lost(tmp_path: Path) -> None:
    names = [f"label{i}" for i in range(30)]
    write(tmp_path / "train.jsonl", [Sentence(("Ada", "ran"), frozenset({Entity(0, 1, name)})) for name in names])
    settings = recipe(tmp_path, data={"train": str(tmp_path / "train.jsonl"), "dev": ""}, epochs=1, min_updates=1)
    train.train(settings, tmp_path / "model", quiet=True)
    assert sorted(load(tmp_path / "model").labels) == sorted(names)


def test_labels_that_the_model_knows_already_are_not_called_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, labels in (("both", ("A", "B")), ("one", ("A",))):
        write(tmp_path / f"{name}.jsonl", [Sentence(("Ada", "ran"), frozenset({Entity(0, 1, x)})) for x in labels * 8])
    both, one = (str(tmp_path / f"{name}.jsonl") for name in ("both", "one"))
    train.train(recipe(tmp_path, data={"train": both, "dev": both}, epochs=1), tmp_path / "first", quiet=True)
    further = recipe(tmp_path, data={"train": one, "dev": both}, epochs=1, start_from=str(tmp_path / "first"))
    assert "nobody can find" not in told(further, tmp_path / "second", capsys)


@pytest.mark.parametrize(
    ("words", "sentence", "hint"),
    [
        ("words", Sentence(("IL-2", "gene"), frozenset({Entity(0, 1, "DNA")})), "hyphenated"),
        ("hyphenated", Sentence(("IL-2", "gene"), frozenset({Entity(0, 1, "DNA")})), ""),
        # Joined by spaces, for nobody knows better, they seem to want "whitespace", which would be wrong in real text.
        ("hyphenated", Sentence(("do", "n't", "IL-2/IL-4"), frozenset({Entity(2, 3, "DNA")})), ""),
        ("words", Sentence(("我们", "喜欢"), frozenset({Entity(0, 1, "DNA")})), ""),
        ("words", Sentence(("a/b", "c+d."), frozenset({Entity(0, 1, "X")}), spaces=(True, False)), "whitespace"),
        ("words", Sentence(("a/b", "c+d", "."), frozenset({Entity(0, 1, "X")}), spaces=(True, False, False)), ""),
    ],
)
def test_a_rule_that_cuts_text_otherwise_than_the_corpus_is_told(
    words: str, sentence: Sentence, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "t.jsonl", [sentence] * 12)
    place = str(tmp_path / "t.jsonl")
    text = told(recipe(tmp_path, data={"train": place, "dev": place, "words": words}), tmp_path / "m", capsys)
    told_rule = re.search(r'other words than the corpus has, "(\w+)" 0 %', text)
    assert (told_rule[1] if told_rule else "") == hint


# ------------------------------------------------------------------------------------------------ what may go wrong


def test_a_folder_that_nothing_came_of_is_gone(data: Path, tmp_path: Path) -> None:
    with pytest.raises(SpanwrightError, match="no corpus"):
        train.train(recipe(data, data={"train": "nowhere.jsonl"}), tmp_path / "a" / "model", quiet=True)
    assert not (tmp_path / "a" / "model").exists()


def test_an_output_that_cannot_be_made_is_told_before_the_work(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SpanwrightError, match=r"--output .*file/model cannot be made: Not a directory"):
        train.train(recipe(data), tmp_path / "file" / "model", quiet=True)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no hang-up")
@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_hangs_up_stops_a_training_unless_nohup_says_otherwise(
    ignored: bool, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Journal.update

    def hang_up(self: Journal, state: Any, *rest: Any) -> None:
        original(self, state, *rest)
        if state.update == 2:
            os.kill(os.getpid(), signal.SIGHUP)

    monkeypatch.setattr(Journal, "update", hang_up)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        if ignored:
            train.train(recipe(data), tmp_path, quiet=True)
        else:
            with pytest.raises(train.Interrupted, match="update 2"):
                train.train(recipe(data), tmp_path, quiet=True)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (checkpoint.latest(tmp_path) is None) == ignored


@pytest.mark.slow
def test_a_reader_that_goes_away_does_not_end_a_training(data: Path, tmp_path: Path) -> None:
    """``spanwright train ... 2>&1 | head -1``: the log's reader has enough, the training has not."""
    file = data / "genia.jsonl"
    settings = [f'data={{ train = "{file}", dev = "{file}" }}', 'encoder.name = "tiny"', 'head.name = "spanner"']
    (tmp_path / "recipe.toml").write_text("\n".join([*settings, "train.epochs = 2"]), encoding="utf-8")
    command = [sys.executable, "-m", "spanwright", "train", str(tmp_path / "recipe.toml"), "-o", str(tmp_path / "m")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as running:
        assert running.stderr is not None
        running.stderr.readline()
        running.stderr.close()
        running.wait(timeout=120)
    assert (tmp_path / "m" / "report.json").exists() and running.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal of its own")
def test_a_terminal_that_is_closed_does_not_end_a_training_under_nohup(data: Path, tmp_path: Path) -> None:
    file = data / "genia.jsonl"
    settings = [f'data={{ train = "{file}", dev = "{file}" }}', 'encoder.name = "tiny"', 'head.name = "spanner"']
    (tmp_path / "recipe.toml").write_text("\n".join([*settings, "train.epochs = 3"]), encoding="utf-8")
    command = [sys.executable, "-m", "spanwright", "train", str(tmp_path / "recipe.toml"), "-o", str(tmp_path / "m")]
    ours, its = os.openpty()
    ignoring = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited, as nohup does it
    try:
        running = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, start_new_session=True)
    finally:
        signal.signal(signal.SIGHUP, ignoring)
    os.close(its)
    os.read(ours, 1)
    os.close(ours)
    assert running.wait(timeout=120) == 0
    assert (tmp_path / "m" / "report.json").exists()
