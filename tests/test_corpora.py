"""Corpora by name and by path, a part set aside, neighbours of a sentence; the bundled corpora."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO, StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanwright.data import find_corpus, read, split_off, splits, with_context, write
from spanwright.types import Sentence, SpanwrightError


@pytest.fixture
def corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """$SPANWRIGHT_DATA with two corpora; the current folder is another one."""
    for name in ("data/genia/train.jsonl", "data/genia/dev.jsonl", "data/wnut/train.conll", "data/wnut/valid.conll"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("SPANWRIGHT_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_a_corpus_by_name(corpora: Path) -> None:
    assert find_corpus("genia") == corpora / "genia" / "train.jsonl"
    assert find_corpus("genia", "dev") == corpora / "genia" / "dev.jsonl"
    assert find_corpus("wnut", "dev") == corpora / "wnut" / "valid.conll"
    assert splits("genia") == {name: corpora / "genia" / f"{name}.jsonl" for name in ("train", "dev")}


def test_a_corpus_by_path(corpora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_corpus(corpora / "wnut") == corpora / "wnut" / "train.conll"
    assert find_corpus(corpora / "genia" / "dev.jsonl", "test") == corpora / "genia" / "dev.jsonl"
    Path("mine.conll").touch()
    assert find_corpus("mine.conll") == Path("mine.conll")
    monkeypatch.delenv("SPANWRIGHT_DATA")
    Path("genia").mkdir()
    Path("genia/train.bio").touch()
    assert find_corpus("genia") == Path("genia/train.bio")
    assert splits("nowhere") == {}


def test_a_corpus_that_is_not_there(corpora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpanwrightError, match=r"no corpus 'gania'.*holds genia, wnut. Did you mean 'genia'.*By path: "):
        find_corpus("gania")
    with pytest.raises(SpanwrightError, match=r"has no test split; expected test.jsonl.* holds dev.jsonl, train.jsonl"):
        find_corpus("genia", "test")
    monkeypatch.delenv("SPANWRIGHT_DATA")
    with pytest.raises(SpanwrightError, match=r"SPANWRIGHT_DATA is not set"):
        find_corpus("genia")
    monkeypatch.setenv("SPANWRIGHT_DATA", str(corpora / "no"))
    with pytest.raises(SpanwrightError, match=r"which is no folder"):
        find_corpus("genia")


def test_two_files_for_one_split_are_not_chosen_from(corpora: Path) -> None:
    (corpora / "genia" / "train.conll").touch()
    with pytest.raises(SpanwrightError, match=r"has train.conll and train.jsonl for the train split"):
        find_corpus("genia")
    assert find_corpus("genia", "dev").name == "dev.jsonl"


def numbered(*docs: str) -> list[Sentence]:
    return [Sentence((f"w{i}",), doc=doc) for i, doc in enumerate(docs)]


def test_whole_documents_are_set_aside() -> None:
    sentences = numbered(*(f"d{i // 5}" for i in range(100)))
    rest, aside = split_off(sentences, 0.1, seed=1)
    assert len(aside) == 10
    assert not {s.doc for s in rest} & {s.doc for s in aside}
    assert sorted(rest + aside, key=sentences.index) == sentences
    assert aside == sorted(aside, key=sentences.index) and rest == sorted(rest, key=sentences.index)
    assert (rest, aside) == split_off(sentences, 0.1, seed=1)
    assert len({str(split_off(sentences, 0.1, seed=seed)[1]) for seed in range(5)}) > 1


@pytest.mark.parametrize("docs", [["d"] * 40, [""] * 40, ["a"] * 20 + ["b"] * 20, ["a"] * 2])
def test_sentences_are_set_aside_where_documents_do_not_fit(docs: list[str]) -> None:
    rest, aside = split_off(numbered(*docs), 0.1, seed=3)
    assert len(aside) == max(1, len(docs) // 10)
    assert len(rest) == len(docs) - len(aside)


def test_too_little_to_set_aside() -> None:
    with pytest.raises(SpanwrightError, match="expected two or more"):
        split_off(numbered("d"), 0.5, seed=1)
    with pytest.raises(SpanwrightError, match="between 0 and 1"):
        split_off(numbered("d", "d"), 1.0, seed=1)


@given(
    st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=2, max_size=30), st.floats(0.01, 0.99), st.integers(0, 9)
)
def test_setting_aside_loses_nothing(docs: list[str], fraction: float, seed: int) -> None:
    sentences = numbered(*docs)
    rest, aside = split_off(sentences, fraction, seed)
    assert rest and aside
    assert sorted(rest + aside, key=sentences.index) == sentences


def test_neighbours_of_the_same_document() -> None:
    sentences = numbered("a", "a", "a", "a", "b", "", "", "b", "b")
    got = [(s.left, s.right) for s in with_context(sentences, 2)]
    assert got == [
        ((), ("w1", "w2")),
        (("w0",), ("w2", "w3")),
        (("w0", "w1"), ("w3",)),
        (("w1", "w2"), ()),
        ((), ()),
        ((), ()),
        ((), ()),
        ((), ("w8",)),
        (("w7",), ()),
    ]
    assert list(with_context(sentences, 0)) == sentences


def test_neighbours_are_read_no_further_than_needed() -> None:
    taken: list[Sentence] = []

    def endless() -> Iterator[Sentence]:
        while True:
            taken.append(Sentence(("w",), doc="d"))
            yield taken[-1]

    stream = with_context(endless(), 3)
    for _ in range(100):
        next(stream)
    assert len(taken) <= 104


# ------------------------------------------------------------------------------------------------ bundled

COUNTS = {  # sentences, words, entities, labels, sentences with nested ones
    "genia": (20, 580, 77, 4, 4),
    "gum": (20, 482, 166, 7, 17),
    "gum_named": (20, 482, 48, 5, 4),
    "wnut17": (20, 346, 27, 6, 0),
    "bc5cdr": (20, 504, 55, 2, 0),
    "ncbi_disease": (20, 521, 15, 1, 0),
    "uner_zh": (20, 990, 45, 3, 0),
}


def nested(sentence: Sentence) -> bool:
    return any(a != b and a.contains(b) for a in sentence.entities for b in sentence.entities)


@pytest.mark.parametrize("name", COUNTS)
def test_the_sentences_of_real_corpora(data: Path, name: str) -> None:
    reading = read(data / f"{name}.jsonl")
    sentences = list(reading)
    labels = {entity.label for sentence in sentences for entity in sentence.entities}
    n_entities = sum(len(sentence.entities) for sentence in sentences)
    counts = len(sentences), sum(map(len, sentences)), n_entities, len(labels), sum(map(nested, sentences))
    assert counts == COUNTS[name]
    assert not reading.notes
    file = StringIO()
    write(file, sentences)
    assert list(read(BytesIO(file.getvalue().encode()))) == sentences


def test_the_bundled_corpus(root: Path) -> None:
    folder = root / "examples" / "gum_open"
    corpus = {split: list(read(find_corpus(folder, split))) for split in ("train", "dev", "test")}
    sizes = {split: (len(s), sum(len(x.entities) for x in s), sum(map(nested, s))) for split, s in corpus.items()}
    assert sizes == {"train": (1814, 3491, 393), "dev": (198, 312, 31), "test": (229, 457, 46)}
    docs = {split: {sentence.doc for sentence in sentences} for split, sentences in corpus.items()}
    assert not docs["train"] & docs["dev"] and not docs["train"] & docs["test"] and not docs["dev"] & docs["test"]
    assert {doc.split("_")[1] for names in docs.values() for doc in names} == {"bio", "news", "voyage"}
    labels = {split: {e.label for s in sentences for e in s.entities} for split, sentences in corpus.items()}
    assert len(labels["train"]) == 10 and labels["dev"] | labels["test"] <= labels["train"]
    assert all(sentence.spaces for sentences in corpus.values() for sentence in sentences)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_000_000
    for word in ("CC BY-SA", "CC BY 4.0", "CC BY 2.5", "Zeldes"):
        assert word in (folder / "README.md").read_text(encoding="utf-8")


def test_reading_needs_no_torch(data: Path) -> None:
    code = (
        "import sys; from spanwright.data import read; "
        f"print(len(list(read({str(data / 'genia.jsonl')!r}))), 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["20", "False", "False"]


def test_packed_splits_are_found(tmp_path: Path) -> None:
    for name in ("train.jsonl", "dev.jsonl.gz", "test.conll.gz"):
        (tmp_path / name).write_bytes(b"")
    assert {split: path.name for split, path in splits(tmp_path).items()} == {
        "train": "train.jsonl", "dev": "dev.jsonl.gz", "test": "test.conll.gz",
    }  # fmt: skip
