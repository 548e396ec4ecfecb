"""The tables of docs/RESULTS.md from the rows in docs/results/, and whether the heads really differ.

    python benchmarks/results.py            # needs the corpora under $SPANWRIGHT_DATA, for their gold

Tables stand between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``; what is written around them stays as it is.
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from spanwright.config import load_recipe
from spanwright.prepare import read_split
from spanwright.resample import f1_difference
from spanwright.types import Entity, Sentence

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "RESULTS.md", ROOT / "docs" / "results"
PAIRS = (("seqner", "spanner"), ("seqner", "bl-seqner"), ("spanner", "bl-spanner"))

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


def predictions_of(row: Row) -> list[list[Entity]]:
    with gzip.open(RESULTS / row["predictions"], "rt", encoding="utf-8") as lines:
        return [
            [Entity(one["start"], one["end"], one["label"], one["score"]) for one in json.loads(line)["predicted"]]
            for line in lines
        ]


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
            row["head"], row["words"], row["batch"], f"{row['overhead']:.3f}",
            "-".join(f"{quartile:.3f}" for quartile in row["overhead_quartiles"]),
            f"{1000 * row['seconds']:.0f}", f"{1000 * row['bare_seconds']:.0f}", row["runs"],
        ]
        for row in rows
    ]  # fmt: skip
    return table("head,words,batch,overhead,quartiles,ms a batch,bare encoder,runs", lines)


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


# Each table, the files its rows are in, and what writes it.
TABLES: dict[str, tuple[tuple[str, ...], Callable[[list[Row]], str]]] = {
    "means": (("ground",), means),
    "differences": (("differences",), compared),
    "runs": (("ground",), runs),
    "curves": (("ground",), curves),
    "commands": (("ground",), commands),
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
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for row in found:
        print(f"{row['corpus']} seed {row['seed']}: {row['second']} {row['difference']:+.2f} over {row['first']}")


if __name__ == "__main__":
    main()
