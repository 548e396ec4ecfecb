"""Checkpoints: all that an interrupted training needs to end as if it had not been interrupted. No pickles.

`checkpoint.safetensors` holds the weights, both moments of AdamW and the generators' states; in its header, as JSON,
where the run is, the recipe and the data it belongs to. One file, so it appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from spanwright.batch import Example
from spanwright.config import Recipe, recipe_to_dict
from spanwright.folder import save_whole
from spanwright.types import Labels, Sentence, SpanwrightError

if TYPE_CHECKING:
    from spanwright.train import Run

STATE = "state"  # the key of the header


@dataclass
class Progress:
    """Where a training is."""

    epoch: int = 0  # epochs ended
    batch: int = 0  # batches of the current epoch that are done
    update: int = 0
    best: float = 0.0  # dev F1
    best_epoch: int = 0
    history: list[float] = field(default_factory=list)  # dev F1 of every epoch
    stopped: bool = False  # by patience
    core_seconds: float = 0.0  # of CPU time, training and dev evaluation
    journal_bytes: int = 0  # how much of metrics.jsonl belongs to this state


def place(output: Path) -> Path:
    return output / "checkpoint.safetensors"


def latest(output: Path) -> Path | None:
    return place(output) if place(output).is_file() else None


def save(run: Run) -> None:
    run.progress.journal_bytes = run.journal.flush()
    tensors = {f"network.{name}": tensor for name, tensor in run.tagger.network.state_dict().items()}
    for index, slots in run.optimizer.state_dict()["state"].items():
        tensors.update((f"optimizer.{index}.{name}", torch.as_tensor(value)) for name, value in slots.items())
    tensors |= {f"generator.{name}": state for name, state in generators().items()}
    scaler = run.accelerator.scaler
    state = {
        "progress": asdict(run.progress), "recipe": recipe_to_dict(run.recipe), "data": run.data,
        "scaler": scaler.state_dict() if scaler is not None else None,
    }  # fmt: skip
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_whole(place(run.output), lambda path: save_file(whole, path, {STATE: json.dumps(state)}))


def restore(run: Run) -> None:
    state = _state(run.output)
    if state["data"] != run.data:
        raise SpanwrightError(
            f"{run.output}: the training or dev data are not those that the interrupted training began with. Resume "
            "with the same files, or pass --overwrite to train anew"
        )
    run.progress = Progress(**state["progress"])
    tensors = load_file(place(run.output))
    run.tagger.network.load_state_dict(_under("network.", tensors))
    slots: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _under("optimizer.", tensors).items():
        index, slot = name.split(".", 1)
        slots.setdefault(int(index), {})[slot] = tensor
    run.optimizer.load_state_dict({"state": slots, "param_groups": run.optimizer.state_dict()["param_groups"]})
    if run.accelerator.scaler is not None and state["scaler"]:
        run.accelerator.scaler.load_state_dict(state["scaler"])
    set_generators(_under("generator.", tensors))


def generators() -> dict[str, Tensor]:
    """The state of each generator that dropout may draw from."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    if torch.backends.mps.is_available():
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_generators(states: dict[str, Tensor]) -> None:
    torch.set_rng_state(states["cpu"])
    if torch.cuda.is_available() and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])
    if torch.backends.mps.is_available() and "mps" in states:
        torch.mps.set_rng_state(states["mps"])


def digest(examples: Sequence[Example], dev: Sequence[Sentence], labels: Labels) -> str:
    """What tells one set of data from another: labels, pieces and targets of every training sentence, in order, and the
    dev sentences by which the best epoch is chosen."""
    seen = hashlib.blake2b(repr(labels.names).encode(), digest_size=16)
    for example in examples:
        seen.update(repr(example.pieces).encode())
        for name, array in sorted(example.targets.items()):
            seen.update(f"{name}{array.shape}".encode() + array.tobytes())
    for sentence in dev:
        seen.update(repr((sentence.words, sorted(sentence.entities))).encode())
    return seen.hexdigest()


def same_recipe(output: Path, recipe: Recipe) -> None:
    """Refuses to go on under another recipe: the end would belong to neither. What only paces the work may change."""
    before, now = (json.loads(json.dumps(tables)) for tables in (_state(output)["recipe"], recipe_to_dict(recipe)))
    for tables in (before, now):
        del tables["train"]["checkpoint_minutes"]
    changed = [
        f"{table}.{key}"
        for table in now
        for key in {*now[table], *before.get(table, {})}
        if now[table].get(key) != before.get(table, {}).get(key)
    ]
    if changed:
        raise SpanwrightError(
            f"{output} was started with another recipe (differs in {', '.join(sorted(changed))}). Resume with the "
            "same one, or pass --overwrite"
        )


def _state(output: Path) -> dict[str, Any]:
    with safe_open(place(output), "pt") as file:
        state: dict[str, Any] = json.loads(file.metadata()[STATE])
    return state


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
