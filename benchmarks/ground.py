"""A trained model as a row of docs/results/ground.json, its test predictions beside it, and the table anew.

    python benchmarks/ground.py models/genia-spanner
    python benchmarks/ground.py models/genia-bundle --head bl-seqner --set output=seqner

Predictions hold no text: they follow the order of the corpus's test split, which whoever repeats an analysis has.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from spanwright.cli.measure import gold_of, measured, save_rows
from spanwright.cli.options import opened
from spanwright.config import Recipe, load_recipe

RESULTS = Path(__file__).parents[1] / "docs" / "results"
TABLE, ROWS = RESULTS / "ground.md", RESULTS / "ground.json"
NAMES = {"bundle": "bl-spanner"}  # the paper's name for what the default output answers


def row_of(folder: Path, head: str, recipe: Recipe, options: list[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The row, and what the model found in each test sentence."""
    tagger = opened(str(folder), options, "cpu", "fp32", 1)
    gold = gold_of(tagger, str(folder), recipe.data.train, "test", {}, print)
    report, found = measured(tagger, gold)
    told = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    train = f"spanwright train recipes/{recipe.data.train}/{recipe.head_name}.toml --output {folder.name}"
    scoring = f"python benchmarks/ground.py {folder.name} --head {head}" + "".join(f" --set {o}" for o in options)
    row = {
        "corpus": recipe.data.train, "head": head, "encoder": recipe.encoder.name, "seed": recipe.run.seed,
        "epochs": told["epochs"], "best_epoch": told["best_epoch"], "train_sentences": told["train_sentences"],
        "precision": round(100 * report.micro.precision, 2), "recall": round(100 * report.micro.recall, 2),
        "f1": round(100 * report.micro.f1, 2), "minutes": round(told["core_minutes"], 1),
        "dev_f1": [round(100 * f1, 2) for f1 in told["dev_f1"]],
        "command": f"{train} && {scoring}",
    }  # fmt: skip
    return row, [{name: sentence[name] for name in ("doc", "predicted") if name in sentence} for sentence in found]


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown, one line a row; the command that makes each stands below."""
    lines = [
        "# Ground results",
        "",
        "Written by `benchmarks/ground.py`; exact match on all nested gold of the test split, scores of one seed each. "
        "Of a bundle, both rows are outputs of one training, whose best epoch is chosen by SpanNER's dev F1. Minutes "
        "are core-minutes (CPU time of one thread) of training with dev evaluation, on a machine with other work too. "
        "Best epoch by dev F1.",
        "",
        "| corpus | head | encoder | seed | epochs | best | sentences | P | R | F1 | minutes |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    shown = ("corpus", "head", "encoder", "seed", "epochs", "best_epoch", "train_sentences")
    for row in rows:
        scores = [f"{row[name]:.2f}" for name in ("precision", "recall", "f1")]
        lines.append("| " + " | ".join([*(str(row[name]) for name in shown), *scores, str(row["minutes"])]) + " |")
    curves = [f"- {row['corpus']} {row['head']}: {', '.join(f'{f1:.2f}' for f1 in row['dev_f1'])}" for row in rows]
    commands = [f"    {row['command']}" for row in rows]
    return "\n".join([*lines, "", "Dev F1 after each epoch:", "", *curves, "", "Commands:", "", *commands, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder that `spanwright train` wrote")
    parser.add_argument("--head", default="", help="name of the row; by default the head's, bl-spanner for a bundle")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="as `spanwright evaluate` has it"
    )
    asked = parser.parse_args()
    recipe = load_recipe(asked.model / "recipe.toml")
    head = asked.head or NAMES.get(recipe.head_name, recipe.head_name)
    row, found = row_of(asked.model, head, recipe, asked.set)
    name = f"{row['corpus']}-{head}-seed{row['seed']}"
    (RESULTS / "predictions").mkdir(parents=True, exist_ok=True)
    save_rows(RESULTS / "predictions" / f"{name}.jsonl.gz", found)
    rows = json.loads(ROWS.read_text(encoding="utf-8")) if ROWS.exists() else []
    same = ("corpus", "head", "encoder", "seed")
    rows = [other for other in rows if any(other[key] != row[key] for key in same)] + [row]
    rows.sort(key=lambda row: [str(row[key]) for key in same])
    ROWS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    TABLE.write_text(table(rows), encoding="utf-8")
    print(f"{row['corpus']} {head}: P {row['precision']} R {row['recall']} F1 {row['f1']}")


if __name__ == "__main__":
    main()
