"""The command line as its user meets it: what is printed where, and the exit code."""

from __future__ import annotations

import gzip
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

import spanwright
from spanwright.cli.feed import Feed, documents_in
from spanwright.cli.main import main
from spanwright.data import write
from spanwright.folder import load
from spanwright.text import TextRule, rebuild
from spanwright.types import Document, SpanwrightError

RECIPE = """
[data]
train = "{train}"
[encoder]
name = "tiny"
[head]
name = "bundle"
[train]
epochs = 1
min_updates = 1
"""


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


Call = Callable[..., Answer]


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs a command in this process, with `stdin` as standard input."""

    def run(*arguments: str, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        captured = capfd.readouterr()
        code = ended.value.code
        return Answer(code if isinstance(code, int) else 0, captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that has learnt next to nothing, and is asked with a low threshold for many answers."""
    from spanwright.config import load_recipe
    from spanwright.train import train

    folder = tmp_path_factory.mktemp("cli")
    corpus = Path(__file__).parent / "data" / "gum.jsonl"
    (folder / "recipe.toml").write_text(RECIPE.format(train=corpus.as_posix()), encoding="utf-8")
    train(load_recipe(folder / "recipe.toml"), folder / "model", quiet=True)
    return folder / "model"


# ------------------------------------------------------------------------------------------------ the call itself


def test_help_is_quick_and_needs_no_torch() -> None:
    code = (
        "import sys; from spanwright.cli.main import main\n"
        "try: main(['--help'])\n"
        "finally: print('torch' in sys.modules, 'transformers' in sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    assert ended.returncode == 0 and ended.stderr == "False False\n"
    for command in ("train", "evaluate", "predict", "heads", "encoders", "convert-encoder"):
        assert command in ended.stdout


@pytest.mark.parametrize("command", ["train", "evaluate", "predict", "heads", "encoders", "convert-encoder"])
def test_each_command_has_help_with_an_example(call: Call, command: str) -> None:
    answer = call(command, "--help")
    assert answer.code == 0
    assert f"Example: spanwright {command}" in answer.out


def test_version_and_module() -> None:
    ended = subprocess.run([sys.executable, "-m", "spanwright", "--version"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, f"spanwright {spanwright.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["trian"], "train"),
        (["train"], "RECIPE"),
        (["train", "recipe.toml"], "--output"),
        (["evaluate", "model"], "DATA"),
        (["predict", "m", "--text", "a", "--format", "xml"], "xml"),
        (["predict", "m", "--text", "a", "--threads", "0"], "--threads"),
        (["heads", "--nonsense"], "--nonsense"),
    ],
)
def test_a_wrong_call_is_told_with_exit_code_2(call: Call, arguments: list[str], told: str) -> None:
    answer = call(*arguments)
    assert answer.code == 2 and answer.out == ""
    assert told in answer.err and "Traceback" not in answer.err


# ------------------------------------------------------------------------------------------------------------ train


def test_train_writes_a_model_that_evaluate_and_predict_take(call: Call, tmp_path: Path, data: Path) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE.format(train="nowhere.jsonl"), encoding="utf-8")
    output = str(tmp_path / "model")
    corpus = data / "genia.jsonl"
    answer = call("train", str(tmp_path / "recipe.toml"), f"data.train={corpus}", "run.seed=2", "--output", output)
    assert answer.code == 0 and answer.out == ""
    assert f"spanwright predict {output}" in answer.err
    assert "seed = 2" in (tmp_path / "model" / "recipe.toml").read_text(encoding="utf-8")
    assert call("evaluate", output, str(corpus)).code == 0
    assert call("predict", output, "--text", "IL-2").code == 0
    again = call("train", str(tmp_path / "recipe.toml"), f"data.train={corpus}", "run.seed=2", "--output", output)
    assert again.code == 2 and "--overwrite" in again.err


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("train.epoch=3", "Did you mean train.epochs?"),
        ("head.weigths.seqner=1", "Did you mean head.weights?"),
        ("head.name=spaner", "Did you mean 'spanner'?"),
        ("train.epochs=many", "a whole number"),
        ("epochs=3", "table.key=value"),
        ("data.train=absent.jsonl", "absent.jsonl"),
    ],
)
def test_a_slip_in_a_setting_is_told_before_anything_is_trained(
    call: Call, tmp_path: Path, data: Path, setting: str, told: str
) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE.format(train=(data / "gum.jsonl").as_posix()), encoding="utf-8")
    answer = call("train", str(tmp_path / "recipe.toml"), setting, "--output", str(tmp_path / "model"))
    assert answer.code == 2 and told in answer.err and "Traceback" not in answer.err
    assert not (tmp_path / "model" / "model.safetensors").exists()


def test_bad_data_ends_with_exit_code_2_and_the_lines(call: Call, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"tokens": ["a"], "entities": []}\n{"tokens": "a b"}\nnonsense\n', encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(RECIPE.format(train=bad.as_posix()), encoding="utf-8")
    answer = call("train", str(tmp_path / "recipe.toml"), "--output", str(tmp_path / "model"))
    assert answer.code == 2
    assert f"{bad}:2" in answer.err and f"{bad}:3" in answer.err


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (SpanwrightError("the file is empty"), 2, "error: the file is empty"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (MemoryError(), 1, "train.batch_tokens"),
        (RuntimeError("tensors disagree"), 1, "RuntimeError: tensors disagree"),
        (KeyboardInterrupt(), 1, "--resume"),
    ],
)
def test_errors_are_told_without_a_traceback_unless_asked(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, told: str
) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE.format(train="x"), encoding="utf-8")
    monkeypatch.setattr("spanwright.train.train", failing(error))
    arguments = ["train", str(tmp_path / "recipe.toml"), "--output", str(tmp_path / "model")]
    answer = call(*arguments)
    assert answer.code == code and told in answer.err and "Traceback" not in answer.err
    if not isinstance(error, KeyboardInterrupt):
        for debugged in (["--debug", *arguments], [*arguments, "--debug"]):
            answer = call(*debugged)
            assert answer.code == code and "Traceback" in answer.err and told in answer.err


def test_an_interrupted_training_says_how_to_go_on(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from spanwright.train import Interrupted

    (tmp_path / "a recipe.toml").write_text(RECIPE.format(train="x"), encoding="utf-8")
    arguments = ["train", str(tmp_path / "a recipe.toml"), "run.seed=3", "-o", "model", "--overwrite"]
    monkeypatch.setattr("spanwright.train.train", failing(KeyboardInterrupt()))
    answer = call(*arguments)
    assert f"spanwright train '{tmp_path}/a recipe.toml' run.seed=3 -o model --resume" in answer.err
    assert "--overwrite" not in answer.err  # it would throw away what --resume needs
    monkeypatch.setattr("spanwright.train.train", failing(Interrupted("stopped at update 3, use --resume")))
    answer = call(*arguments)
    assert answer.code == 1 and answer.err == "stopped at update 3, use --resume\n"


# --------------------------------------------------------------------------------------------------------- evaluate


def test_evaluate_prints_a_table_and_writes_json_and_predictions(
    call: Call, model: Path, data: Path, tmp_path: Path
) -> None:
    corpus, scores, rows = data / "gum.jsonl", tmp_path / "scores.json", tmp_path / "rows.jsonl.gz"
    options = ["--set", "threshold=0.05", "--json", str(scores), "--predictions", str(rows)]
    answer = call("evaluate", str(model), str(corpus), *options)
    assert answer.code == 0
    assert "micro" in answer.out and "depth in gold" in answer.out
    micro = json.loads(scores.read_text(encoding="utf-8"))["scores"]["micro"]
    lines = [json.loads(line) for line in gzip.decompress(rows.read_bytes()).decode().splitlines()]
    given = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
    assert [line["tokens"] for line in lines] == [line["tokens"] for line in given]
    assert sum(len(line["entities"]) for line in lines) == micro["gold"] > 0
    assert sum(len(line["predicted"]) for line in lines) == micro["predicted"] > 0
    before = rows.read_bytes()
    call("evaluate", str(model), str(corpus), *options)
    assert rows.read_bytes() == before


def test_the_output_of_a_bundle_is_chosen_when_it_is_used(call: Call, model: Path, data: Path, tmp_path: Path) -> None:
    found = {}
    for output in ("seqner", "spanner"):
        rows = tmp_path / f"{output}.jsonl"
        options = ["--set", f"output={output}", "--set", "threshold=0.0", "--predictions", str(rows)]
        assert call("evaluate", str(model), str(data / "gum.jsonl"), *options).code == 0
        found[output] = rows.read_text(encoding="utf-8")
    assert found["seqner"] != found["spanner"]


def test_settings_of_the_head_that_answers_are_a_bundles_too(call: Call, model: Path, data: Path) -> None:
    test, best = str(data / "gum.jsonl"), ["--set", "types=best", "--set", "threshold=0.0"]
    assert call("evaluate", str(model), test, *best, "--set", "output=spanner").code == 0
    other = call("evaluate", str(model), test, *best, "--set", "output=seqner")
    assert other.code == 2 and "--set types is not a setting" in other.err
    wrong = call("evaluate", str(model), test, "--set", "output=spanner", "--set", "types=worst")
    assert wrong.code == 2 and "--set types" in wrong.err and '"best"' in wrong.err


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["--set", "thresold=0.4"], "Did you mean threshold?"),
        (["--set", "threshold=high"], "a number"),
        (["--set", "threshold"], "key=value"),
        (["--set", "output=bopn"], "seqner, spanner"),
        (["--device", "gpu"], "gpu"),
        (["--split", "dev"], "is one file. Leave it out"),
        (["--json", "absent/scores.json"], "no folder"),
    ],
)
def test_evaluate_refuses(call: Call, model: Path, data: Path, settings: list[str], told: str) -> None:
    answer = call("evaluate", str(model), str(data / "gum.jsonl"), *settings)
    assert answer.code == 2 and told in answer.err and answer.out == ""


def test_evaluate_reads_columns_as_training_did(call: Call, model: Path, tmp_path: Path) -> None:
    """A CoNLL file whose tags stand in the first column: told by the recipe beside the weights, or by an option."""
    own = tmp_path / "model"
    shutil.copytree(model, own)
    file = tmp_path / "test.conll"
    file.write_text("B-person\tAda\nO\tslept\n\n", encoding="utf-8")
    options = ["--json", str(tmp_path / "scores.json")]

    def gold() -> int:
        count = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))["scores"]["micro"]["gold"]
        assert isinstance(count, int)
        return count

    assert call("evaluate", str(own), str(file), "--word-column", "1", "--tag-column", "0", *options).code == 0
    assert gold() == 1
    recipe = own / "recipe.toml"
    text = recipe.read_text(encoding="utf-8").replace("tag_column = -1", "tag_column = 0")
    recipe.write_text(text.replace("word_column = 0", "word_column = 1"), encoding="utf-8")
    (tmp_path / "scores.json").unlink()
    assert call("evaluate", str(own), str(file), *options).code == 0
    assert gold() == 1


def test_evaluate_warns_of_labels_that_the_model_does_not_know(call: Call, model: Path, data: Path) -> None:
    answer = call("evaluate", str(model), str(data / "genia.jsonl"))
    assert answer.code == 0
    assert "protein" in answer.err and "does not know" in answer.err


def test_raw_scores_the_text_itself(call: Call, model: Path, data: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    options = ["--raw", "--set", "threshold=0.05", "--predictions", str(rows)]
    answer = call("evaluate", str(model), str(data / "gum.jsonl"), *options)
    assert answer.code == 0 and "micro" in answer.out
    lines = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    gold = list(spanwright.read(data / "gum.jsonl"))
    documents = list(rebuild(gold, TextRule()))
    assert [line["text"] for line in lines] == [document.text for document in documents]
    assert sum(len(line["entities"]) for line in lines) == sum(len(sentence.entities) for sentence in gold)
    refused = call("evaluate", str(model), str(data / "genia.jsonl"), "--raw")
    assert refused.code == 2 and "space_after" in refused.err


def test_raw_is_1_for_an_oracle_and_0_for_one_that_is_a_character_off(data: Path) -> None:
    from spanwright.cli.measure import measured_in_text

    gold = list(spanwright.read(data / "gum.jsonl"))
    documents = {document.text: document for document in rebuild(gold, TextRule())}

    class Oracle:
        rule = TextRule()

        def __init__(self, shift: int):
            self.shift = shift

        def stream(self, texts: Any) -> Any:
            for text in texts:
                document: Document = documents[text]
                moved = (replace(m, end_char=m.end_char + self.shift) for m in document.entities)
                yield replace(document, entities=tuple(moved))

    report, rows = measured_in_text(Oracle(0), gold)  # type: ignore[arg-type]
    assert report.micro.f1 == 1.0 and report.micro.gold == sum(len(sentence.entities) for sentence in gold)
    assert all(len(row["predicted"]) == len(row["entities"]) for row in rows)
    assert measured_in_text(Oracle(1), gold)[0].micro.true_positives == 0  # type: ignore[arg-type]


def test_raw_keeps_gold_of_invisible_characters(call: Call, model: Path, tmp_path: Path) -> None:
    """The rule sees no word there: the entity cannot be found, and is missed, not an error."""
    row = {"tokens": ["Ada", "\u200b"], "space_after": [True, False]}
    gold = [{"start": 0, "end": 1, "label": "person"}, {"start": 1, "end": 2, "label": "person"}]
    (tmp_path / "gold.jsonl").write_text(json.dumps({**row, "entities": gold}) + "\n", encoding="utf-8")
    answer = call("evaluate", str(model), str(tmp_path / "gold.jsonl"), "--raw", "--json", str(tmp_path / "out.json"))
    assert answer.code == 0, answer.err
    assert json.loads((tmp_path / "out.json").read_text())["scores"]["micro"]["gold"] == 2


def test_weights_of_an_unfinished_training_are_called_so(call: Call, model: Path, data: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "report.json").rename(tmp_path / "model" / "checkpoint.safetensors")
    assert "is an unfinished training" in call("predict", str(tmp_path / "model"), "--text", "Ada").err
    assert "unfinished" not in call("predict", str(model), "--text", "Ada").err


# ---------------------------------------------------------------------------------------------------------- predict

TEXT = "Ada Lovelace met the mayor of Bergen 🎉.\r\nShe left."


def texts(answer: Answer) -> list[str]:
    rows = [json.loads(line) for line in answer.out.splitlines()]
    for row in rows:
        for entity in row["entities"]:
            assert row["text"][entity["start_char"] : entity["end_char"]] == entity["text"]
    return [row["text"] for row in rows]


def test_predict_takes_text_files_and_standard_input(call: Call, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    loose = ["--set", "threshold=0.0"]
    typed = call("predict", str(model), "--text", TEXT, *loose)
    assert typed.code == 0 and texts(typed) == [TEXT] and '"entities": [{' in typed.out
    assert call("predict", str(model), str(file), *loose).out == typed.out
    assert call("predict", str(model), "-", *loose, stdin=TEXT.encode()).out == typed.out
    assert call("predict", str(model), *loose, stdin=TEXT.encode()).out == typed.out
    several = call("predict", str(model), "--text", "One.", "--text", "Two.")
    assert texts(several) == ["One.", "Two."]


def test_predict_takes_lines_and_rows(call: Call, model: Path, tmp_path: Path) -> None:
    answer = call("predict", str(model), "--lines", stdin=b"One.\r\n\nThree.")
    assert texts(answer) == ["One.", "", "Three."]  # an answer a line, also to an empty one
    rows = [
        {"id": "a", "text": "One."},
        {"id": "b", "tokens": ["Two", "."], "space_after": [False, False], "entities": "not looked at"},
        {"tokens": ["Three", "."]},
    ]
    content = "\n".join(json.dumps(row) for row in rows) + "\n\n"
    file = tmp_path / "rows.jsonl"
    file.write_text(content, encoding="utf-8")
    answer = call("predict", str(model), str(file))
    assert texts(answer) == ["One.", "Two.", "Three ."]
    assert [json.loads(line).get("id") for line in answer.out.splitlines()] == ["a", "b", None]
    assert call("predict", str(model), "--jsonl", stdin=content.encode()).out == answer.out


def test_predict_takes_the_words_of_a_conll_file(call: Call, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "words.conll"
    file.write_text("Ada\tB-person\nslept\tO\n\nBergen\tO\n\n", encoding="utf-8")
    assert texts(call("predict", str(model), str(file))) == ["Ada slept", "Bergen"]


def test_what_conll_cannot_hold_is_counted(call: Call, model: Path) -> None:
    options = ["--text", TEXT, "--set", "threshold=0.01"]
    told = call("predict", str(model), "--format", "conll", *options)
    found = json.loads(call("predict", str(model), *options).out)["entities"]
    written = sum("\tB-" in line for line in told.out.splitlines())
    assert written < len(found)
    assert f"entities that CoNLL cannot hold beside others: {len(found) - written};" in told.err
    assert "cannot hold" not in call("predict", str(model), "--format", "jsonl", *options).err


def test_packed_files_are_read(call: Call, model: Path, data: Path, tmp_path: Path) -> None:
    rows, packed = tmp_path / "rows.jsonl.gz", tmp_path / "part.jsonl.gz"
    rows.write_bytes(gzip.compress((data / "gum.jsonl").read_bytes()))
    for command in ("evaluate", "predict"):
        answer = call(command, str(model), str(rows))
        assert answer.code == 0 and answer.out == call(command, str(model), str(data / "gum.jsonl")).out
    piped = subprocess.run(
        [sys.executable, "-m", "spanwright", "predict", str(model), "--jsonl"], input=rows.read_bytes(),
        capture_output=True, check=True,
    )  # fmt: skip
    assert piped.stdout.decode() == answer.out
    packed.write_bytes(rows.read_bytes()[:200])
    for command in ("evaluate", "predict"):
        cut = call(command, str(model), str(packed))
        assert cut.code == 2 and "Expected a whole gzip file" in cut.err and "Traceback" not in cut.err


@pytest.mark.parametrize("suffix", ["jsonl", "conll"])
def test_predict_reads_the_same_context_as_evaluate(call: Call, tmp_path: Path, data: Path, suffix: str) -> None:
    """Rows of one document are one another's neighbours, for an encoder that reads them."""
    sentences = [replace(one, doc=f"document {i // 7}") for i, one in enumerate(spanwright.read(data / "gum.jsonl"))]
    source = tmp_path / f"rows.{suffix}"
    outermost = [replace(one, entities=frozenset()) for one in sentences]
    write(source, outermost if suffix == "conll" else sentences)
    recipe = tmp_path / "recipe.toml"
    content = RECIPE.format(train=(data / "gum.jsonl").as_posix())
    recipe.write_text(content.replace('name = "tiny"', 'name = "tiny"\ncontext = 1'), encoding="utf-8")
    model = str(tmp_path / "model")
    assert call("train", str(recipe), "--output", model).code == 0
    low = ["--set", "threshold=0.05"]
    given = tmp_path / "given.jsonl"
    assert call("evaluate", model, str(source), *low, "--predictions", str(given)).code == 0
    answer = call("predict", model, str(source), *low)
    assert answer.code == 0
    found = [json.loads(line)["entities"] for line in answer.out.splitlines()]
    wanted = [json.loads(line)["predicted"] for line in given.read_text(encoding="utf-8").splitlines()]
    assert len(found) == len(wanted) == len(sentences) and any(wanted)
    for row, other in zip(found, wanted, strict=True):
        key = {(one["start"], one["end"], one["label"]): one["score"] for one in row}
        assert key == pytest.approx({(one["start"], one["end"], one["label"]): one["score"] for one in other}, abs=1e-5)


def test_the_rows_before_a_bad_one_are_answered_in_context(tmp_path: Path) -> None:
    """Neighbours are waited for, and yet nothing that was good is lost."""
    rows = [json.dumps({"tokens": [word], "doc": "d"}) for word in "abcd"]
    source = tmp_path / "rows.jsonl"
    source.write_text("\n".join([*rows, "{"]), encoding="utf-8")
    feed, found = documents_in(str(source), Feed(TextRule, context=2)), []  # type: ignore[arg-type]
    with pytest.raises(SpanwrightError, match=r"rows\.jsonl:5"):
        for document in feed:
            found.append((document.left, document.text, document.right))
    assert found == [
        ((), "a", ("b", "c")),
        (("a",), "b", ("c", "d")),
        (("a", "b"), "c", ("d",)),
        (("b", "c"), "d", ()),
    ]


def test_predict_passes_over_comments_as_training_did(call: Call, tmp_path: Path, data: Path) -> None:
    file = tmp_path / "words.conll"
    file.write_text("# a comment of mine\nAda\tB-person\nslept\tO\n", encoding="utf-8")
    recipe = tmp_path / "recipe.toml"
    content = RECIPE.format(train=file.as_posix()).replace("[encoder]", 'comments = true\ndev = "{0}"\n[encoder]')
    recipe.write_text(content.format(file.as_posix()), encoding="utf-8")
    model = str(tmp_path / "model")
    assert call("train", str(recipe), "--output", model).code == 0
    assert texts(call("predict", model, str(file))) == ["Ada slept"]


def test_predict_writes_every_format(call: Call, model: Path) -> None:
    loose = ["--set", "threshold=0.0", "--text", "Ada left Bergen.", "--text", "Bo <b>"]
    tree = call("predict", str(model), "--format", "tree", *loose)
    assert tree.out.startswith("Ada left Bergen.\n") and "\n\nBo <b>\n" in tree.out and "─ " in tree.out
    conll = call("predict", str(model), "--format", "conll", *loose)
    words = [line.split("\t")[0] for line in conll.out.splitlines()]
    assert words[:5] == ["Ada", "left", "Bergen", ".", ""] and words[5] == "Bo"
    page = call("predict", str(model), "--format", "html", *loose)
    assert page.out.startswith("<!DOCTYPE html>") and page.out.count("<html") == 1 and "<mark" in page.out
    assert {answer.code for answer in (tree, conll, page)} == {0}


@pytest.mark.parametrize(
    ("arguments", "stdin", "told"),
    [
        (["absent.txt"], b"", "no file absent.txt"),
        (["--text", "a", "-"], b"", "one or the other"),
        (["--lines", "--jsonl"], b"", "exclude each other"),
        (["--text", "\udcff"], b"", "not UTF-8"),
        (["--lines"], b"good\n\xff\n", "standard input:2: byte 1 (0xff) is not UTF-8"),
        (["-"], b"good\n\xff\n", "standard input: byte 6 (0xff) is not UTF-8"),
        (["--jsonl"], b'{"text": "a"}\n{"txet": "a"}\n', "standard input:2: neither 'tokens' nor 'text' is there"),
        (["--jsonl"], b"[1]\n", "standard input:1"),
        (["--jsonl"], b'{"tokens": ["a", ""]}\n', "standard input:1"),
    ],
)
def test_predict_refuses(call: Call, model: Path, arguments: list[str], stdin: bytes, told: str) -> None:
    answer = call("predict", str(model), *arguments, stdin=stdin)
    assert answer.code == 2 and told in answer.err and "Traceback" not in answer.err


def test_lines_are_read_as_they_are_needed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An input without end is answered from its beginning."""
    endless = Lines(b"One.\n" for _ in count())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(endless), encoding="utf-8"))
    tagger = load(model)
    documents = tagger.stream(documents_in("-", Feed(tagger.read, lines=True)))
    assert [document.text for document in islice(documents, 600)] == ["One."] * 600


class Lines(io.RawIOBase):
    """A stream of lines made when they are asked for."""

    def __init__(self, lines: Iterator[bytes]):
        self.lines = lines

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        line = next(self.lines)
        buffer[: len(line)] = line
        return len(line)


def test_bad_lines_are_listed_and_the_others_answered(call: Call, model: Path, tmp_path: Path) -> None:
    lines = b"".join(b"\xff\n" if i % 2 else b"One.\n" for i in range(60))
    answer = call("predict", str(model), "--lines", stdin=lines)
    assert answer.code == 2 and texts(answer) == ["One."] * 30
    assert "30 bad records in standard input" in answer.err and "standard input:40: byte 1" in answer.err
    assert answer.err.count("not UTF-8") == 20 and "and 10 more" in answer.err
    skipped = call("predict", str(model), "--lines", "--skip-bad", stdin=lines)
    assert (
        skipped.code == 0 and skipped.out == answer.out and "30 bad records in standard input left out" in skipped.err
    )
    (tmp_path / "words.conll").write_text("Ada\tO\nleft\n\nBo\tO\n", encoding="utf-8")
    conll = call("predict", str(model), str(tmp_path / "words.conll"))
    assert conll.code == 2 and texts(conll) == ["Bo"] and "words.conll:2" in conll.err


def test_predict_reads_a_pipe_and_refuses_a_folder(call: Call, model: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("Ada left.",))
    writer.start()
    assert texts(call("predict", str(model), str(pipe))) == ["Ada left."]
    writer.join()
    folder = call("predict", str(model), str(tmp_path))
    assert folder.code == 2 and "is a folder. Expected a file" in folder.err


def test_a_closed_standard_input_is_told(model: Path) -> None:
    for arguments in (["-"], []):
        done = subprocess.run(
            f"exec {shlex.join([sys.executable, '-m', 'spanwright', 'predict', str(model), *arguments])} <&-",
            shell=True, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 2 and "standard input is closed" in done.stderr


def test_predict_reads_the_column_of_words_as_training_did(call: Call, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "numbered.conll"
    file.write_text("1\tAda\tO\n2\tslept\tO\n", encoding="utf-8")
    assert texts(call("predict", str(model), str(file))) == ["1 2"]
    assert texts(call("predict", str(model), str(file), "--word-column", "1")) == ["Ada slept"]
    copy = Path(shutil.copytree(model, tmp_path / "model"))
    recipe = (copy / "recipe.toml").read_text(encoding="utf-8")
    (copy / "recipe.toml").write_text(recipe.replace("word_column = 0", "word_column = 1"), encoding="utf-8")
    assert texts(call("predict", str(copy), str(file))) == ["Ada slept"]


def test_a_closed_pipe_is_quiet(call: Call, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        answer = call("predict", str(model), "--lines", stdin=b"One.\n" * 3)
        assert (answer.code, answer.err) == (0, "")


def test_text_is_utf_8_whatever_the_locale_says(call: Call, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    text = "Zoë 東京 🎉"
    assert call("predict", str(model), "-", stdin=text.encode()).code == 0
    assert json.loads(written.getvalue().decode())["text"] == text


# -------------------------------------------------------------------------------------------------- heads, encoders


def test_heads(call: Call) -> None:
    answer = call("heads")
    assert answer.code == 0
    assert [line.split()[0] for line in answer.out.splitlines()[:4]] == ["seqner", "spanner", "bundle", "bopn"]
    one = call("heads", "spanner")
    import tomllib

    table = tomllib.loads(one.out[one.out.index("[head]") :])["head"]
    assert table["name"] == "spanner" and table["negatives"] == 100
    unknown = call("heads", "spaner")
    assert unknown.code == 2 and "Did you mean 'spanner'?" in unknown.err


def test_encoders(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("SPANWRIGHT_ENCODERS", str(tmp_path))
    answer = call("encoders")
    assert answer.code == 0
    names = [line.split()[0] for line in answer.out.splitlines() if line]
    assert {"minilm", "tiny", "mine"} <= set(names) and "other" not in names


def test_convert_encoder(call: Call, tmp_path: Path) -> None:
    import torch

    source = tmp_path / "pickled"
    source.mkdir()
    (source / "config.json").write_text("{}", encoding="utf-8")
    torch.save({"weight": torch.ones(2, 3)}, source / "pytorch_model.bin")
    answer = call("convert-encoder", str(source), str(tmp_path / "safe"))
    assert answer.code == 0 and f"encoder.name={tmp_path / 'safe'}" in answer.out
    assert (tmp_path / "safe" / "model.safetensors").is_file()
    refused = call("convert-encoder", str(tmp_path / "absent"), str(tmp_path / "new"))
    assert refused.code == 2 and "absent" in refused.err


# ------------------------------------------------------------------------------------------------------- for patience


@pytest.mark.slow
def test_ctrl_c_then_resume(tmp_path: Path, data: Path) -> None:
    """A real interrupt in a process of its own: exit code 1, the way on is told, and it works."""
    import signal

    (tmp_path / "recipe.toml").write_text(RECIPE.format(train=(data / "gum.jsonl").as_posix()), encoding="utf-8")
    settings = ["train.epochs=40", "train.min_updates=20"]
    command = [sys.executable, "-m", "spanwright", "train", str(tmp_path / "recipe.toml"), *settings]
    command += ["--output", str(tmp_path / "model")]
    run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    patience = time.monotonic() + 60
    while not (tmp_path / "model" / "checkpoint.safetensors").exists() and time.monotonic() < patience:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, told = run.communicate(timeout=60)
    assert run.returncode == 1 and "--resume" in told and "Traceback" not in told
    ended = subprocess.run([*command, "--resume"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "resumed" in ended.stderr
