"""What a training tells: a progress bar and lines for people, metrics.jsonl and trackers for programs."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from spanwright.evaluate import Report

if TYPE_CHECKING:
    import torch
    from accelerate import Accelerator

    from spanwright.checkpoint import Progress as State

METRICS = "metrics.jsonl"
EVERY_UPDATES = 20  # updates to a line of metrics.jsonl
EVERY_SECONDS = 60.0  # between two lines of progress where no terminal can show a bar


class Lasting:
    """A stream that falls silent when nobody reads it any more, a closed pipe or terminal; the training goes on."""

    def __init__(self, stream: IO[str]):
        self.stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            return self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Journal:
    def __init__(self, output: Path, *, quiet: bool, accelerator: Accelerator):
        self.console = Console(file=cast(IO[str], Lasting(sys.stderr)), quiet=quiet)
        self.path = output / METRICS
        self.file: Any = None
        self.accelerator = accelerator
        self.tracked = False
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(), TextColumn("{task.fields[loss]}"), console=self.console, transient=True,
            disable=not self.console.is_terminal,
        )  # fmt: skip
        self.task: Any = None
        self.sums: dict[str, float] = {}
        self.n_updates = self.n_sentences = 0
        self.clock = self.told = time.monotonic()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
        if self.file:
            self.file.close()
        if self.tracked:
            self.accelerator.end_training()

    def begin(self, journal_bytes: int) -> None:
        """Opens metrics.jsonl after so many bytes; what an interrupted run wrote beyond them comes again."""
        self.file = self.path.open("a", encoding="utf-8", buffering=1)  # a line at a time
        os.truncate(self.path, min(journal_bytes, self.path.stat().st_size))  # somebody may have shortened it
        self.tracked = bool(self.accelerator.log_with)
        if self.tracked:
            self.accelerator.init_trackers("spanwright")

    def say(self, message: str) -> None:
        self.console.print(message, markup=False, highlight=False, soft_wrap=True)

    def warn(self, message: str) -> None:
        self.console.print(f"warning: {message}", style="yellow", markup=False, highlight=False, soft_wrap=True)

    def start_epoch(self, epoch: int, epochs: int, n_sentences: int, done: int) -> None:
        self.bar.stop()
        for task in self.bar.task_ids:
            self.bar.remove_task(task)
        self.task = self.bar.add_task(
            f"epoch {epoch + 1}/{epochs}", total=n_sentences, completed=done, rate="", loss=""
        )
        self.bar.start()
        self.clock, self.n_sentences = time.monotonic(), 0
        self.told = self.clock

    def update(
        self, state: State, losses: Mapping[str, float], n_sentences: int, groups: Sequence[Mapping[str, Any]]
    ) -> None:
        self.n_updates += 1
        self.n_sentences += n_sentences
        for name, value in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        rate = self.n_sentences / max(1e-9, time.monotonic() - self.clock)
        shown = " ".join(f"{name} {value:.4f}" for name, value in losses.items())
        self.bar.update(self.task, advance=n_sentences, rate=f"{rate:.0f} sentences/s", loss=shown)
        if not self.console.is_terminal and time.monotonic() - self.told > EVERY_SECONDS:
            self.told = time.monotonic()
            self.say(self.line_of_progress(rate, shown))
        if state.update % EVERY_UPDATES == 0:
            means = {name: value / self.n_updates for name, value in self.sums.items()}
            self.write(
                {
                    "update": state.update,
                    "epoch": state.epoch,
                    "loss": means,
                    "rate": max(group["lr"] for group in groups),
                }
            )
            self._track({f"loss/{name}": value for name, value in means.items()}, state.update)
            self.sums, self.n_updates = {}, 0

    def line_of_progress(self, rate: float, losses: str) -> str:
        """What the bar would show, for a log file."""
        task = self.bar.tasks[0]
        done, total = int(task.completed), int(task.total or 0)
        minutes, seconds = divmod(round((total - done) / rate), 60)
        left = f"{minutes}:{seconds:02} left"
        return f"{task.description}: {done} of {total} sentences, {rate:.0f} sentences/s, {left}, {losses}"

    def end_epoch(self, state: State, report: Report, better: bool) -> None:
        self.bar.stop()
        micro = report.micro
        minutes = state.core_seconds / 60
        best = "  best so far" if better else ""
        self.say(
            f"epoch {state.epoch}: dev precision {100 * micro.precision:.1f} recall {100 * micro.recall:.1f} F1 "
            f"{100 * micro.f1:.2f}, {minutes:.1f} core-minutes{best}"
        )
        scores = {"precision": micro.precision, "recall": micro.recall, "f1": micro.f1}
        self.write({"epoch_ended": state.epoch, "update": state.update, "dev": scores, "core_minutes": minutes})
        self._track({f"dev/{name}": value for name, value in scores.items()}, state.update)

    def finish(self, state: State, name: str, report: Report, n_sentences: int, path: Path) -> None:
        self.say(
            f"\nbest epoch {state.best_epoch} on {name}, {state.core_seconds / 60:.1f} core-minutes of "
            f"training\n{report.table()}"
        )
        content = {
            "split": name, "train_sentences": n_sentences, "best_epoch": state.best_epoch, "epochs": state.epoch,
            "dev_f1": state.history, "core_minutes": state.core_seconds / 60,
            "device": device_name(self.accelerator.device), "memory_mb": peak_memory(self.accelerator.device),
            "scores": report.to_dict(),
        }  # fmt: skip
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(partial, path)

    def write(self, row: Mapping[str, Any]) -> None:
        self.file.write(json.dumps(row) + "\n")

    def flush(self) -> int:
        """Everything on disk; the file's size then, for a checkpoint to remember."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return self.path.stat().st_size

    def _track(self, values: Mapping[str, float], step: int) -> None:
        if self.tracked:
            self.accelerator.log(dict(values), step=step)


def device_name(device: torch.device) -> str:
    """``cpu``, or the make of the accelerator."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def peak_memory(device: torch.device) -> int | None:
    """The most memory, in MB, that this process has held on the device; None where the system does not say."""
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) // 2**20
    status = Path("/proc/self/status")
    if status.exists():  # what `getrusage` says on Linux begins with the peak of the process that started this one
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) // 2**10
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 2**20 if sys.platform == "darwin" else 2**10  # macOS counts bytes, others kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit
