"""What a head costs beside its encoder: encoder + head + decoding to entities, over the bare transformer.

    python benchmarks/speed.py --words 64 --json build/speed.json
    python benchmarks/speed.py --words 32 64 128 --only bopn --training

Real sentences of about as many words as asked for (neighbours joined where there are too few), the same batches for
all, five labels, one thread, tokenisation left out. Every round times the transformer and each head in turn, so that
whatever else the machine does falls on all of them. Heads are trained for a moment first (the transformer is not), for
an untrained head proposes entities everywhere. With ``--training`` a loss and its gradients are timed instead, over
those of the transformer alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from naive_bopn import NaiveBOPN
from torch import nn

from spanwright.config import EncoderConfig, from_dict
from spanwright.data import read
from spanwright.encoder import Encoder, build_encoder
from spanwright.head import Head
from spanwright.heads import head_class
from spanwright.heads.bopn import BOPN
from spanwright.select import select
from spanwright.tagger import Batch, Tagger
from spanwright.types import Labels, Sentence

CORPUS = Path(__file__).parents[1] / "examples" / "gum_open" / "train.jsonl"
N_LABELS = 5  # the most frequent ones of the corpus
NEAR = 0.1  # a sentence is as long as asked for if it is not off by more
UPDATES = 240  # they take BOPN some four minutes


@dataclass(frozen=True)
class Setup:
    """A head on trial."""

    kind: type[Head]
    config: dict[str, Any] = field(default_factory=dict)
    encoder: dict[str, Any] = field(default_factory=dict)
    same_as: str = ""  # the row whose weights it takes, instead of learning its own


LSTM = {"lstm": 256, "lstm_dropout": 0.5}
HEADS: dict[str, Setup] = {
    "seqner": Setup(head_class("seqner")),
    "seqner-crf": Setup(head_class("seqner"), {"tagging": "crf"}),
    "spanner": Setup(head_class("spanner"), {"max_width": 10}),
    "bopn": Setup(BOPN, encoder=LSTM),
    "bopn-band": Setup(BOPN, {"max_width": 32}, LSTM, "bopn"),
    "bopn-full": Setup(BOPN, {"grid": "full"}, LSTM),
    "bopn-naive": Setup(NaiveBOPN, {"grid": "full"}, LSTM, "bopn-full"),
}


def read_corpus() -> list[Sentence]:
    """The corpus with its most frequent labels."""
    sentences = list(read(CORPUS))
    counts = Counter(entity.label for sentence in sentences for entity in sentence.entities)
    kept = {label for label, _ in counts.most_common(N_LABELS)}
    return [replace(s, entities=frozenset(e for e in s.entities if e.label in kept)) for s in sentences]


def about(sentences: list[Sentence], words: int, count: int) -> list[Sentence]:
    """The `count` sentences whose length is nearest to `words`; joined ones where those are too short or too long."""
    nearest = sorted(sentences, key=lambda sentence: abs(len(sentence) - words))[:count]
    if all(abs(len(sentence) - words) <= NEAR * words for sentence in nearest):
        return nearest
    return sorted(joined(sentences, words), key=lambda sentence: abs(len(sentence) - words))[:count]


def joined(sentences: list[Sentence], words: int) -> list[Sentence]:
    """Neighbours of one document put together as long as they have no more than `words` words."""
    found = []
    for _, document in groupby(sentences, key=lambda sentence: sentence.doc):
        whole = Sentence(())
        for sentence in document:
            if len(whole) + len(sentence) > words:
                found.append(whole)
                whole = Sentence(())
            moved = {entity.shifted(len(whole)) for entity in sentence.entities}
            whole = Sentence(whole.words + sentence.words, whole.entities | moved)
    return found


def fresh(transformer: Encoder, setup: Setup, labels: Labels) -> Tagger:
    """A tagger over the one transformer of all."""
    config = replace(transformer.config, **setup.encoder)
    encoder = Encoder(config, transformer.transformer, transformer.tokenizer, transformer.n_positions)
    head = from_dict(setup.kind.Config, setup.config, "head")
    return Tagger(encoder, setup.kind(head, labels, encoder.width, encoder.input_width))


def taught(tagger: Tagger, sentences: list[Sentence], updates: int) -> Tagger:
    """A head that has seen a few batches, over a transformer that stays as it is."""
    tagger.encoder.transformer.requires_grad_(False)
    learning = [parameter for parameter in tagger.network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=3e-3)
    for update in range(updates):
        batch = tagger.collate(sentences[16 * update % len(sentences) :][:16])
        loss = mean_loss(tagger, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tagger.network.eval()
    tagger.encoder.transformer.requires_grad_(True)
    return tagger


def mean_loss(tagger: Tagger, batch: Batch) -> torch.Tensor:
    return torch.stack([total / count for total, count in tagger.loss(batch).values()]).sum()


def entities(tagger: Tagger, batch: Batch) -> int:
    """Encoder, head, decoding, selection: what a prediction does once its pieces are there."""
    candidates = tagger.head.decode(tagger.scores(batch), batch.lengths)
    chosen = tagger.head.inference
    return sum(len(select(found, chosen.overlap, chosen.threshold)) for found in candidates)


def bare(transformer: nn.Module, batch: Batch) -> None:
    with torch.inference_mode():
        transformer(input_ids=batch.pieces.ids, attention_mask=batch.pieces.mask.long())


def step(tagger: Tagger, batch: Batch) -> None:
    tagger.network.zero_grad(set_to_none=True)
    mean_loss(tagger, batch).backward()


def bare_step(transformer: nn.Module, batch: Batch) -> None:
    transformer.zero_grad(set_to_none=True)
    transformer(input_ids=batch.pieces.ids, attention_mask=batch.pieces.mask.long()).last_hidden_state.sum().backward()


def seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def rotated(rows: list[str], turn: int) -> list[str]:
    """Each in its turn is the first."""
    return rows[turn % len(rows) :] + rows[: turn % len(rows)]


def measure(
    words: list[int], batch_size: int, rounds: int, encoder: str, rows: list[str], training: bool, updates: int
) -> list[dict[str, Any]]:
    corpus = read_corpus()
    shared = build_encoder(EncoderConfig(name=encoder))
    labels = Labels.of(corpus)
    taggers: dict[str, Tagger] = {}
    for row in rows:
        taggers[row] = fresh(shared, HEADS[row], labels)
        if (other := HEADS[row].same_as) in taggers:
            taggers[row].network.load_state_dict(taggers[other].network.state_dict())
        elif not training:  # what a step takes does not depend on what was learnt
            print(f"{row} learns for {updates} updates", file=sys.stderr)
            taught(taggers[row], corpus, updates)
    return [row for n_words in words for row in timed(taggers, shared, corpus, n_words, batch_size, rounds, training)]


def timed(
    taggers: dict[str, Tagger], shared: Encoder, corpus: list[Sentence], words: int, batch_size: int, rounds: int,
    training: bool,
) -> list[dict[str, Any]]:  # fmt: skip
    rows = list(taggers)
    labels = taggers[rows[0]].labels
    sentences = about(corpus, words, 4 * batch_size)
    groups = [sentences[i : i + batch_size] for i in range(0, len(sentences), batch_size)]
    # Type tokens make rows of pieces longer, but the pieces of a batch are the same for all.
    batches = {row: [tagger.collate(group) for group in groups] for row, tagger in taggers.items()}
    times: dict[str, list[float]] = {row: [] for row in ("bare", *rows)}
    one, alone = (step, bare_step) if training else (entities, bare)
    work: dict[str, Callable[[Batch], Any]] = {row: partial(one, tagger) for row, tagger in taggers.items()}
    work["bare"] = partial(alone, shared.transformer)
    batches["bare"] = batches[rows[0]]
    for tagger in taggers.values():
        tagger.network.eval()
    n_entities: dict[str, int] = {}
    if not training:
        n_entities = {row: sum(entities(tagger, batch) for batch in batches[row]) for row, tagger in taggers.items()}
    for tagger in taggers.values():
        tagger.network.train(training)
    for turn in range(rounds + 1):
        for number in range(len(groups)):
            work["bare"](batches["bare"][number])  # whoever comes first pays for the change of shape: nobody timed
            for row in rotated(list(times), turn):
                took = seconds(partial(work[row], batches[row][number]))
                if turn:  # the first round only warms up
                    times[row].append(took)
    n_gold = sum(len(sentence.entities) for sentence in sentences)
    mean_words = statistics.mean(map(len, sentences))
    found = []
    for row in rows:
        ratios = [own / base for own, base in zip(times[row], times["bare"], strict=True)]
        low, middle, high = (round(value, 4) for value in statistics.quantiles(ratios, n=4))
        found.append({
            "head": row, "what": "training step" if training else "inference", "words": words, "batch": batch_size,
            "overhead": middle, "overhead_quartiles": [low, high],
            "seconds": statistics.median(times[row]), "bare_seconds": statistics.median(times["bare"]),
            "mean_words": mean_words, "runs": len(ratios), "entities": n_entities.get(row), "gold_entities": n_gold,
            "labels": len(labels), "encoder": shared.config.name,
            "torch": torch.__version__, "threads": torch.get_num_threads(),
        })  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, nargs="+", default=[64], help="lengths of the sentences")
    parser.add_argument("--batch", type=int, default=8, help="sentences in a batch")
    parser.add_argument("--rounds", type=int, default=15, help="rounds over four batches")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--only", default="", help="only the heads whose names begin so")
    parser.add_argument("--updates", type=int, default=UPDATES, help="of the moment's training before the rounds")
    parser.add_argument("--training", action="store_true", help="time training steps instead of predictions")
    parser.add_argument("--json", type=Path, help="file for the rows")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    chosen = [row for row in HEADS if row.startswith(asked.only)]
    if not chosen:
        parser.error(f"--only {asked.only}: expected the beginning of one of {', '.join(HEADS)}")
    rows = measure(asked.words, asked.batch, asked.rounds, asked.encoder, chosen, asked.training, asked.updates)
    print(f"{'head':12} words {'overhead':>9} {'quartiles':>15} {'seconds':>9} {'bare':>9}  entities")
    for row in rows:
        between = "-".join(f"{value:.3f}" for value in row["overhead_quartiles"])
        took = f"{row['seconds']:9.4f} {row['bare_seconds']:9.4f}"
        print(f"{row['head']:12} {row['words']:5} {row['overhead']:9.3f} {between:>15} {took}  {row['entities'] or ''}")
    means = ", ".join(f"{mean:.1f}" for mean in dict.fromkeys(row["mean_words"] for row in rows))
    what = f"{rows[0]['runs']} interleaved runs of each, sentences of {means} words on average, one thread"
    print(what, file=sys.stderr)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
