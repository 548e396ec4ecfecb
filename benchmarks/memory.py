"""The peak memory of a process that tags one sentence of so many words, model and libraries included.

    python benchmarks/memory.py models/gum-bopn --words 512
    python benchmarks/memory.py models/gum-bopn --words 512 --set max_width=32 --json build/memory.json

The sentence is the corpus of examples/ put together and cut to that length; it is tagged whole, at batch 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import chain, islice
from pathlib import Path

import torch

from spanwright.cli.options import opened
from spanwright.data import read
from spanwright.journal import peak_memory
from spanwright.types import Sentence, SpanwrightError

CORPUS = Path(__file__).parents[1] / "examples" / "gum_open" / "train.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder that `spanwright train` wrote")
    parser.add_argument("--words", type=int, default=512)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="as `spanwright evaluate` has it"
    )
    parser.add_argument("--json", type=Path, help="file to which the row is added")
    asked = parser.parse_args()
    if asked.words < 1:
        parser.error(f"--words {asked.words}: expected at least 1")
    torch.set_num_threads(1)
    try:
        tagger = opened(str(asked.model), asked.set, "cpu", "fp32", 1)
    except SpanwrightError as error:
        sys.exit(f"error: {error}")
    tagger.max_words = asked.words  # no part of it by itself
    loaded = peak_memory(tagger.device)
    words = tuple(islice(chain.from_iterable(sentence.words for sentence in read(CORPUS)), asked.words))
    begin = time.perf_counter()
    tagger.predict([Sentence(words)], batch_size=1)
    row = {
        "model": asked.model.name, "options": " ".join(asked.set), "words": len(words),
        "seconds": round(time.perf_counter() - begin, 2), "loaded_mb": loaded, "peak_mb": peak_memory(tagger.device),
    }  # fmt: skip
    print(json.dumps(row))
    if asked.json:
        rows = json.loads(asked.json.read_text(encoding="utf-8")) if asked.json.exists() else []
        kept = [other for other in rows if any(other[key] != row[key] for key in ("model", "options", "words"))]
        asked.json.write_text(json.dumps([*kept, row], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
