"""Models as folders: what is saved comes back bit for bit, what is half written or hostile is told apart."""

from __future__ import annotations

import builtins
import json
import os
import pickle
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from encoder_folders import make_folder
from safetensors.torch import load_file, save_file

from spanwright import folder as folders
from spanwright.config import EncoderConfig, from_dict
from spanwright.encoder import build_encoder
from spanwright.folder import find, load, pick_device, save_whole, widened
from spanwright.heads import build_head, head_class
from spanwright.tagger import Tagger
from spanwright.text import TextRule
from spanwright.types import Labels, Sentence, SpanwrightError

LABELS = Labels(["person", "place"])
SENTENCES = [
    Sentence(("The", "mayor", "of", "Bergen", "met", "the", "press", ".")),
    Sentence(("Norway",)),
    Sentence(("a", "long", "sentence", "about", "nothing", "in", "particular") * 30),
]
HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax": ("seqner", {}),
    "crf": ("seqner", {"tagging": "crf", "repair": "discard"}),
    "spanner": ("spanner", {"max_width": 3, "representation": "pooling"}),
    "bundle": ("bundle", {"heads": {"seqner": {"tagging": "crf"}, "spanner": {"max_width": 4}}}),
}


def make(
    kind: str = "spanner", encoder: EncoderConfig | None = None, labels: Labels = LABELS, **options: Any
) -> Tagger:
    """A tagger that has learnt nothing, with weights that are not all alike."""
    name, table = HEADS[kind]
    read = build_encoder(encoder or EncoderConfig(name="tiny"))
    torch.manual_seed(0)
    head = build_head(name, from_dict(head_class(name).Config, table), labels, read.width, read.input_width)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(torch.randn_like(parameter))
    return Tagger(read, head, **options)


def scores(tagger: Tagger) -> dict[str, torch.Tensor]:
    tagger.network.eval()
    return tagger.scores(tagger.collate(SENTENCES))


def answers(tagger: Tagger) -> list[list[tuple[int, int, str, float]]]:
    found = tagger.with_options(threshold=0.0, overlap="all").predict(SENTENCES)
    return [sorted((e.start, e.end, e.label, e.score) for e in entities) for entities in found]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(place: Path | str, reason: str, **options: Any) -> str:
    with pytest.raises(SpanwrightError, match=reason) as caught:
        load(place, **options)
    return str(caught.value)


def change(folder: Path, **values: Any) -> None:
    """Changes the card; None takes a key away."""
    path = folder / "spanwright.json"
    content = {**json.loads(path.read_text(encoding="utf-8")), **values}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make().save(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def model(saved: Path, tmp_path: Path) -> Path:
    """The folder of a tiny model, for the test to spoil."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


# ------------------------------------------------------------------------------------------------- there and back


@pytest.mark.parametrize("kind", HEADS)
def test_a_saved_model_answers_as_before(kind: str, tmp_path: Path) -> None:
    rule = TextRule(words="whitespace", sentences="lines")
    before = make(kind, labels=Labels(["z", "ä", "a b"]), rule=rule, max_words=64, widest=5)
    assert before.save(tmp_path / "deep" / "model") == tmp_path / "deep" / "model"
    after = load(str(tmp_path / "deep" / "model"), device="cpu")
    assert sum(map(len, answers(before))) > 5
    assert answers(after) == answers(before)
    for name, tensor in scores(before).items():
        assert torch.equal(scores(after)[name], tensor), name
    assert (after.labels, after.rule, after.max_words, after.widest) == (before.labels, rule, 64, 5)
    assert after.head.config == before.head.config
    assert not after.network.training


def test_changed_inference_is_saved(tmp_path: Path) -> None:
    make().with_options(threshold=0.7, overlap="flat").save(tmp_path / "model")
    inference = load(tmp_path / "model").head.inference
    assert (inference.threshold, inference.overlap) == (0.7, "flat")
    make("bundle").with_options(output="seqner").save(tmp_path / "bundle")
    assert load(tmp_path / "bundle").head.config.inference.output == "seqner"


def test_every_setting_of_the_encoder_is_saved(tmp_path: Path) -> None:
    config = EncoderConfig(name="tiny", pooling="first", layers="mean4", lstm=12, context=1, window=40, dropout=0.2)
    before = make(encoder=config)
    after = load(before.save(tmp_path / "model"))
    assert after.encoder.config == config
    assert answers(after) == answers(before)


def test_a_saved_model_needs_nothing_but_its_folder(tmp_path: Path) -> None:
    source = make_folder("electra", tmp_path / "encoder")
    before = make(encoder=EncoderConfig(name=str(source)))
    before.save(tmp_path / "model")
    shutil.rmtree(source)
    moved = (tmp_path / "model").rename(tmp_path / "moved")
    after = load(moved)
    assert answers(after) == answers(before)
    assert {path.suffix for path in moved.rglob("*") if path.is_file()} == {".json", ".safetensors"}


def test_the_folder_is_what_the_documentation_says(saved: Path) -> None:
    assert sorted(path.name for path in saved.iterdir()) == ["encoder", "model.safetensors", "spanwright.json"]
    content = json.loads((saved / "spanwright.json").read_text(encoding="utf-8"))
    assert content["format_version"] == 1
    assert content["labels"] == ["person", "place"]
    assert content["head"]["name"] == "spanner" and content["head"]["max_width"] == 3
    assert content["text"] == asdict(TextRule())
    assert {name.split(".")[0] for name in load_file(saved / "model.safetensors")} == {"encoder", "head"}


def test_whoever_may_read_new_files_may_read_the_model(tmp_path: Path) -> None:
    make().save(tmp_path / "model")
    (tmp_path / "other").write_text("")
    for path in (tmp_path / "model").glob("*.*"):
        assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)


def test_other_files_of_the_folder_are_left_alone(model: Path) -> None:
    (model / "metrics.jsonl").write_text("{}\n")
    other = make("softmax")
    other.save(model)
    assert (model / "metrics.jsonl").read_text() == "{}\n"
    assert answers(load(model)) == answers(other)


def test_a_model_is_not_saved_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("mine")
    with pytest.raises(SpanwrightError, match="is a file: expected the name of a folder"):
        make().save(tmp_path / "model")
    assert (tmp_path / "model").read_text() == "mine"


# ------------------------------------------------------------------------------------------------ whole or not at all


@pytest.mark.parametrize("step", ["save_file", "settle", "card", "source"])
def test_a_failure_leaves_the_old_model_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    def half(weights: Any, path: Path, *_: Any) -> None:
        Path(path).write_bytes(b"half")
        fail()

    place = make(encoder=EncoderConfig(name=str(make_folder("bert", tmp_path / "encoder")))).save(tmp_path / "model")
    before = files_of(place)
    other = make("softmax", encoder=EncoderConfig(name=str(make_folder("roberta", tmp_path / "other"))))
    with monkeypatch.context() as patch:
        if step == "source":
            patch.setattr(other.encoder, "save_source", fail)
        else:
            patch.setattr(folders, step, half if step == "save_file" else fail)
        with pytest.raises(OSError, match="disk full"):
            other.save(place)
        with pytest.raises(OSError, match="disk full"):
            other.save(tmp_path / "new")
    assert files_of(place) == before
    refused(tmp_path / "new", "not a Spanwright model" if (tmp_path / "new").exists() else "no model at")
    other.save(place)
    assert answers(load(place)) == answers(other)
    assert sorted(path.name for path in place.iterdir()) == ["encoder", "model.safetensors", "spanwright.json"]


def test_what_a_killed_process_left_is_cleared(model: Path) -> None:
    (model / ".saving" / "encoder").mkdir(parents=True)
    (model / ".saving" / "model.safetensors").write_bytes(b"half")
    make().save(model)
    assert sorted(path.name for path in model.iterdir()) == ["encoder", "model.safetensors", "spanwright.json"]


def test_a_kill_between_two_moves_leaves_no_mixed_model(saved: Path, tmp_path: Path) -> None:
    """A process that dies at any of the moves that put a model of another shape in an older one's place."""
    other = make("crf", encoder=EncoderConfig(name=str(make_folder("bert", tmp_path / "bert"))))
    move, moves, fatal = os.replace, 0, 0

    def replace(source: Any, target: Any) -> None:
        nonlocal moves
        if moves == fatal:
            raise KeyboardInterrupt
        moves += 1
        move(source, target)

    while True:
        model, moves = Path(shutil.copytree(saved, tmp_path / f"model{fatal}")), 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "replace", replace)
            try:
                other.save(model)
                break
            except KeyboardInterrupt:
                refused(model, "not a Spanwright model")
        other.save(model)
        assert answers(load(model)) == answers(other)
        fatal += 1
    assert fatal >= 4  # the encoder's config and tokenizer, the weights, the card


def test_new_weights_of_the_same_model_are_one_move(model: Path) -> None:
    """So whoever is killed leaves the old ones or the new ones, and a model in any case."""
    other = load(model)
    with torch.no_grad():
        next(other.head.parameters()).add_(1.0)
    there: list[set[str]] = []
    move = os.replace

    def replace(source: Any, target: Any) -> None:
        there.append(set(files_of(model)))
        move(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replace)
        other.save(model)
    assert there and all({"spanwright.json", "model.safetensors"} <= names for names in there)
    assert answers(load(model)) == answers(other)


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    def half(place: Path) -> None:
        place.write_text("half")
        raise KeyError

    path = tmp_path / "report.json"
    save_whole(path, lambda place: place.write_text("old"))
    with pytest.raises(KeyError):
        save_whole(path, half)
    assert path.read_text() == "old"
    save_whole(path, lambda place: place.write_text("new"))
    assert files_of(tmp_path) == {"report.json": b"new"}


# ---------------------------------------------------------------------------------------------------- damaged folders


@pytest.mark.parametrize("content", [b"", b'{"format_version": 1', b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_card_is_named(model: Path, content: bytes) -> None:
    (model / "spanwright.json").write_bytes(content)
    assert str(model / "spanwright.json") in refused(model, r"not valid JSON: .*damaged")


@pytest.mark.parametrize("version", [2, 0, -1, "1", 1.0, True, None])
def test_another_format_is_refused(model: Path, version: Any) -> None:
    change(model, format_version=version)
    message = refused(model, rf"format version {version!r}; this Spanwright reads up to 1")
    assert "pip install -U spanwright" in message
    (model / "spanwright.json").write_text("[1]")
    refused(model, "format version None")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("head", []), ("head", None), ("labels", "person"), ("labels", {"person": 1}), ("encoder", "tiny"),
        ("text", None), ("max_words", "256"), ("max_words", True), ("max_words", 0), ("max_words", -5),
        ("max_words", 1), ("max_words", 2.5), ("widest", None), ("widest", -1),
    ],
)  # fmt: skip
def test_wrong_types_in_the_card_are_named(model: Path, key: str, value: Any) -> None:
    change(model, **{key: value})
    assert str(model / "spanwright.json") in refused(model, rf"'{key}' is .*expected .*the folder is damaged")


@pytest.mark.parametrize("labels", [["person", 7], [None], [["person"]]])
def test_labels_are_strings(model: Path, labels: list[Any]) -> None:
    change(model, labels=labels)
    assert str(model / "spanwright.json") in refused(model, "'labels' must be a list of strings")


def test_labels_differ(model: Path) -> None:
    change(model, labels=["person", "person"])
    assert str(model) in refused(
        model, r"spanwright\.json: the head 'spanner' cannot be built from it: labels must differ"
    )


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"name": "spaner"}, r"no head 'spaner'\. Did you mean 'spanner'\?"),
        ({"name": 7}, "head.name is 7, expected the name of a head"),
        ({}, "head.name is None"),
        ({"name": "spanner", "max_widht": 3}, r"head.max_widht is not a setting\. Did you mean head.max_width\?"),
        ({"name": "spanner", "max_width": "3"}, 'head.max_width = "3": expected a whole number'),
        ({"name": "spanner"}, "cannot be built from it: max_width is 0"),
        ({"name": "spanner", "max_width": 2**60}, "the head 'spanner' cannot be built from it"),
    ],
)
def test_a_head_that_cannot_be_is_named(model: Path, table: dict[str, Any], reason: str) -> None:
    change(model, head=table)
    assert refused(model, reason).startswith(str(model / "spanwright.json"))


def test_other_tables_are_checked_too(model: Path) -> None:
    change(model, encoder={"name": "tiny", "pooling": "sum"})
    assert str(model) in refused(model, r"spanwright\.json: encoder.pooling")
    change(model, encoder={"name": "tiny"}, text={"words": "syllables"})
    assert str(model) in refused(model, r"spanwright\.json: .*words")


def test_missing_weights_are_named(model: Path) -> None:
    (model / "model.safetensors").unlink()
    assert str(model) in refused(
        model, r"model\.safetensors is missing: weights are read from safetensors and from nothing else"
    )


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_truncated_weights_are_refused(model: Path, size: int) -> None:
    content = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(content[:size])
    assert str(model) in refused(model, r"model\.safetensors does not fit .*spanwright\.json, or is damaged")


def test_weights_that_do_not_fit_are_refused(model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    name = "head.classify.weight"
    for changed in (
        {key: tensor for key, tensor in weights.items() if key != name},
        {**weights, "head.more": torch.zeros(2)},
        {**weights, name: weights[name][:-1].clone()},
    ):
        save_file(changed, model / "model.safetensors")
        assert "\n" not in refused(model, r"does not fit .*head\.(classify\.weight|more)")
    save_file(weights, model / "model.safetensors")
    load(model)
    change(model, labels=["person", "place", "date"])
    refused(model, r"does not fit .*head\.classify")


def test_a_missing_encoder_is_named(tmp_path: Path) -> None:
    source = make_folder("bert", tmp_path / "encoder")
    place = make(encoder=EncoderConfig(name=str(source))).save(tmp_path / "model")
    shutil.rmtree(place / "encoder")
    assert str(place) in refused(place, r"model/encoder/config\.json is missing")


# ----------------------------------------------------------------------------------------------------- hostile folders


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, written: Path):
        self.written = written

    def __reduce__(self) -> tuple[Any, ...]:
        return builtins.open, (str(self.written), "w")


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    written = tmp_path / "written"
    source = make_folder("bert", tmp_path / "encoder")
    model = make(encoder=EncoderConfig(name=str(source))).save(tmp_path / "model")
    for name in ("pytorch_model.bin", "model.pt", "encoder/pytorch_model.bin", "encoder/vocab.pkl"):
        torch.save({"bomb": Bomb(written)}, model / name)
    load(model)
    (model / "model.safetensors").write_bytes(pickle.dumps(Bomb(written)))
    refused(model, "does not fit")
    (model / "model.safetensors").unlink()
    refused(model, "from safetensors and from nothing else")
    (model / "spanwright.json").unlink()
    message = refused(model, r"not a Spanwright model: no spanwright\.json")
    assert "It holds model.pt, a pickle, which is never read" in message
    assert not written.exists()
    torch.load(model / "model.pt", weights_only=False)
    assert written.exists()  # the bombs were live


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_a_model_may_not_bring_code(tmp_path: Path, file: str) -> None:
    source = make_folder("bert", tmp_path / "encoder")
    model = make(encoder=EncoderConfig(name=str(source))).save(tmp_path / "model")
    path = model / "encoder" / file
    path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": {"AutoModel": "evil.Model"}}))
    (model / "encoder" / "evil.py").write_text(f"open({str(tmp_path / 'written')!r}, 'w')")
    refused(model, r"'auto_map' = .* asks to run code")
    assert not (tmp_path / "written").exists()


# ----------------------------------------------------------------------------------------------------------- finding


def test_a_place_without_a_model_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    expected = "Expected a folder that `spanwright train` wrote, or a hub id"
    for place, reason in (("demo", "does not exist"), ("./demo", "does not exist"), (tmp_path / "file", "is a file")):
        assert expected in refused(place, rf"no model at '.*': it {reason}")
    assert "Expected a folder that `spanwright train` or" in refused(tmp_path / "empty", "not a Spanwright model")


def test_a_hub_id_without_network_says_so() -> None:
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    message = refused("nobody/no-such-model", "there is no folder 'nobody/no-such-model', and the hub has no such mod")
    assert "cannot be reached" in message


def test_from_the_hub_come_the_files_of_a_model(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.utils._paths import filter_repo_objects

    asked: dict[str, Any] = {}

    def snapshot_download(name: str, **options: Any) -> str:
        asked.update(options, name=name)
        return str(model)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    assert load("someone/model", revision="v2").labels == LABELS
    assert (asked["name"], asked["revision"]) == ("someone/model", "v2")
    wanted = ["spanwright.json", "model.safetensors", "encoder/config.json", "encoder/vocab.txt", "encoder/bpe.codes"]
    others = ["pytorch_model.bin", "evil.py", "encoder/evil.py", "encoder/pytorch_model.bin", "checkpoint.safetensors"]
    patterns = {key: asked[key] for key in ("allow_patterns", "ignore_patterns")}
    assert list(filter_repo_objects(wanted + others, **patterns)) == wanted


def test_a_home_folder_is_found(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(model.parent))
    assert find("~/model") == model


# --------------------------------------------------------------------------------------- precision, device, threads


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_precision_is_the_transformers(saved: Path, precision: str) -> None:
    tagger, exact = load(saved, precision=precision, device="cpu"), load(saved, device="cpu")
    kinds = {parameter.dtype for parameter in tagger.encoder.transformer.parameters()}
    assert kinds == {torch.bfloat16 if precision == "bf16" else torch.float16}
    assert {parameter.dtype for parameter in tagger.head.parameters()} == {torch.float32}
    found, expected = (scores(one)["scores"].softmax(3) for one in (tagger, exact))
    assert found.dtype == torch.float32 and not torch.equal(found, expected)
    assert float((found - expected).abs().max()) < 0.2 and float((found - expected).abs().mean()) < 0.01


def test_positions_keep_their_precision(tmp_path: Path) -> None:
    source = make_folder("modernbert", tmp_path / "encoder", max_position_embeddings=400)
    make(encoder=EncoderConfig(name=str(source))).save(tmp_path / "model")
    tagger = load(tmp_path / "model", precision="bf16")
    angles = {name: buffer.dtype for name, buffer in tagger.encoder.transformer.named_buffers() if "inv_freq" in name}
    assert angles and set(angles.values()) == {torch.float32}
    assert all(bool(tensor.isfinite().all()) for tensor in scores(tagger).values())


def test_unknown_precision_device_and_threads_are_refused(saved: Path) -> None:
    assert "\n" not in refused(saved, "precision 'half': expected one of fp32, bf16, fp16", precision="half")
    assert "\n" not in refused(
        saved, "device 'gpu' cannot be used here: .*Expected auto, cpu, cuda or mps", device="gpu"
    )
    assert "\n" not in refused(saved, "device 'cuda:99' cannot be used here", device="cuda:99")
    assert "\n" not in refused(saved, "threads = 0: expected 1 or more", threads=0)


def test_the_device_is_chosen(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(saved, device="cpu").device == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device("auto") == torch.device("cpu")


@pytest.fixture
def threads() -> Iterator[Callable[[], int]]:
    before = torch.get_num_threads()
    yield torch.get_num_threads
    torch.set_num_threads(before)


def test_threads_are_a_choice(saved: Path, threads: Callable[[], int]) -> None:
    load(saved, threads=2)
    assert threads() == 2
    load(saved)
    assert threads() == 2
    load(saved, threads=1)
    assert threads() == 1


# ------------------------------------------------------------------------------------------------- text by the user


def test_a_model_for_a_tokenizer_of_ones_own(tmp_path: Path) -> None:
    make(rule=TextRule(words="custom")).save(tmp_path / "model")
    tagger = load(tmp_path / "model")
    assert tagger(words=["The", "mayor"]).words == ("The", "mayor")
    assert len(tagger.predict(SENTENCES)) == 3
    with pytest.raises(SpanwrightError, match=r"no tokenizer was given\. Pass the tokenizer"):
        tagger("The mayor of Bergen")
    assert load(tmp_path / "model", tokenizer=str.split)("The  mayor").words == ("The", "mayor")


# ------------------------------------------------------------------------------------------------------- more labels


WIDER = Labels([*LABELS, "date", "time"])


@pytest.mark.parametrize("kind", HEADS)
def test_more_labels_keep_what_is_known_of_the_old(kind: str) -> None:
    old = make(kind)
    torch.manual_seed(1)
    new = widened(old, WIDER, old.head.config)
    assert new.labels == WIDER and old.labels == LABELS
    assert new.encoder is old.encoder
    for name, before in scores(old).items():
        torch.testing.assert_close(scores(new)[name][tuple(map(slice, before.shape))], before, atol=1e-5, rtol=1e-5)
    grown = set()
    for name, before in old.head.state_dict().items():
        after = new.head.state_dict()[name]
        assert torch.equal(after[tuple(map(slice, before.shape))], before), name
        if after.shape != before.shape:
            grown.add(name.split(".")[-1])
            if name.endswith(".weight"):
                assert bool((after[len(before) :] != 0).all())  # drawn, not left empty
    assert grown >= {"weight", "bias"} and (("transitions" in grown) == (kind in ("crf", "bundle")))


def test_a_wider_model_answers_with_its_new_labels(tmp_path: Path) -> None:
    old = make("bundle")
    torch.manual_seed(1)
    new = widened(old, WIDER, old.head.config)
    with torch.no_grad():
        new.head.state_dict()["heads.spanner.classify.bias"][3:] += 100  # the head's own memory
    labels = {label for sentence in answers(new) for _, _, label, _ in sentence}
    assert labels == {"date", "time"}
    assert answers(load(new.save(tmp_path / "model"))) == answers(new)


def test_the_same_labels_change_nothing() -> None:
    old = make()
    assert answers(widened(old, LABELS, old.head.config)) == answers(old)


def test_settings_may_add_rows_and_may_not_reshape_them() -> None:
    old = make()
    config = old.head.config
    wider = widened(old, WIDER, from_dict(type(config), {**HEADS["spanner"][1], "max_width": 5}))
    before, after = scores(old)["scores"], scores(wider)["scores"]
    assert after.shape[2:] == (5, 5)
    torch.testing.assert_close(after[:, :, :3, :3], before, atol=1e-5, rtol=1e-5)
    with pytest.raises(SpanwrightError, match=r"classify\.weight have the shape \[3, 89\].*ask for \[3, 153\]"):
        widened(old, WIDER, from_dict(type(config), {"max_width": 3, "representation": "hybrid"}))
    with pytest.raises(SpanwrightError, match=r"span_width\.weight have the shape \[3, 25\].*ask for \[2, 25\]"):
        widened(old, WIDER, from_dict(type(config), {**HEADS["spanner"][1], "max_width": 2}))
    with pytest.raises(SpanwrightError, match=r"\['place', 'person'\] do not begin with those of the model"):
        widened(old, Labels(["place", "person"]), config)


BOPN_TABLE: dict[str, Any] = {"max_offset": 1, "conv_layers": 0, "biaffine_size": 4}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"max_offset": 2, "offsets": "start"}, r"max_offset = 2, the trained model has 1"),
        ({"offsets": "end"}, r'offsets = "end", the trained model has "both"'),
        ({"conv_layers": 2}, r"conv_layers = 2, the trained model has 0"),
        ({"scorer": "concatenated"}, "scorer"),
        ({"type_input": "embedding"}, "type_input"),
    ],
)
@pytest.mark.parametrize("bundled", [False, True])
def test_weights_keep_their_meaning(changed: dict[str, Any], told: str, bundled: bool) -> None:
    """Rows of the same shape would be taken for other offset labels."""

    def config(table: dict[str, Any]) -> Any:
        kind = head_class("bundle" if bundled else "bopn").Config
        bundle = {"heads": {"one": {"name": "bopn", **table}}, "weights": {"one": 1.0}, "inference": {"output": "one"}}
        return from_dict(kind, bundle if bundled else table)

    encoder = build_encoder(EncoderConfig(name="tiny"))
    sizes = (LABELS, encoder.width, encoder.input_width)
    old = Tagger(encoder, build_head("bundle" if bundled else "bopn", config(BOPN_TABLE), *sizes))
    widened(old, WIDER, config({**BOPN_TABLE, "max_width": 9, "label_smoothing": 0.1}))
    with pytest.raises(SpanwrightError, match=told) as error:
        widened(old, WIDER, config(BOPN_TABLE | changed))
    assert ("head.heads.one." in str(error.value)) == bundled
