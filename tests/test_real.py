"""The packaged encoder on real sentences: a tagger trained for a moment, then what must hold for every tagger."""

from __future__ import annotations

import copy
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from spanwright import text
from spanwright.config import EncoderConfig, recipe_of
from spanwright.data import read
from spanwright.encoder import build_encoder
from spanwright.evaluate import evaluate
from spanwright.folder import load
from spanwright.heads.bopn import BOPN
from spanwright.tagger import Tagger
from spanwright.text import TextRule
from spanwright.train import train
from spanwright.types import Document, Entity, Labels, Sentence

pytestmark = pytest.mark.slow

FILLER = (
    "The committee met again on Tuesday and talked about the weather for a long while . "
    "Nobody remembered why the garden gate had been painted green , and so the matter was left open . "
)
PLANTED = "The University of Oslo is in Norway . "


def settings(root: Path, **train_settings: object) -> dict[str, dict[str, object]]:
    corpus = root / "examples" / "gum_open"
    return {
        "data": {"train": str(corpus / "train.jsonl"), "dev": str(corpus / "dev.jsonl"), "limit": 600},
        "encoder": {"name": "minilm"},
        "head": {"name": "bundle"},
        "train": {"epochs": 4, "precision": "bf16", **train_settings},
        "run": {"device": "cpu"},
    }


@pytest.fixture(scope="module")
def folder(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("real")
    report = train(recipe_of(settings(root)), place, quiet=True)
    assert report.micro.f1 > 0.3  # it has learnt something, so that what follows is not about empty answers
    return place


@pytest.fixture(scope="module")
def tagger(folder: Path) -> Tagger:
    return load(folder, threads=1)


@pytest.fixture(scope="module")
def sentences(root: Path) -> list[Sentence]:
    return list(read(root / "examples" / "gum_open" / "test.jsonl"))


def agree(found: Sequence[Iterable[Entity]], others: Sequence[Iterable[Entity]], threshold: float) -> None:
    """Scores within 1e-5, and the same entities but for those whose score is that near to the threshold."""
    for entities, more in zip(found, others, strict=True):
        ours, theirs = ({entity: entity.score for entity in each} for each in (entities, more))
        for entity in ours.keys() | theirs.keys():
            if entity in ours and entity in theirs:
                assert ours[entity] == pytest.approx(theirs[entity], abs=1e-5)
            else:
                assert ours.get(entity, theirs.get(entity)) == pytest.approx(threshold, abs=1e-5)


@pytest.mark.parametrize("output", ["spanner", "seqner"])
def test_the_batch_changes_nothing(tagger: Tagger, sentences: list[Sentence], output: str) -> None:
    tagger = tagger.with_options(output=output)
    threshold = tagger.head.inference.threshold
    alone = tagger.predict(sentences, batch_size=1)
    assert sum(map(len, alone)) > 100
    for size in (7, 32, 64):
        agree(tagger.predict(sentences, batch_size=size), alone, threshold)
    order = random.Random(0).sample(range(len(sentences)), len(sentences))
    agree(tagger.predict([sentences[i] for i in order]), [alone[i] for i in order], threshold)
    for i in range(0, 40, 8):
        longer = Sentence(sentences[i].words * 10)
        agree(tagger.predict([sentences[i], longer], batch_size=2)[:1], alone[i : i + 1], threshold)


def planted(document: Document, at: int) -> set[tuple[int, int, str]]:
    """The entities found in the planted sentence, relative to its start."""
    return {
        (m.start_char - at, m.end_char - at, m.label)
        for m in document.entities
        if at <= m.start_char < at + len(PLANTED)
    }


def test_an_entity_is_found_anywhere_in_twenty_thousand_words(tagger: Tagger) -> None:
    expected = planted(tagger(FILLER + PLANTED + FILLER), len(FILLER))
    assert expected
    n_fillers = 20_000 // len(FILLER.split())
    at = [0, 1, n_fillers // 3, n_fillers // 2, n_fillers - 2, n_fillers - 1]
    whole, starts = "", []
    for i in range(n_fillers):
        if i in at:
            starts.append(len(whole))
            whole += PLANTED
        whole += FILLER
    document = tagger(whole)
    assert len(document.words) > 20_000 and document.text == whole
    for start in starts:
        assert planted(document, start) == expected
    for mention in document.entities:
        assert whole[mention.start_char : mention.end_char] == mention.text


def test_an_entity_is_found_across_every_seam_of_one_long_sentence(tagger: Tagger) -> None:
    """No full stop in a thousand words, so `max_words` cuts."""
    words = FILLER.replace(".", "and").split()
    short = tagger(" ".join([*words, "in", "Norway", *words]))
    (label,) = {mention.label for mention in short.entities if mention.text == "Norway"}
    for before in range(150, 350, 8):
        around = [words[i % len(words)] for i in range(before)]
        found = tagger(" ".join([*around, "in", "Norway", *around, *around])).entities
        assert [mention.label for mention in found if mention.text == "Norway"] == [label]


def rss_mb(folder: Path, n_words: int) -> float:
    """The highest memory of a process that tags a text of so many words."""
    code = (
        "import spanwright\n"
        "from spanwright.journal import peak_memory\n"
        f"tagger = spanwright.load({str(folder)!r}, threads=1)\n"
        f"filler = {FILLER!r} * ({n_words} // {len(FILLER.split())})\n"
        "tagger(filler)\n"
        "print(peak_memory(tagger.device))\n"
    )
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def test_memory_does_not_grow_with_the_text(folder: Path) -> None:
    short, long = rss_mb(folder, 5_000), rss_mb(folder, 40_000)
    assert long - short < 80  # 35,000 words more: 200 kB of text, and their offsets and sentences


def test_raw_text_scores_as_the_given_words_do(tagger: Tagger, sentences: list[Sentence]) -> None:
    """With the gold's sentences, a line each; what is lost is lost by the rule for words alone."""
    given = evaluate(sentences, tagger.predict(sentences)).micro.f1
    lines = copy.copy(tagger)
    lines.rule = TextRule(words="words", sentences="lines")
    documents = list(text.rebuild(sentences, lines.rule))
    gold = [set(document.entities) for document in documents]
    found = [set(lines(document.text).entities) for document in documents]
    right = sum(len(a & b) for a, b in zip(gold, found, strict=True))
    raw = 2 * right / (sum(map(len, gold)) + sum(map(len, found)))
    assert abs(given - raw) <= 0.01


def test_both_outputs_come_from_one_training(tagger: Tagger, sentences: list[Sentence]) -> None:
    spans = evaluate(sentences, tagger.predict(sentences))
    tags = evaluate(sentences, tagger.with_options(output="seqner").predict(sentences))
    assert spans.micro.f1 > 0.3 and tags.micro.f1 > 0.3
    assert tags.micro.gold == spans.micro.gold


def test_bf16_weights_answer_nearly_the_same(folder: Path, tagger: Tagger, sentences: list[Sentence]) -> None:
    half = load(folder, precision="bf16")
    difference = evaluate(sentences, half.predict(sentences)).micro.f1
    assert abs(difference - evaluate(sentences, tagger.predict(sentences)).micro.f1) < 0.02


# ------------------------------------------------------------------------------------------ processes that are killed


def command(root: Path, output: Path, *more: str) -> list[str]:
    corpus = root / "examples" / "gum_open" / "train.jsonl"
    settings = [f"data.train={corpus}", "data.limit=160", "train.epochs=2", "train.checkpoint_minutes=0.02"]
    settings += ["data.dev=", "data.test=", "run.device=cpu"]
    call = [sys.executable, "-m", "spanwright", "train", str(root / "examples" / "demo.toml")]
    return [*call, *settings, "--output", str(output), *more]


def test_bopn_tags_a_sentence_of_512_words_in_two_gigabytes(root: Path, tmp_path: Path) -> None:
    """Untrained, but sure that most spans are out of range, as a trained one is."""
    encoder = build_encoder(EncoderConfig(name="minilm", lstm=256))
    head = BOPN(BOPN.Config(), Labels(list("ABCDE")), encoder.width, encoder.input_width)
    with torch.no_grad():
        head.biaffine[0, -1, -1] += 30
    Tagger(encoder, head).save(tmp_path / "model")
    peaks = []
    for options in ([], ["--set", "max_width=32"]):
        script, model = str(root / "benchmarks" / "memory.py"), str(tmp_path / "model")
        command = [sys.executable, script, model, "--words", "512", *options]
        row = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert row["words"] == 512
        peaks.append(row["peak_mb"])
    whole, banded = peaks
    assert banded < whole < 2048


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_process_stopped_anywhere_resumes_to_the_same_weights(root: Path, tmp_path: Path, number: int) -> None:
    environment = {**os.environ, "SPANWRIGHT_DATA": ""}
    subprocess.run(command(root, tmp_path / "whole"), check=True, capture_output=True, env=environment)
    process = subprocess.Popen(command(root, tmp_path / "cut"), stderr=subprocess.PIPE, env=environment)
    state = tmp_path / "cut" / "checkpoint.safetensors"
    while not state.exists() and process.poll() is None:
        time.sleep(0.05)
    time.sleep(1.0)
    process.send_signal(number)
    process.communicate()
    assert process.returncode != 0, "it ended before it was stopped"
    with safe_open(state, "pt") as file:
        assert json.loads(file.metadata()["state"])["progress"]["update"] > 0
    subprocess.run(command(root, tmp_path / "cut", "--resume"), check=True, capture_output=True, env=environment)
    first, second = (tmp_path / name / "model.safetensors" for name in ("whole", "cut"))
    assert first.read_bytes() == second.read_bytes()
