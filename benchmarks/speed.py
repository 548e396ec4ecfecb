"""What a head costs beside its encoder: encoder + head + decoding to entities, over the bare transformer.

    python benchmarks/speed.py --words 64 --json build/speed.json

Real sentences of about as many words as asked for, the same batches for all, one thread, tokenisation left out. Every
round times the transformer and each head in turn, so that whatever else the machine does falls on all of them. Heads
are trained for a moment first (the encoder is not), for an untrained head proposes entities everywhere.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from spanwright.config import EncoderConfig
from spanwright.data import read
from spanwright.encoder import Encoder, build_encoder
from spanwright.heads import build_head, head_class
from spanwright.select import select
from spanwright.tagger import Batch, Tagger
from spanwright.types import Labels, Sentence

CORPUS = Path(__file__).parents[1] / "examples" / "gum_open" / "train.jsonl"
HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "seqner": ("seqner", {}),
    "seqner-crf": ("seqner", {"tagging": "crf"}),
    "spanner": ("spanner", {"max_width": 10}),
}
TRAINING_UPDATES = 240


def nearest(sentences: list[Sentence], words: int, count: int) -> list[Sentence]:
    """The `count` sentences whose length is nearest to `words`."""
    return sorted(sentences, key=lambda sentence: abs(len(sentence) - words))[:count]


def fresh(encoder: Encoder, name: str, config: dict[str, Any], labels: Labels) -> Tagger:
    return Tagger(
        encoder, build_head(name, head_class(name).Config(**config), labels, encoder.width, encoder.input_width)
    )


def taught(tagger: Tagger, sentences: list[Sentence]) -> Tagger:
    """A head that has seen a few batches, over an encoder that stays as it is."""
    optimizer = torch.optim.AdamW(tagger.head.parameters(), lr=3e-3)
    tagger.encoder.requires_grad_(False)
    for update in range(TRAINING_UPDATES):
        batch = tagger.collate(sentences[16 * update % len(sentences) :][:16])
        loss = torch.stack([total / count for total, count in tagger.loss(batch).values()]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tagger.network.eval()
    return tagger


def entities(tagger: Tagger, batch: Batch) -> int:
    """Encoder, head, decoding, selection: what a prediction does once its pieces are there."""
    candidates = tagger.head.decode(tagger.scores(batch), batch.lengths)
    chosen = tagger.head.inference
    return sum(len(select(found, chosen.overlap, chosen.threshold)) for found in candidates)


def bare(transformer: nn.Module, batch: Batch) -> None:
    with torch.inference_mode():
        transformer(input_ids=batch.pieces.ids, attention_mask=batch.pieces.mask.long())


def seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def rotated(rows: list[str], turn: int) -> list[str]:
    """Each in its turn is the first."""
    return rows[turn % len(rows) :] + rows[: turn % len(rows)]


def measure(words: int, batch_size: int, rounds: int, encoder: str) -> list[dict[str, Any]]:
    corpus = list(read(CORPUS))
    shared = build_encoder(EncoderConfig(name=encoder))
    labels = Labels.of(corpus)
    taggers = {row: taught(fresh(shared, name, config, labels), corpus) for row, (name, config) in HEADS.items()}
    sentences = nearest(corpus, words, 4 * batch_size)
    groups = [sentences[i : i + batch_size] for i in range(0, len(sentences), batch_size)]
    batches = [taggers["seqner"].collate(group) for group in groups]
    times: dict[str, list[float]] = {row: [] for row in ("bare", *HEADS)}
    work: dict[str, Callable[[Batch], Any]] = {row: partial(entities, tagger) for row, tagger in taggers.items()}
    work["bare"] = partial(bare, shared.transformer)
    n_entities = {row: sum(entities(tagger, batch) for batch in batches) for row, tagger in taggers.items()}
    for turn in range(rounds + 1):
        for batch in batches:
            bare(shared.transformer, batch)  # whoever comes first pays for the change of shape: nobody who is timed
            for row in rotated(list(times), turn):
                took = seconds(lambda row=row, batch=batch: work[row](batch))  # type: ignore[misc]
                if turn:  # the first round only warms up
                    times[row].append(took)
    n_gold = sum(len(sentence.entities) for sentence in sentences)
    mean_words = statistics.mean(map(len, sentences))
    rows = []
    for row in HEADS:
        ratios = [own / base for own, base in zip(times[row], times["bare"], strict=True)]
        low, middle, high = (round(value, 4) for value in statistics.quantiles(ratios, n=4))
        rows.append({
            "head": row, "words": words, "batch": batch_size, "overhead": middle, "overhead_quartiles": [low, high],
            "seconds": statistics.median(times[row]), "bare_seconds": statistics.median(times["bare"]),
            "mean_words": mean_words, "runs": len(ratios), "entities": n_entities[row], "gold_entities": n_gold,
            "encoder": encoder,
            "torch": torch.__version__, "threads": torch.get_num_threads(),
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=64, help="length of the sentences")
    parser.add_argument("--batch", type=int, default=8, help="sentences in a batch")
    parser.add_argument("--rounds", type=int, default=15, help="rounds over four batches")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--json", type=Path, help="file for the rows")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rows = measure(asked.words, asked.batch, asked.rounds, asked.encoder)
    print(f"{'head':12} {'overhead':>9} {'quartiles':>15} {'seconds':>9} {'bare':>9}  entities")
    for row in rows:
        between = "-".join(f"{value:.3f}" for value in row["overhead_quartiles"])
        took = f"{row['seconds']:9.4f} {row['bare_seconds']:9.4f}"
        print(f"{row['head']:12} {row['overhead']:9.3f} {between:>15} {took}  {row['entities']}")
    what = f"{rows[0]['runs']} interleaved runs, sentences of {rows[0]['mean_words']:.1f} words on average, one thread"
    print(what, file=sys.stderr)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
