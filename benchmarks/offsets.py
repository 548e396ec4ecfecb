"""Table 5 of the BOPN paper for a trained model: P/R/F1 and support of every offset label, and of three decodings.

Behind each decoding stands how often a right answer of it has a higher score than a wrong one.

python benchmarks/offsets.py models/genia-bopn
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from spanwright.analyse import DECODINGS, offset_table, ranking
from spanwright.config import load_recipe
from spanwright.prepare import read_split
from spanwright.tagger import Tagger
from spanwright.types import SpanwrightError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder that `spanwright train` wrote")
    parser.add_argument("--split", default="test")
    parser.add_argument("--json", type=Path, help="file for the rows")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    try:
        tagger = Tagger.load(asked.model)
        recipe = load_recipe(asked.model / "recipe.toml")
        gold = read_split(recipe.data, recipe.data.train, asked.split, recipe.encoder.context, print)
        found = offset_table(tagger, gold)
    except SpanwrightError as error:
        sys.exit(f"error: {error}")
    for label, score in found.items():
        answers = tagger.with_options(decode=label).predict(gold) if label in DECODINGS else None
        rows.append(
            {
                "model": asked.model.name,
                "split": asked.split,
                "label": label,
                **asdict(score),
                "ranking": answers and ranking(gold, answers),
            }
        )
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    for row in rows:
        figures = "".join(f"{100 * row[name]:7.2f}" for name in ("precision", "recall", "f1"))
        print(f"{row['label']:>8} {figures} {row['gold']}", f"ranking {row['ranking']:.3f}" if row["ranking"] else "")


if __name__ == "__main__":
    main()
