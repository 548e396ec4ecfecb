"""One text of many words: how long tagging it takes, how much memory, and whether what is planted in it is found.

    python benchmarks/long_text.py build/demo --json docs/results/long_text.json

A process for each length, so that each tells its own peak. The planted sentence must give the same entities at every
place as it gives in a short text.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from spanwright.folder import load
from spanwright.journal import peak_memory
from spanwright.tagger import Tagger
from spanwright.types import Document

LENGTHS = (1_000, 20_000, 80_000)
PLACES = 9
FILLER = "The committee met again on Tuesday and talked about the weather for a long while. "
PLANTED = "The University of Oslo is in Norway. "


def planted(document: Document, at: int) -> set[tuple[int, int, str]]:
    """The entities found in the planted sentence, relative to its start."""
    inside = [m for m in document.entities if at <= m.start_char < at + len(PLANTED)]
    return {(m.start_char - at, m.end_char - at, m.label) for m in inside}


def measure(tagger: Tagger, n_words: int) -> dict[str, Any]:
    expected = planted(tagger(FILLER + PLANTED + FILLER), len(FILLER))
    n_fillers = n_words // len(FILLER.split())
    at = {round(i * n_fillers / (PLACES - 1)) for i in range(PLACES)}
    text, starts = "", []
    for i in range(n_fillers + 1):
        if i in at:
            starts.append(len(text))
            text += PLANTED
        text += FILLER
    begin = time.perf_counter()
    document = tagger(text)
    seconds = time.perf_counter() - begin
    return {
        "words": len(document.words), "seconds": round(seconds, 2), "peak_mb": peak_memory(tagger.device),
        "planted": len(starts), "found": sum(planted(document, start) == expected for start in starts),
        "entities_in_each": len(expected),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder that `spanwright train` wrote")
    parser.add_argument("--words", type=int, help="this length alone, in this process")
    parser.add_argument("--json", type=Path, help="file for the rows")
    asked = parser.parse_args()
    if asked.words:
        print(json.dumps(measure(load(asked.model, device="cpu", threads=1), asked.words)))
        return
    rows = []
    for n_words in LENGTHS:
        command = [sys.executable, __file__, asked.model, "--words", str(n_words)]
        rows.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        print(rows[-1])
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
