"""Training: one visible loop on Accelerate, which brings autocast, devices and gradient scaling.

Everything random comes from (seed, epoch, sentence), but for dropout, whose generator is saved in every checkpoint.
So a run that was interrupted anywhere ends with the same weights as one that was not.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn

from spanwright import checkpoint
from spanwright.batch import Batch, Example, epoch_batches, fitting_budget
from spanwright.checkpoint import Progress
from spanwright.config import Recipe, TrainConfig, save_recipe
from spanwright.evaluate import Report, evaluate
from spanwright.folder import CARD, load, pick_device
from spanwright.journal import METRICS, Journal
from spanwright.prepare import Prepared, prepare
from spanwright.tagger import Losses, Tagger, TextTokenizer
from spanwright.types import Sentence, SpanwrightError, WorkFailed

RECIPE, REPORT = "recipe.toml", "report.json"


class Interrupted(WorkFailed):
    """Training was asked to stop; a checkpoint was written first."""


@dataclass
class Run:
    """What the loop works on."""

    recipe: Recipe
    output: Path
    prepared: Prepared
    accelerator: Accelerator
    network: nn.Module  # the tagger's, as Accelerate wrapped it
    optimizer: Any
    journal: Journal
    n_pieces: list[int]
    budget: int
    n_updates: int  # in all epochs
    data: str  # digest of the training data
    progress: Progress = field(default_factory=Progress)

    @property
    def tagger(self) -> Tagger:
        return self.prepared.tagger


def train(
    recipe: Recipe, output: str | Path, *, resume: bool = False, overwrite: bool = False, quiet: bool = False,
    tokenizer: TextTokenizer | None = None,
) -> Report:  # fmt: skip
    """Trains by the recipe; `output` becomes the model's folder. Returns the report on test, or on dev without one.

    `tokenizer` cuts raw text where the recipe says ``words = "custom"``; it is not saved, so `load` wants it again.
    """
    output = Path(output)
    with claimed(output, recipe, resume, overwrite):
        return trained(recipe, output, resume, quiet, tokenizer)


def trained(recipe: Recipe, output: Path, resume: bool, quiet: bool, tokenizer: TextTokenizer | None) -> Report:
    torch.set_num_threads(recipe.run.threads or n_cores())
    accelerator = accelerate(recipe, output)
    torch.manual_seed(recipe.run.seed)
    with Journal(output, quiet=quiet, accelerator=accelerator) as journal:
        prepared = prepare(recipe, journal.say, tokenizer)
        run = start(recipe, output, prepared, accelerator, journal)
        if resume and checkpoint.latest(output):
            resume_from(run)
        else:
            if resume:
                journal.warn(f"{output} has no checkpoint to resume from: training starts at its beginning")
            clear(output)
        journal.begin(run.progress.journal_bytes)
        save_recipe(prepared.recipe, output / RECIPE)
        if run.progress.epoch < recipe.train.epochs and not run.progress.stopped:
            with stop_on_signal() as stopping:
                fit(run, stopping)
        report = final_report(run)
    checkpoint.place(output).unlink(missing_ok=True)
    return report


def claim(output: Path, recipe: Recipe, resume: bool, overwrite: bool) -> None:
    """Refuses to write over a run, or to go on with one of another recipe."""
    if output.exists() and not output.is_dir():
        raise SpanwrightError(f"{output} is a file; --output expects a folder")
    if resume and overwrite:
        raise SpanwrightError("--resume goes on with a training and --overwrite throws it away: give one of them")
    finished = (output / REPORT).exists()
    unfinished = checkpoint.latest(output) is not None and not finished
    begun = recipe.train.start_from
    if begun and Path(begun).expanduser().resolve() == output.expanduser().resolve():
        raise SpanwrightError(
            f"train.start_from and --output are both {output}: the model would be written over while it is still "
            "needed. Give --output another folder"
        )
    ours = unfinished or any((output / name).exists() for name in (CARD, REPORT, METRICS))
    if not ours and output.is_dir() and any(output.iterdir()):
        raise SpanwrightError(
            f"{output} is not empty and holds no model: its files are left alone. --output expects a folder that does "
            "not exist yet, is empty, or holds a training"
        )
    if resume and finished:
        raise SpanwrightError(
            f"{output}: this training has ended, there is nothing to resume. To train anew, pass --overwrite; to "
            "train further, set train.start_from"
        )
    if resume and unfinished:
        checkpoint.same_recipe(output, recipe)
    elif (unfinished or finished or (output / CARD).exists()) and not (overwrite or resume):
        state = "an unfinished training: --resume goes on with it," if unfinished else "a trained model:"
        raise SpanwrightError(f"{output} holds {state} --overwrite starts anew")


@contextmanager
def claimed(output: Path, recipe: Recipe, resume: bool, overwrite: bool) -> Iterator[None]:
    """The folder is there, and may be written to; if nothing comes of it, it is gone again."""
    claim(output, recipe, resume, overwrite)
    new = not output.exists()
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpanwrightError(f"--output {output} cannot be made: {error.strerror} ({error.filename})") from None
    try:
        yield
    finally:
        if new and output.is_dir() and not any(output.iterdir()):
            output.rmdir()


def clear(output: Path) -> None:
    """What an earlier training left goes when a new one is ready to begin, and no sooner."""
    for path in (output / CARD, output / REPORT, checkpoint.place(output)):
        path.unlink(missing_ok=True)


def accelerate(recipe: Recipe, output: Path) -> Accelerator:
    train, device = recipe.train, pick_device(recipe.run.device)
    if train.precision == "fp16" and device.type == "cpu":
        raise SpanwrightError(
            'train.precision = "fp16" needs a GPU; on the CPU take "bf16", which is as fast, or "fp32"'
        )
    if device.index is not None:
        torch.cuda.set_device(device)  # Accelerate takes the current one
    AcceleratorState._reset_state(True)  # else a second training in one process keeps the first one's precision
    try:
        accelerator = Accelerator(
            mixed_precision={"fp32": "no"}.get(train.precision, train.precision),
            cpu=device.type == "cpu",
            log_with=list(train.trackers) or None,
            project_dir=str(output),
        )
    except (ValueError, ImportError, RuntimeError) as error:
        raise SpanwrightError(
            f"train.precision={train.precision}, train.trackers={list(train.trackers)}, "
            f"run.device={recipe.run.device}: {error}"
        ) from error
    if accelerator.num_processes > 1:
        raise SpanwrightError(
            f"training was started in {accelerator.num_processes} processes, and this version trains in one. Start it "
            "with `spanwright train`, without torchrun or accelerate launch"
        )
    return accelerator


def start(recipe: Recipe, output: Path, prepared: Prepared, accelerator: Accelerator, journal: Journal) -> Run:
    """Parameters, optimiser and the number of updates."""
    n_pieces = [example.n_pieces for example in prepared.examples]
    budget = fitting_budget(n_pieces, recipe.train.batch_tokens, recipe.train.min_updates * recipe.train.accumulate)
    n_updates = sum(
        math.ceil(len(epoch_batches(n_pieces, budget, recipe.run.seed, epoch)) / recipe.train.accumulate)
        for epoch in range(recipe.train.epochs)
    )
    if budget < recipe.train.batch_tokens:
        journal.say(
            f"the corpus is small: batches of {budget} pieces instead of {recipe.train.batch_tokens}, for "
            f"{recipe.train.min_updates} updates an epoch"
        )
    optimizer = torch.optim.AdamW(
        parameter_groups(prepared.tagger.network, recipe.train), fused=True
    )  # 10 times faster here
    network, optimizer = accelerator.prepare(prepared.tagger.network, optimizer)
    data = checkpoint.digest(prepared.examples, prepared.dev, prepared.tagger.labels)
    return Run(recipe, output, prepared, accelerator, network, optimizer, journal, n_pieces, budget, n_updates, data)


def parameter_groups(network: nn.Module, train: TrainConfig) -> list[dict[str, Any]]:
    """The transformer at its rate, all else at the head's; norms and biases, the vectors among them, do not decay."""
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        groups.setdefault((name.startswith("encoder.transformer."), parameter.ndim > 1), []).append(parameter)
    return [
        {
            "params": members,
            "peak": train.lr_encoder if transformer else train.lr_head,
            "lr": 0.0,
            "weight_decay": train.weight_decay if decays else 0.0,
        }
        for (transformer, decays), members in groups.items()
    ]


def rate(update: int, n_updates: int, warmup: float) -> float:
    """The share of the peak rate: linear to 1 during warm-up, linear to 0 at the end."""
    n_warmup = max(1, round(warmup * n_updates))
    if update < n_warmup:
        return (update + 1) / n_warmup
    return max(0.0, (n_updates - update) / max(1, n_updates - n_warmup))


# ------------------------------------------------------------------------------------------------------- the loop


def fit(run: Run, stopping: Callable[[], bool]) -> None:
    """All epochs that are left."""
    train, progress = run.recipe.train, run.progress
    while progress.epoch < train.epochs and not progress.stopped:
        set_frozen(run)
        one_epoch(run, stopping)
        progress.epoch, progress.batch = progress.epoch + 1, 0
        judge(run)
        checkpoint.save(run)


def set_frozen(run: Run) -> None:
    """Whole encoder in the first epochs if asked; its lowest layers always if asked."""
    encoder, train = run.tagger.encoder, run.recipe.train
    encoder.freeze(train.freeze_layers)
    if run.progress.epoch < train.freeze_epochs:
        encoder.transformer.requires_grad_(False)


def one_epoch(run: Run, stopping: Callable[[], bool]) -> None:
    train, progress, seed = run.recipe.train, run.progress, run.recipe.run.seed
    batches = epoch_batches(run.n_pieces, run.budget, seed, progress.epoch)
    run.journal.start_epoch(progress.epoch, train.epochs, len(run.n_pieces), sum(map(len, batches[: progress.batch])))
    saved = time.monotonic()
    run.network.train()
    while progress.batch < len(batches):
        members = batches[progress.batch : progress.batch + train.accumulate]
        watch = time.process_time()
        losses = update(run, [[run.prepared.examples[i] for i in batch] for batch in members])
        progress.core_seconds += time.process_time() - watch
        progress.batch += len(members)
        progress.update += 1
        run.journal.update(progress, losses, sum(map(len, members)), run.optimizer.param_groups)
        due = train.checkpoint_minutes and time.monotonic() - saved > 60 * train.checkpoint_minutes
        stop = stopping()  # asked once: a signal that comes while the checkpoint is written waits for the next update
        if due or stop:
            checkpoint.save(run)
            saved = time.monotonic()
        if stop:
            raise Interrupted(
                f"stopped at update {progress.update} of {run.n_updates}, epoch {progress.epoch + 1}; a checkpoint is "
                f"in {run.output}. "
                "The same command with --resume goes on from here"
            )


def update(run: Run, batches: list[list[Example]]) -> dict[str, float]:
    """One step of the optimiser over one batch, or several of equal weight."""
    share = rate(run.progress.update, run.n_updates, run.recipe.train.warmup)
    for group in run.optimizer.param_groups:
        group["lr"] = group["peak"] * share
    run.optimizer.zero_grad()
    seen: dict[str, float] = {}
    for examples in batches:
        batch = run.tagger.batch(examples, run.recipe.run.seed, run.progress.epoch)
        means = mean_losses(run.network(batch.to(run.accelerator.device)))
        total = torch.stack(list(means.values())).sum() / len(batches)
        check_finite(run, batch, {f"the loss {name}": value for name, value in means.items()})
        run.accelerator.backward(total)
        for name, value in means.items():
            seen[name] = seen.get(name, 0.0) + float(value.detach()) / len(batches)
    # Without `clip` the norm is taken all the same: a gradient that is no number must not reach the weights.
    norm = run.accelerator.clip_grad_norm_(run.network.parameters(), run.recipe.train.clip or math.inf)
    if run.accelerator.scaler is None:  # fp16's scaler expects infinities, and skips the update
        check_finite(run, batch, {"the gradient": torch.as_tensor(norm)})
    run.optimizer.step()
    return seen


def mean_losses(losses: Losses) -> dict[str, Tensor]:
    return {name: total / count.clamp(min=1) for name, (total, count) in losses.items()}


def check_finite(run: Run, batch: Batch, values: dict[str, Tensor]) -> None:
    bad = [name for name, value in values.items() if not torch.isfinite(value)]
    if bad:
        raise WorkFailed(
            f"{', '.join(bad)} is not a number at update {run.progress.update + 1} (epoch "
            f"{run.progress.epoch + 1}, "
            f"{len(batch.lengths)} sentences of up to {max(batch.lengths)} words). Lower train.lr_encoder "
            f"({run.recipe.train.lr_encoder:g}) "
            f'and train.lr_head ({run.recipe.train.lr_head:g}), set train.clip=1, or train.precision="fp32"'
        )


def judge(run: Run) -> None:
    """Dev F1 after an epoch: keeps the best model, stops when nothing improves, warns when nothing is found."""
    progress, train = run.progress, run.recipe.train
    watch = time.process_time()
    report = score(run.tagger, run.prepared.dev)
    progress.core_seconds += time.process_time() - watch
    progress.history.append(report.micro.f1)
    better = report.micro.f1 > progress.best or len(progress.history) == 1
    if better:
        progress.best, progress.best_epoch = report.micro.f1, progress.epoch
        run.tagger.save(run.output)
    progress.stopped = bool(train.patience) and progress.epoch - progress.best_epoch >= train.patience
    run.journal.end_epoch(progress, report, better)
    if report.micro.f1 == 0:
        run.journal.warn(
            f"after epoch {progress.epoch} no dev entity is right ({report.micro.predicted} predicted, "
            f"{report.micro.gold} gold). "
            "Look at: more epochs; a higher train.lr_encoder; whether dev has the labels and tokens of train (its "
            "first sentences)" + ("; head.inference.threshold" if run.tagger.head.inference.threshold else "")
        )


def score(tagger: Tagger, sentences: list[Sentence]) -> Report:
    return evaluate(sentences, tagger.predict_stream(sentences))


def final_report(run: Run) -> Report:
    """The best model, read back from its folder, on test; on dev where there is no test."""
    best = load(run.output, device=str(run.accelerator.device), tokenizer=run.tagger.tokenizer)
    name, sentences = ("test", run.prepared.test) if run.prepared.test else ("dev", run.prepared.dev)
    report = score(best, sentences)
    run.journal.finish(run.progress, name, report, run.prepared.n_train, run.output / REPORT)
    return report


def resume_from(run: Run) -> None:
    checkpoint.restore(run)
    progress = run.progress
    run.journal.say(f"resumed at update {progress.update} of {run.n_updates}, epoch {progress.epoch + 1}")


def n_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C, SIGTERM or hang-up of the terminal lets the update end and a checkpoint be written; a Ctrl-C
    after that stops at once. A hang-up that is ignored already (nohup) stays so."""
    asked: list[int] = []

    def ask(number: int, _frame: object) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)

    try:
        numbers = [signal.SIGINT, signal.SIGTERM]
        hang_up = getattr(signal, "SIGHUP", None)  # Windows has none
        if hang_up is not None and signal.getsignal(hang_up) != signal.SIG_IGN:
            numbers.append(hang_up)
        before = {number: signal.signal(number, ask) for number in numbers}
    except ValueError:  # not the main thread, which alone may handle signals
        before = {}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
