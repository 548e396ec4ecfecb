"""A tagger as a folder of safetensors and JSON, written whole or not at all, read without trust.

spanwright.json      what it is: format version, head, labels, text rule, every setting
model.safetensors    all weights, "encoder.*" and "head.*"
encoder/             the transformer's config and its tokenizer
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import spanwright
from spanwright.config import EncoderConfig, from_dict, to_dict
from spanwright.encoder import rebuild_encoder
from spanwright.heads import build_head, head_class, name_of
from spanwright.pretrained import looks_like_path
from spanwright.tagger import Tagger
from spanwright.text import TextRule
from spanwright.types import Labels, SpanwrightError

if TYPE_CHECKING:
    from spanwright.tagger import TextTokenizer

FORMAT_VERSION = 1
CARD, WEIGHTS, ENCODER = "spanwright.json", "model.safetensors", "encoder"
HUB_FILES = [CARD, WEIGHTS, f"{ENCODER}/*.json", f"{ENCODER}/*.txt", f"{ENCODER}/*.model", "recipe.toml", "README.md"]
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def save(tagger: Tagger, folder: Path) -> Path:
    """Writes every file beside its place and moves it there, so that no half-written file is ever seen."""
    folder.mkdir(parents=True, exist_ok=True)
    with whole_folder(folder / ENCODER) as place:
        tagger.encoder.save_source(place)
    weights = {name: tensor.contiguous() for name, tensor in tagger.network.state_dict().items()}
    save_whole(folder / WEIGHTS, lambda place: save_file(weights, place, {"format": "pt"}))
    text = json.dumps(card(tagger), indent=2, ensure_ascii=False)
    save_whole(folder / CARD, lambda place: place.write_text(text + "\n", encoding="utf-8"))
    return folder


def card(tagger: Tagger) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "spanwright_version": spanwright.__version__,
        "head": {"name": name_of(type(tagger.head)), **to_dict(tagger.head.config)},
        "labels": list(tagger.labels),
        "encoder": to_dict(tagger.encoder.config),
        "text": asdict(tagger.rule),
        "max_words": tagger.max_words,
        "widest": tagger.widest,
    }


def save_whole(path: Path, write: Any) -> None:
    """`write(place)` writes beside `path`, on disk for certain, before it takes the name."""
    place = path.with_name(f".{path.name}.partial")
    write(place)
    mask = os.umask(0)
    os.umask(mask)
    place.chmod(0o666 & ~mask)  # safetensors writes files that nobody else may read
    with place.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(place, path)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into that takes the name `folder` when all is written, in place of one that has it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
        place = Path(temporary) / "new"
        place.mkdir()
        yield place
        if folder.exists():
            os.replace(folder, Path(temporary) / "old")
        os.replace(place, folder)


def load(
    place: str | Path, *, device: str = "auto", precision: str = "fp32", threads: int | None = None,
    tokenizer: TextTokenizer | None = None, revision: str | None = None,
) -> Tagger:  # fmt: skip
    """A tagger from a folder or a hub id. `tokenizer` splits text for a model trained with ``words = "custom"``."""
    if precision not in PRECISIONS:
        raise SpanwrightError(f"precision {precision!r}: expected one of {', '.join(PRECISIONS)}")
    folder = find(place, revision)
    content = read_card(folder)
    head_table = dict(content["head"])
    name = head_table.pop("name", None)
    if not isinstance(name, str):
        raise SpanwrightError(f"{folder / CARD}: head.name is missing; the folder is damaged")
    encoder = rebuild_encoder(from_dict(EncoderConfig, content["encoder"], "encoder"), folder / ENCODER)
    config = from_dict(head_class(name).Config, head_table, "head")
    head = build_head(name, config, Labels(content["labels"]), encoder.width, encoder.input_width)
    tagger = Tagger(
        encoder, head, rule=from_dict(TextRule, content["text"], "text"), max_words=content["max_words"],
        widest=content["widest"], tokenizer=tokenizer,
    )  # fmt: skip
    load_weights(tagger, folder / WEIGHTS)
    if threads is not None:
        torch.set_num_threads(threads)
    tagger.network.eval()
    tagger.encoder.transformer.to(PRECISIONS[precision])
    return tagger.to(pick_device(device))


def find(place: str | Path, revision: str | None = None) -> Path:
    """The folder itself, or a copy of what the hub has under this id."""
    folder = Path(place)
    if folder.is_dir():
        return folder
    if folder.exists() or looks_like_path(str(place)) or "/" not in str(place):
        what = "is a file" if folder.exists() else "does not exist"
        raise SpanwrightError(
            f"no model at {str(place)!r}: it {what}. Expected a folder that `spanwright train` wrote, or a hub id such as 'name/model'"
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(place), revision=revision, allow_patterns=HUB_FILES))
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SpanwrightError(
            f"no folder {str(place)!r}, and the hub has no such model or cannot be reached: {reason}"
        ) from error


def read_card(folder: Path) -> dict[str, Any]:
    """What the folder says it is, checked before anything is built from it."""
    path = folder / CARD
    if not path.is_file():
        pickles = sorted(
            file.name for file in folder.iterdir() if file.suffix in (".bin", ".pt", ".pth", ".pkl", ".pickle")
        )
        more = f" It holds {pickles[0]}, a pickle, which is never read." if pickles else ""
        raise SpanwrightError(
            f"{folder}: not a Spanwright model: no {CARD}.{more} Expected a folder that `spanwright train` or `Tagger.save` wrote"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise SpanwrightError(f"{path}: not valid JSON: {error}") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise SpanwrightError(
            f"{path}: format version {version!r}; this Spanwright reads up to {FORMAT_VERSION}. A newer one may read it: pip install -U spanwright"
        )
    kinds = {"head": dict, "labels": list, "encoder": dict, "text": dict, "max_words": int, "widest": int}
    for key, kind in kinds.items():
        if not isinstance(content.get(key), kind):
            raise SpanwrightError(
                f"{path}: {key!r} is {content.get(key)!r:.60}, expected a {kind.__name__}; the folder is damaged"
            )
    if not all(isinstance(label, str) for label in content["labels"]):
        raise SpanwrightError(f"{path}: 'labels' must be a list of strings; the folder is damaged")
    return content


def load_weights(tagger: Tagger, path: Path) -> None:
    if not path.is_file():
        raise SpanwrightError(f"{path} is missing: weights are read from safetensors and from nothing else")
    try:
        tagger.network.load_state_dict(load_file(path))
    except (SafetensorError, RuntimeError, OSError) as error:
        raise SpanwrightError(f"{path} does not fit {path.parent / CARD}, or is damaged: {str(error)[:300]}") from error


def pick_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise SpanwrightError(
            f"device {name!r} cannot be used here: {str(error).splitlines()[0]}. Expected auto, cpu, cuda or mps"
        ) from error
    return device


def widened(tagger: Tagger, labels: Labels, config: Any) -> Tagger:
    """The same tagger for more labels: whatever grows with the labels keeps its weights in front and is new behind."""
    encoder = tagger.encoder
    head = build_head(name_of(type(tagger.head)), config, labels, encoder.width, encoder.input_width)
    old = tagger.head.state_dict()
    with torch.no_grad():
        for name, tensor in head.state_dict().items():
            if name in old:
                shared = tuple(slice(min(a, b)) for a, b in zip(tensor.shape, old[name].shape, strict=True))
                tensor[shared] = old[name][shared]
    wider = copy.copy(tagger)
    wider.network = type(tagger.network)(encoder, head)
    return wider


def remove(folder: Path) -> None:
    """A folder out of sight at once, then off the disk."""
    if folder.exists():
        hidden = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(hidden, ignore_errors=True)
        os.replace(folder, hidden)
        shutil.rmtree(hidden)
