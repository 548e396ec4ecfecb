"""The tables of docs/RESULTS.md from the rows in docs/results/, and whether the heads really differ.

    python benchmarks/results.py            # needs the corpora under $SPANWRIGHT_DATA, for their gold

Tables stand between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``; what is written around them stays as it is.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import statistics
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from spanwright.config import load_recipe
from spanwright.prepare import read_split
from spanwright.resample import draws, f1, f1_difference, unit_counts
from spanwright.types import Entity, Sentence

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "RESULTS.md", ROOT / "docs" / "results"
PAIRS = (
    ("seqner", "spanner"), ("seqner", "bl-seqner"), ("spanner", "bl-spanner"), ("spanner", "bopn"),
    ("bopn", "bopn-with-seqner"), ("bopn", "bopn-with-spanner"),
)  # fmt: skip
BASE = "head.grid=full"
ABLATIONS = {  # by the settings of the head that the predictions are named for
    BASE: "S = 2, full grid",
    "head.max_offset=0-head.grid=full": "S = 0",
    "head.grid=full-head.conv_layers=0": "no convolution",
    "head.grid=full-head.region_size=0": "no region embedding",
    "head.type_input=embedding-head.grid=full": "no type input",
    "": "upper triangle only",
}

Row = dict[str, Any]


# ------------------------------------------------------------------------------------------------ paired differences


def differences(rows: list[Row]) -> list[Row]:
    """F1 of the second head less the first's, for trainings alike in all but the head."""
    by_training = {(training_of(row), row["head"]): row for row in rows}
    found = []
    for training, corpus in sorted({(training_of(row), row["corpus"]) for row in rows}):
        gold = gold_of(corpus)
        for first, second in PAIRS:
            pair = [by_training.get((training, head)) for head in (first, second)]
            if pair[0] and pair[1]:
                sure = f1_difference(gold, *(predictions_of(row) for row in pair if row))
                found.append({
                    "corpus": corpus, "first": first, "second": second, "seed": pair[0]["seed"],
                    "train_sentences": pair[0]["train_sentences"], "difference": round(100 * sure.value, 2),
                    "low": round(100 * sure.low, 2), "high": round(100 * sure.high, 2),
                    "resampled": f"{sure.units} {sure.unit}",
                })  # fmt: skip
    return found


def training_of(row: Row) -> str:
    """What the predictions' name says of the training, the head left out."""
    return str(row["predictions"]).replace(f"-{row['head']}-", "-")


def gold_of(corpus: str) -> list[Sentence]:
    recipe = load_recipe(ROOT / "recipes" / corpus / "spanner.toml")
    return read_split(recipe.data, corpus, "test", 0, print)


def predictions_of(row: Row, results: Path = RESULTS) -> list[list[Entity]]:
    with gzip.open(results / row["predictions"], "rt", encoding="utf-8") as lines:
        return [
            [Entity(one["start"], one["end"], one["label"], one["score"]) for one in json.loads(line)["predicted"]]
            for line in lines
        ]


# --------------------------------------------------------------------------------------------------------- ablations


def ablation_differences(rows: list[Row]) -> list[Row]:
    """F1 of each variant less that of the base with the same seed, and how sure the mean over the seeds is.

    Two things move it: the seeds, whose spread is taken over all variants together (two seeds of one say little), and
    the test set, by bootstrap over its documents, the same resamples for all. Their standard errors are added in
    squares.
    """
    counts = {(ablation_of(row), row["seed"]): counts_of(row) for row in rows}
    seeds = sorted({row["seed"] for row in rows})
    weights = draws(len(counts[BASE, seeds[0]]), seed=0)
    variants = [name for name in ABLATIONS if name != BASE]

    def by_seed(name: str, of: Callable[[np.ndarray], Any]) -> np.ndarray:
        return np.array([100 * (of(counts[name, seed]) - of(counts[BASE, seed])) for seed in seeds])

    plain = {name: by_seed(name, lambda units: f1(units.sum(0))) for name in variants}
    spread = math.sqrt(statistics.mean(values.var(ddof=1) for values in plain.values()) / len(seeds))
    found = []
    for name in variants:
        resampled = by_seed(name, lambda units: f1(weights @ units)).mean(0)
        error = math.hypot(spread, resampled.std())
        mean = float(plain[name].mean())
        found.append({
            "ablation": name, "by_seed": plain[name].round(2).tolist(), "mean": round(mean, 2),
            "error_of_seeds": round(spread, 2), "error_of_test": round(float(resampled.std()), 2),
            "error": round(error, 2), "direction": abs(mean) > 2 * error,
        })  # fmt: skip
    return found


def ablation_of(row: Row) -> str:
    return "-".join(re.findall(r"head\.\w+=\w+", row["predictions"]))


def counts_of(row: Row) -> np.ndarray:
    counts, _ = unit_counts(gold_of(row["corpus"]), predictions_of(row, RESULTS / "ablations"))
    return counts


# ------------------------------------------------------------------------------------------------------------ tables


def table(columns: str, lines: Iterable[Iterable[object]]) -> str:
    heads = columns.split(",")
    cells = [heads, ["---"] * len(heads), *([str(cell) for cell in line] for line in lines)]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def means(rows: list[Row]) -> str:
    """Each head's mean over trainings alike in all but the seed, with the lowest and the highest F1."""

    def kind(row: Row) -> tuple[str, str, str]:
        return row["corpus"], re.sub(r"-seed\d+", "", training_of(row)), row["head"]

    lines = []
    for _, group in groupby(sorted(rows, key=kind), kind):
        alike = list(group)
        corpus, sentences, epochs, head = (alike[0][n] for n in ("corpus", "train_sentences", "epochs", "head"))
        mean = {name: statistics.mean(row[name] for row in alike) for name in ("precision", "recall", "f1")}
        f1 = [row["f1"] for row in alike]
        between = f"{min(f1):.2f}-{max(f1):.2f}" if len(f1) > 1 else ""
        scores = [f"{value:.2f}" for value in mean.values()]
        lines.append([corpus, sentences, epochs, head, len(alike), *scores, between])
    return table("corpus,sentences,epochs,head,seeds,P,R,F1,lowest-highest", lines)


def runs(rows: list[Row]) -> str:
    return table(
        "corpus,sentences,head,seed,best epoch,P,R,F1,95 % of resamples,resampled,minutes,MB,device",
        (
            [
                row["corpus"], row["train_sentences"], row["head"], row["seed"],
                f"{row['best_epoch']} of {row['epochs']}",
                *(f"{row[name]:.2f}" for name in ("precision", "recall", "f1")),
                f"{row['f1_low']:.2f}-{row['f1_high']:.2f}", row["resampled"], row["minutes"],
                row.get("memory_mb", ""), row["device"],
            ]
            for row in rows
        ),
    )  # fmt: skip


def compared(rows: list[Row]) -> str:
    lines = [
        [
            row["corpus"], row["train_sentences"], f"{row['second']} less {row['first']}", row["seed"],
            f"{row['difference']:+.2f}", f"{row['low']:+.2f} to {row['high']:+.2f}",
            "yes" if row["low"] > 0 or row["high"] < 0 else "no",
        ]
        for row in rows
    ]  # fmt: skip
    return table("corpus,sentences,F1 of,seed,difference,95 % of resamples,leaves out 0", lines)


def curves(rows: list[Row]) -> str:
    lines = [
        [*(row[name] for name in ("corpus", "train_sentences", "head", "seed")), ", ".join(f"{f1:.2f}" for f1 in dev)]
        for row in rows
        if (dev := row["dev_f1"]) and row["head"] != "bl-seqner"  # of a bundle, bl-spanner's F1 is followed
    ]
    return table("corpus,sentences,head,seed,dev F1 after each epoch", lines)


def commands(rows: list[Row]) -> str:
    return "\n".join(f"    {row['command']}" for row in rows)


def speed(rows: list[Row]) -> str:
    lines = [
        [
            row["head"], row["what"], row["words"], row["batch"], f"{row['overhead']:.3f}",
            "-".join(f"{quartile:.3f}" for quartile in row["overhead_quartiles"]),
            f"{1000 * row['seconds']:.0f}", f"{1000 * row['bare_seconds']:.0f}", row["runs"],
        ]
        for row in rows
    ]  # fmt: skip
    return table("head,what,words,batch,overhead,quartiles,ms a batch,bare encoder,runs", lines)


def raw_text(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        micro = row["scores"]["micro"]
        what = "text, cut by the model" if row["raw"] else "words as given"
        lines.append([row["data"], what, *(f"{100 * micro[name]:.2f}" for name in ("precision", "recall", "f1"))])
    return table("corpus,input,P,R,F1", lines)


def long_text(rows: list[Row]) -> str:
    names = ("words", "seconds", "peak_mb", "planted", "found")
    return table("words,seconds,peak MB,planted,found", ([row[name] for name in names] for row in rows))


def offsets(rows: list[Row]) -> str:
    names = ("precision", "recall", "f1")
    return table(
        "label,P,R,F1,support,right above wrong",
        (
            [
                row["label"],
                *(f"{100 * row[name]:.2f}" for name in names),
                row["gold"],
                f"{100 * row['ranking']:.1f} %" if row["ranking"] else "",
            ]
            for row in rows
        ),
    )


def memory(rows: list[Row]) -> str:
    names = ("model", "options", "words", "seconds", "loaded_mb", "peak_mb")
    return table("model,options,words,seconds,MB loaded,MB peak", ([row[name] for name in names] for row in rows))


def ablations(rows: list[Row]) -> str:
    """The rows of the trainings, then the differences of each variant."""
    trained, sure = ([row for row in rows if key in row] for key in ("f1", "mean"))
    lines = []
    for name, what in ABLATIONS.items():
        scores = " ".join(f"{row['f1']:.2f}" for row in trained if ablation_of(row) == name)
        own = next((row for row in sure if row["ablation"] == name), None)
        told = ["", "", "", ""]
        if own:
            each = " ".join(f"{value:+.2f}" for value in own["by_seed"])
            told = [each, f"{own['mean']:+.2f}", f"{own['error']:.2f}", "yes" if own["direction"] else "no"]
        lines.append([what, scores, *told])
    return table("variant,F1 by seed,difference by seed,mean,standard error,beyond two", lines)


def schedules(rows: list[Row]) -> str:
    lines = [
        [
            row["changed"], row["seed"], row["epochs"], f"{max(row['dev_f1']):.2f}", f"{row['f1']:.2f}",
            ", ".join(f"{one:.2f}" for one in row["dev_f1"]),
        ]
        for row in rows
    ]  # fmt: skip
    return table("settings,seed,epochs,best dev F1,test F1,dev F1 after each epoch", lines)


# Each table, the files its rows are in, and what writes it.
TABLES: dict[str, tuple[tuple[str, ...], Callable[[list[Row]], str]]] = {
    "means": (("ground",), means),
    "differences": (("differences",), compared),
    "runs": (("ground",), runs),
    "curves": (("ground",), curves),
    "commands": (("ground",), commands),
    "offsets": (("offsets",), offsets),
    "memory": (("memory",), memory),
    "ablations": (("ablations/ground", "ablation-differences"), ablations),
    "ablation commands": (("ablations/ground",), commands),
    "schedules": (("schedules",), schedules),
    "schedule commands": (("schedules",), commands),
    "speed": (("speed",), speed),
    "raw": (("gum-words", "gum-raw"), raw_text),
    "long": (("long_text",), long_text),
}


def rows_of(*names: str) -> list[Row]:
    found = [json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in names]
    return [row for rows in found for row in (rows if isinstance(rows, list) else [rows])]


def rendered(page: str) -> str:
    """The page with each table written anew."""
    for name, (sources, write) in TABLES.items():
        start, end = f"<!-- begin {name} -->\n", f"\n<!-- end {name} -->"
        before, after = page.index(start) + len(start), page.index(end)
        page = page[:before] + write(rows_of(*sources)) + page[after:]
    return page


def main() -> None:
    found = differences(rows_of("ground"))
    (RESULTS / "differences.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    ablated = ablation_differences(rows_of("ablations/ground"))
    (RESULTS / "ablation-differences.json").write_text(json.dumps(ablated, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for row in found:
        print(f"{row['corpus']} seed {row['seed']}: {row['second']} {row['difference']:+.2f} over {row['first']}")


if __name__ == "__main__":
    main()
