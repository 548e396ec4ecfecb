"""Checkpoints: all that an interrupted training needs to end as if it had not been interrupted. No pickles.

checkpoint/state.json        where the run is, and the recipe it belongs to
checkpoint/state.safetensors weights, both moments of AdamW, the generators' states
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from spanwright.config import Recipe, recipe_to_dict
from spanwright.folder import whole_folder
from spanwright.types import SpanwrightError

if TYPE_CHECKING:
    from spanwright.train import Run


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
    return output / "checkpoint"


def latest(output: Path) -> Path | None:
    return place(output) if (place(output) / "state.json").is_file() else None


def save(run: Run) -> None:
    run.progress.journal_bytes = run.journal.flush()
    tensors = {f"network.{name}": tensor for name, tensor in run.tagger.network.state_dict().items()}
    for index, slots in run.optimizer.state_dict()["state"].items():
        tensors.update((f"optimizer.{index}.{name}", torch.as_tensor(value)) for name, value in slots.items())
    tensors["generator.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["generator.cuda"] = torch.cuda.get_rng_state()
    state = {"progress": asdict(run.progress), "recipe": recipe_to_dict(run.recipe)}
    with whole_folder(place(run.output)) as folder:
        save_file(
            {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, folder / "state.safetensors"
        )
        (folder / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")


def restore(run: Run) -> None:
    folder = place(run.output)
    run.progress = Progress(**_state(run.output)["progress"])
    tensors = load_file(folder / "state.safetensors")
    run.tagger.network.load_state_dict(_under("network.", tensors))
    slots: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _under("optimizer.", tensors).items():
        index, slot = name.split(".", 1)
        slots.setdefault(int(index), {})[slot] = tensor
    run.optimizer.load_state_dict({"state": slots, "param_groups": run.optimizer.state_dict()["param_groups"]})
    torch.set_rng_state(tensors["generator.cpu"])
    if torch.cuda.is_available() and "generator.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["generator.cuda"])


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
    return json.loads((place(output) / "state.json").read_text(encoding="utf-8"))


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
