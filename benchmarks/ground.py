"""A trained model as a row of docs/results/ground.json, its test predictions beside it.

    python benchmarks/ground.py models/genia-spanner
    python benchmarks/ground.py models/genia-bundle --head bl-seqner --set output=seqner
    python benchmarks/results.py                             # then the tables of docs/RESULTS.md

Predictions hold no text: they follow the order of the corpus's test split, which whoever repeats an analysis has.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from spanwright.cli.measure import gold_of, measured, save_rows
from spanwright.cli.options import opened
from spanwright.config import Recipe, load_recipe, recipe_to_dict, to_dict
from spanwright.heads import head_class
from spanwright.prepare import read_splits
from spanwright.resample import f1_interval
from spanwright.types import Entity

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
# What the default output of a bundle's recipe is called in the tables; "bundle" is the paper's.
NAMES = {"bundle": "bl-spanner", "bopn-seqner": "bopn-with-seqner", "bopn-spanner": "bopn-with-spanner"}


def row_of(
    folder: Path, named: str, recipe: Recipe, options: list[str], device: str, results: Path
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The row, and what the model found in each test sentence."""
    tagger = opened(str(folder), options, device, "fp32", 1)
    gold = gold_of(tagger, str(folder), recipe.data.train, "test", {}, print)
    report, measured_rows = measured(tagger, gold)
    found = [{name: row[name] for name in ("doc", "predicted") if name in row} for row in measured_rows]
    sure = f1_interval(gold, [entities_of(row) for row in found])
    written, changed = written_recipe(recipe)
    head = named or NAMES.get(written.stem, recipe.head_name)
    told = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    row = {
        "corpus": recipe.data.train, "head": head, "encoder": recipe.encoder.name, "seed": recipe.run.seed,
        "epochs": told["epochs"], "best_epoch": told["best_epoch"], "train_sentences": told["train_sentences"],
        "precision": round(100 * report.micro.precision, 2), "recall": round(100 * report.micro.recall, 2),
        "f1": round(100 * sure.value, 2), "f1_low": round(100 * sure.low, 2), "f1_high": round(100 * sure.high, 2),
        "resampled": f"{sure.units} {sure.unit}", "minutes": round(told["core_minutes"], 1),
        "memory_mb": told["memory_mb"], "device": told["device"],
        "dev_f1": [round(100 * f1, 2) for f1 in told["dev_f1"]],
        "predictions": f"predictions/{name_of(head, recipe, changed, options)}",
        "command": command_of(folder, head, written, changed, options, results),
    }  # fmt: skip
    return row, found


def entities_of(row: dict[str, Any]) -> list[Entity]:
    return [Entity(one["start"], one["end"], one["label"], one["score"]) for one in row["predicted"]]


def written_recipe(recipe: Recipe) -> tuple[Path, dict[str, Any]]:
    """The recipe of its corpus from which a training departs least, and the settings in which it does."""
    train, _, _ = read_splits(recipe, lambda _: None)
    found = []
    for path in sorted((ROOT / "recipes" / recipe.data.train).glob("*.toml")):
        written = load_recipe(path)
        if written.head_name == recipe.head_name:
            fitted = to_dict(head_class(recipe.head_name).fit(written.head_config(), train))  # as wide as the data ask
            usual = dict(flat(recipe_to_dict(replace(written, head_table=fitted))))
            changed = {key: value for key, value in flat(recipe_to_dict(recipe)) if usual.get(key) != value}
            found.append((path, changed))
    return min(found, key=lambda one: len(one[1]))


def flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{above}{key}.")
        else:
            yield above + key, value


def name_of(head: str, recipe: Recipe, changed: Mapping[str, Any], options: list[str]) -> str:
    """The predictions' file, such as ``genia-seqner-seed1-data.limit=2000.jsonl.gz``; no two rows have the same one."""
    marks = [f"{key}={value}" for key, value in changed.items() if key != "run.seed"]
    marks += [option for option in options if not option.startswith("output=")]  # the output has named the head
    name = "-".join([recipe.data.train, head, f"seed{recipe.run.seed}", *marks])
    return re.sub(r"[^\w.=-]", "_", name) + ".jsonl.gz"


def command_of(
    folder: Path, head: str, written: Path, changed: Mapping[str, Any], options: list[str], results: Path
) -> str:
    """What makes the row again, from the corpus to the score."""
    model = f"models/{folder.name}"
    settings = "".join(
        f" {key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in changed.items()
    )
    train = f"spanwright train {written.relative_to(ROOT).as_posix()}{settings} --output {model}"
    answer = "".join(f" --set {option}" for option in options)
    place = "" if results.resolve() == RESULTS else f" --results {results.as_posix()}"
    return f"{train} && python benchmarks/ground.py {model} --head {head}{answer}{place}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder that `spanwright train` wrote")
    parser.add_argument("--head", default="", help="name of the row; by default that of the recipe's head")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="as `spanwright evaluate` has it"
    )
    parser.add_argument("--device", default="cpu", help="where the test split is tagged")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the row and the predictions")
    asked = parser.parse_args()
    recipe = load_recipe(asked.model / "recipe.toml")
    row, found = row_of(asked.model, asked.head, recipe, asked.set, asked.device, asked.results)
    (asked.results / "predictions").mkdir(parents=True, exist_ok=True)
    save_rows(asked.results / row["predictions"], found)
    file = asked.results / "ground.json"
    rows = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    rows = [other for other in rows if other["predictions"] != row["predictions"]] + [row]
    rows.sort(key=lambda row: str(row["predictions"]))
    file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"{row['corpus']} {row['head']} seed {row['seed']}: P {row['precision']} R {row['recall']} F1 {row['f1']}")


if __name__ == "__main__":
    main()
