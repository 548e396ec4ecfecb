"""The papers' analyses as functions of a model and gold sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from spanwright.evaluate import Predicted, Score, entities_in, evaluate
from spanwright.head import Head
from spanwright.heads.bopn import BOPN, Decode
from spanwright.heads.bundle import Bundle
from spanwright.nn.offsets import CENTRE, OUT, OffsetLabels
from spanwright.tagger import Tagger
from spanwright.types import Sentence, SpanwrightError

DECODINGS: tuple[Decode, ...] = ("all", "rules", "centre")


def offset_table(tagger: Tagger, gold: Iterable[Sentence]) -> dict[str, Score]:
    """BOPN's Table 5: P/R/F1 of every offset label, counted over the cells i <= j of all types, then of the entities
    that the three ways of decoding answer with ("all", "rules", "centre"). Cells as wide as were taught count, also
    where the model answers with narrower entities alone."""
    sentences, other = list(gold), type(answering(tagger)).__name__
    whole = tagger.with_options(max_width=0) if isinstance(answering(tagger), BOPN) else tagger
    head = answering(whole)
    if not isinstance(head, BOPN):
        raise SpanwrightError(
            f"a table of offset labels needs a model whose head is BOPN; this one answers with {other}"
        )
    wanted, predicted, right = Counter[int](), Counter[int](), Counter[int]()
    for members, scores, lengths in whole.scored(sentences):
        found = [set[tuple[int, ...]]() for _ in lengths]
        for row, *cell in zip(*(part.tolist() for part in head.cells(scores["scores"])), strict=True):
            found[row].add(tuple(cell))
        for i, cells in zip(members, found, strict=True):
            taught = set(map(tuple, head.targets(sentences[i])["offsets"].tolist()))
            for counts, which in ((wanted, taught), (predicted, cells), (right, taught & cells)):
                counts.update(label for *_, label in which)
    table = {
        shown_offset(head.offsets, label): Score.of(right[label], predicted[label], wanted[label])
        for label in in_papers_order(head.offsets)
    }
    for decode in DECODINGS:
        table[decode] = evaluate(sentences, tagger.with_options(decode=decode).predict(sentences)).micro
    return table


def ranking(gold: Iterable[Sentence], predicted: Iterable[Predicted]) -> float | None:
    """How often a right answer has a higher score than a wrong one, over all pairs of them; ties count half.

    0.5 is chance, 1 a score that tells right from wrong without fail. None: there are not both kinds.
    """
    scores: dict[bool, list[float]] = {True: [], False: []}
    sentences, answers = list(gold), list(predicted)
    if len(sentences) != len(answers):
        raise SpanwrightError(f"{len(sentences)} gold sentences and {len(answers)} predicted ones; expected as many")
    for sentence, found in zip(sentences, answers, strict=True):
        for entity in entities_in(sentence, found):
            scores[entity in sentence.entities].append(entity.score)
    wrong = np.sort(scores[False])
    if not scores[True] or not len(wrong):
        return None
    below, with_ties = (np.searchsorted(wrong, scores[True], side) for side in ("left", "right"))
    return float((below + with_ties).mean() / 2 / len(wrong))


def answering(tagger: Tagger) -> Head:
    """The head that answers: of a bundle, its output."""
    return tagger.head.output if isinstance(tagger.head, Bundle) else tagger.head


def in_papers_order(labels: OffsetLabels) -> list[int]:
    """Starts from -S to S, ends from -S to S, the centre."""
    kept = [label for label, kind in enumerate(labels.kinds) if kind != OUT]
    return sorted(kept, key=lambda label: (labels.kinds[label] == CENTRE, labels.kinds[label], labels.offsets[label]))


def shown_offset(labels: OffsetLabels, label: int) -> str:
    """As the paper writes it: -2S, 1E, 0."""
    kind, _, offset = labels.names[label].partition(":")
    return "0" if labels.kinds[label] == CENTRE else f"{offset}{kind.upper()}"
