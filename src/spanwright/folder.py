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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import spanwright
from spanwright.config import EncoderConfig, from_dict, shown, to_dict
from spanwright.encoder import rebuild_encoder
from spanwright.head import Head
from spanwright.heads import build_head, head_class, name_of
from spanwright.pretrained import TEXT_FILES, download, first_line, looks_like_path
from spanwright.tagger import Tagger
from spanwright.text import TextRule
from spanwright.types import Labels, SpanwrightError

if TYPE_CHECKING:
    from spanwright.tagger import TextTokenizer

FORMAT_VERSION = 1
CARD, WEIGHTS, ENCODER = "spanwright.json", "model.safetensors", "encoder"
HUB_FILES = [CARD, WEIGHTS, "recipe.toml", "README.md", *(f"{ENCODER}/*{suffix}" for suffix in TEXT_FILES)]
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def save(tagger: Tagger, folder: Path) -> Path:
    """Nothing takes its place before everything is written, so a failure leaves an older model as it was."""
    if folder.exists() and not folder.is_dir():
        raise SpanwrightError(f"{folder} is a file: expected the name of a folder to save the model in")
    weights = {name: tensor.contiguous() for name, tensor in tagger.network.state_dict().items()}
    text = json.dumps(card(tagger), indent=2, ensure_ascii=False)
    with passing_folder(folder / ".saving") as place:
        (place / ENCODER).mkdir()
        tagger.encoder.save_source(place / ENCODER)
        save_file(weights, place / WEIGHTS, {"format": "pt"})
        (place / CARD).write_text(text + "\n", encoding="utf-8")
        settle(place)
        take_places(place, folder)
    return folder


def take_places(place: Path, folder: Path) -> None:
    """Moves a written model to `folder`: in one move where only its weights are new, as after an epoch.

    Else the old card goes first and the new one comes last, for without a card it is no model: whoever is killed
    in between leaves none, never a mixed one.
    """
    rest = [path.relative_to(place) for path in place.rglob("*") if path.is_file() and path.name != WEIGHTS]
    if any(
        not (folder / name).is_file() or (folder / name).read_bytes() != (place / name).read_bytes() for name in rest
    ):
        (folder / CARD).unlink(missing_ok=True)
        (folder / ENCODER).mkdir(exist_ok=True)
        for path in (folder / ENCODER).iterdir():
            if path.is_file() and path.suffix in TEXT_FILES:  # what is not a model's is not ours to remove
                path.unlink()
        for path in (place / ENCODER).iterdir():
            os.replace(path, folder / ENCODER / path.name)
    os.replace(place / WEIGHTS, folder / WEIGHTS)
    os.replace(place / CARD, folder / CARD)


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


def save_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """`write(place)` writes beside `path`, on disk for certain, before it takes the name."""
    place = path.with_name(f".{path.name}.partial")
    write(place)
    settle(place)
    os.replace(place, path)


@contextmanager
def passing_folder(place: Path) -> Iterator[Path]:
    """An empty folder that is gone afterwards; what a killed process left of it is gone first."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def settle(place: Path) -> None:
    """A file, or all files of a folder: onto the disk for certain, readable by whom new files are readable by."""
    mask = os.umask(0)
    os.umask(mask)
    for path in [place, *place.rglob("*")]:
        if path.is_file():
            path.chmod(0o666 & ~mask)  # safetensors writes files that nobody else may read
            with path.open("rb+") as file:
                os.fsync(file.fileno())


def load(
    place: str | Path, *, device: str = "auto", precision: str = "fp32", threads: int | None = None,
    tokenizer: TextTokenizer | None = None, revision: str | None = None,
) -> Tagger:  # fmt: skip
    """A tagger from a folder or a hub id. `tokenizer` splits text for a model trained with ``words = "custom"``."""
    if precision not in PRECISIONS:
        raise SpanwrightError(f"precision {precision!r}: expected one of {', '.join(PRECISIONS)}")
    if threads is not None and threads < 1:
        raise SpanwrightError(f"threads = {threads}: expected 1 or more, or None to leave them as they are")
    chosen = pick_device(device)
    folder = find(place, revision)
    tagger = build(folder, read_card(folder))
    tagger.tokenizer = tokenizer
    load_weights(tagger, folder / WEIGHTS)
    if threads is not None:
        torch.set_num_threads(threads)
    tagger.network.eval()
    for parameter in tagger.encoder.transformer.parameters():  # not its buffers: rotary angles want fp32
        parameter.data = parameter.data.to(PRECISIONS[precision])
    return tagger.to(chosen)


def build(folder: Path, content: dict[str, Any]) -> Tagger:
    """What the card describes, with untrained weights."""
    path = folder / CARD
    try:
        table = dict(content["head"])
        name = table.pop("name", None)
        if not isinstance(name, str):
            raise SpanwrightError(f"head.name is {name!r:.60}, expected the name of a head; the folder is damaged")
        config: Any = from_dict(head_class(name).Config, table, "head")
        encoder_config = from_dict(EncoderConfig, content["encoder"], "encoder")
        rule = from_dict(TextRule, content["text"], "text")
    except SpanwrightError as error:
        raise SpanwrightError(f"{path}: {error}") from error
    too_large = (ValueError, TypeError, RuntimeError, MemoryError)  # sizes that nobody has room for, say
    try:
        encoder = rebuild_encoder(encoder_config, folder / ENCODER)
    except too_large as error:
        raise SpanwrightError(f"{path}: the encoder cannot be built from it: {first_line(error):.300}") from error
    try:
        head = build_head(name, config, Labels(content["labels"]), encoder.width, encoder.input_width)
    except (SpanwrightError, *too_large) as error:
        raise SpanwrightError(f"{path}: the head {name!r} cannot be built from it: {first_line(error):.300}") from error
    return Tagger(encoder, head, rule=rule, max_words=content["max_words"], widest=content["widest"])


A_MODEL = "Expected a folder that `spanwright train` wrote, or a hub id such as 'name/model'"


def find(place: str | Path, revision: str | None = None) -> Path:
    """The folder itself, or a copy of what the hub has under this id."""
    if not isinstance(place, (str, Path)) or not str(place):
        raise SpanwrightError(f"no model at {place!r}. {A_MODEL}")
    folder = Path(place).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists() or looks_like_path(str(place)) or "/" not in str(place):
        what = "is a file" if folder.exists() else "does not exist"
        raise SpanwrightError(f"no model at {str(place)!r}: it {what}. {A_MODEL}")
    return download(str(place), revision or "", HUB_FILES, "model", A_MODEL)


def read_card(folder: Path) -> dict[str, Any]:
    """What the folder says it is, checked before anything is built from it."""
    path = folder / CARD
    if not path.is_file():
        pickles = sorted(file.name for file in folder.iterdir() if file.suffix in PICKLES)
        more = f" It holds {pickles[0]}, a pickle, which is never read." if pickles else ""
        raise SpanwrightError(
            f"{folder}: not a Spanwright model: no {CARD}.{more} "
            "Expected a folder that `spanwright train` or `Tagger.save` wrote"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise SpanwrightError(f"{path}: not valid JSON: {error}; the folder is damaged") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise SpanwrightError(
            f"{path}: format version {version!r:.60}; this Spanwright reads up to {FORMAT_VERSION}. "
            "A newer one may read it: pip install -U spanwright"
        )
    kinds = {"head": dict, "labels": list, "encoder": dict, "text": dict, "max_words": int, "widest": int}
    for key, kind in kinds.items():
        if type(content.get(key)) is not kind or (kind is int and content[key] < 2 * (key == "max_words")):
            raise SpanwrightError(
                f"{path}: {key!r} is {content.get(key)!r:.60}, expected {kind.__name__}; the folder is damaged"
            )
    if not all(isinstance(label, str) for label in content["labels"]):
        raise SpanwrightError(f"{path}: 'labels' must be a list of strings; the folder is damaged")
    return content


def load_weights(tagger: Tagger, path: Path) -> None:
    if not path.is_file():
        raise SpanwrightError(f"{path} is missing: weights are read from safetensors and from nothing else")
    try:
        tagger.network.load_state_dict(load_file(path))
    except (SafetensorError, RuntimeError, OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:300]
        raise SpanwrightError(f"{path} does not fit {path.parent / CARD}, or is damaged: {reason}") from error


def pick_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise SpanwrightError(
            f"device {name!r} cannot be used here: {first_line(error)}. Expected auto, cpu, cuda or mps"
        ) from error
    return device


def widened(tagger: Tagger, labels: Labels, config: Any) -> Tagger:
    """The same tagger for more labels: whatever grows with the labels keeps its weights in front and is new behind."""
    if labels.names[: len(tagger.labels)] != tagger.labels.names:
        raise SpanwrightError(f"the labels {list(labels)} do not begin with those of the model, {list(tagger.labels)}")
    encoder, name = tagger.encoder, name_of(type(tagger.head))
    head = build_head(name, config, labels, encoder.width, encoder.input_width).to(tagger.device)
    refuse_other_meaning(tagger.head, head)
    alike = build_head(name, config, tagger.labels, encoder.width, encoder.input_width).state_dict()
    new = head.state_dict()
    for key, old in tagger.head.state_dict().items():
        # A setting may add rows (a greater max_width); what changes the rows themselves is another head.
        if key in alike and (alike[key].shape[1:] != old.shape[1:] or alike[key].shape[:1] < old.shape[:1]):
            raise SpanwrightError(
                f"the trained weights {key} have the shape {list(old.shape)}, the settings of the head ask for "
                f"{list(alike[key].shape)}: training further keeps the settings that shape a head; leave them out"
            )
        if key in alike:
            new[key][tuple(map(slice, old.shape))] = old  # the state's tensors are the head's own
    wider = copy.copy(tagger)
    wider.network = type(tagger.network)(encoder, head)
    return wider


def refuse_other_meaning(old: Head, new: Head) -> None:
    """Settings that would let weights of the same shape mean something else stay as they are."""
    for name in old.members().keys() & new.members().keys():
        before, after = old.members()[name], new.members()[name]
        for setting in sorted(before.lasting):
            kept, asked = getattr(before.config, setting), getattr(after.config, setting, None)
            if kept != asked:
                place = f"heads.{name}.{setting}" if name else setting
                raise SpanwrightError(
                    f"head.{place} = {shown(asked)}, the trained model has {shown(kept)}: its weights would not mean "
                    "what they have learnt. Leave it out, or train anew"
                )
