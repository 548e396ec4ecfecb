"""Recipes: TOML tables `[data] [encoder] [head] [train] [run]` as frozen dataclasses, and back. No torch here.

Paths inside a recipe are relative to the current directory. A corpus may be named (it is then looked for under
`$SPANWRIGHT_DATA`), and so may an encoder ("minilm", "tiny", a hub id, a folder, a name under `$SPANWRIGHT_ENCODERS`).
"""

from __future__ import annotations

import re
import tomllib
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from spanwright.types import SpanwrightError

T = TypeVar("T")


class BadSetting(SpanwrightError):
    """A value that its own dataclass refuses; the message starts with the name of the field."""


def from_dict(cls: type[T], mapping: Mapping[str, Any], path: str = "head") -> T:
    """The dataclass `cls` from the TOML table at `path`; whatever does not fit is named by its dotted path."""
    if not isinstance(mapping, Mapping):
        raise SpanwrightError(f"{path} = {shown(mapping)}: expected a table with keys such as {_some(_names(cls))}.")
    known = _names(cls)
    for key in mapping:
        if key not in known:
            raise SpanwrightError(f"{_join(path, key)} is not a setting. {_nearest(key, known, path)}")
    hints = get_type_hints(cls)
    values = {key: _value(hints[key], value, _join(path, key)) for key, value in mapping.items()}
    for entry in fields(cast(Any, cls)):
        required = entry.init and entry.default is MISSING and entry.default_factory is MISSING
        if required and entry.name not in values:
            raise SpanwrightError(f"{_join(path, entry.name)} is missing: expected {_expected(hints[entry.name])}.")
    try:
        return cls(**values)
    except BadSetting as error:
        raise SpanwrightError(_join(path, str(error))) from error
    except (ValueError, SpanwrightError) as error:
        raise SpanwrightError(f"in [{path}]: {error}" if path else str(error)) from error


def to_dict(config: Any) -> dict[str, Any]:
    """A table that TOML can hold and `from_dict` turns into the same dataclass; None is left out."""
    values = {entry.name: getattr(config, entry.name) for entry in fields(config) if entry.init}
    return {name: _plain(value) for name, value in values.items() if value is not None}


def check_choices(config: Any) -> None:
    """Every field whose type is a Literal holds one of its choices."""
    for name, hint in get_type_hints(type(config)).items():
        if get_origin(hint) is Literal and getattr(config, name) not in get_args(hint):
            raise BadSetting(f"{name} = {shown(getattr(config, name))}: expected {_expected(hint)}.")


def check_range(config: Any, *names: str, above: float = -inf, least: float = -inf, below: float = inf) -> None:
    """The named numbers are finite, > `above`, >= `least` and < `below`."""
    for name in names:
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadSetting(f"{name} = {shown(value)}: expected a number.")
        if not value > above:
            raise BadSetting(f"{name} = {value}: expected more than {above:.12g}.")
        if not value >= least:
            raise BadSetting(f"{name} = {value}: expected at least {least:.12g}.")
        if not value < below:
            raise BadSetting(f"{name} = {value}: expected less than {below:.12g}.")


def _names(cls: Any) -> list[str]:
    return [entry.name for entry in fields(cls) if entry.init]


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def shown(value: Any) -> str:
    """A value as a person would write it in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{...}"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")


def _nearest(key: str, known: Sequence[str], path: str) -> str:
    close = get_close_matches(str(key), known, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {_join(path, close[0])}?"
    return f"Known here: {', '.join(known)}." if known else "There is nothing to set here."


def _expected(hint: Any) -> str:
    """A type in plain words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(shown(choice) for choice in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_expected(one) for one in arguments if one is not type(None))
    if origin in (tuple, list):
        return f"a list, each item {_expected(arguments[0])}" if arguments else "a list"
    if origin in (dict, Mapping) or is_dataclass(hint):
        return "a table"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: 'text in "quotes"'}
    return words.get(hint, getattr(hint, "__name__", str(hint)))


def _value(hint: Any, value: Any, path: str) -> Any:
    """`value` as the type `hint` asks, or a SpanwrightError."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if is_dataclass(hint):
        return from_dict(cast(type, hint), value, path)
    if origin in (Union, types.UnionType):
        return _first_that_fits(arguments, value, path, hint)
    if origin in (tuple, list) and isinstance(value, (list, tuple)):
        return _sequence(origin, arguments, value, path)
    if origin in (dict, Mapping) and isinstance(value, Mapping):
        return {str(key): _value(arguments[1], item, _join(path, key)) for key, item in value.items()}
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if origin is Literal:
        # 1 == True in Python, so the type is compared as well.
        if any(value == choice and type(value) is type(choice) for choice in arguments):
            return value
    elif type(value) is hint:
        return value
    raise SpanwrightError(f"{path} = {shown(value)}: expected {_expected(hint)}.{_close_choice(hint, value)}")


def _first_that_fits(options: Sequence[Any], value: Any, path: str, hint: Any) -> Any:
    if value is None and type(None) in options:
        return None
    options = [option for option in options if option is not type(None)]
    problems = []
    # An exact type comes first, so that 1 in `float | int` stays 1.
    for option in sorted(options, key=lambda option: type(value) is not option):
        try:
            return _value(option, value, path)
        except SpanwrightError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    raise SpanwrightError(f"{path} = {shown(value)}: expected {_expected(hint)}.")


def _sequence(origin: Any, arguments: Sequence[Any], value: Sequence[Any], path: str) -> Any:
    if origin is list or (len(arguments) == 2 and arguments[1] is Ellipsis):
        kinds = [arguments[0]] * len(value)
    elif len(arguments) == len(value):
        kinds = list(arguments)
    else:
        raise SpanwrightError(f"{path} = {shown(list(value))}: expected a list of {len(arguments)} items.")
    items = (_value(kind, item, f"{path}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True)))
    return origin(items)


def _close_choice(hint: Any, value: Any) -> str:
    choices = [choice for choice in get_args(hint) if isinstance(choice, str)] if get_origin(hint) is Literal else []
    close = get_close_matches(value, choices, n=1, cutoff=0.6) if isinstance(value, str) else []
    return f' Did you mean "{close[0]}"?' if close else ""


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return to_dict(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


@dataclass(frozen=True)
class EncoderConfig:
    """The table `[encoder]`: how words become vectors."""

    name: str = "minilm"  # "minilm", "tiny" (for tests), a folder, a hub id, or a name under $SPANWRIGHT_ENCODERS
    revision: str = ""  # branch, tag or commit of a hub id; "" takes its main branch
    pooling: Literal["mean", "max", "first"] = "mean"  # how the pieces of a word become one vector
    layers: Literal["last", "mean4"] = "last"  # the last layer, or the mean of the last four
    lstm: int = 0  # width of a BiLSTM over the words, both directions together; 0: none
    lstm_dropout: float = 0.1  # fraction of its input dropped in training
    context: int = 0  # neighbouring sentences of the same document read on each side; 0: none
    window: int = 0  # pieces the encoder reads at once; 0: as many as it was built for
    dropout: float = 0.1  # fraction dropped inside the transformer in training

    def __post_init__(self) -> None:
        check_choices(self)
        if not self.name:
            raise BadSetting('name = "": expected an encoder, for example "minilm".')
        check_range(self, "lstm", "context", "window", least=0)
        check_range(self, "dropout", "lstm_dropout", least=0, below=1)
        if self.lstm % 2:
            raise BadSetting(f"lstm = {self.lstm}: expected an even number, half of it for each direction.")


@dataclass(frozen=True)
class DataConfig:
    """The table `[data]`: what is read, and how text is cut into words."""

    train: str = ""  # a corpus by name (its dev and test are then used too), a folder with such splits, or a file
    dev: str = ""  # the same for the sentences that choose the best epoch; "": of the corpus, or set aside from train
    test: str = ""  # the same for the sentences scored at the end; "": of the corpus, or none
    format: str = ""  # format of the files; "": told by the name and the first lines
    word_column: int = 0  # CoNLL: column of the words, from 0; negative counts from the end
    tag_column: int = -1  # CoNLL: column of the tags, from 0; negative counts from the end
    scheme: Literal["auto", "iob1", "iob2", "bioes", "bilou", "bmes"] = "auto"  # CoNLL: what the tags mean
    comments: bool = False  # CoNLL: lines that start with "# " are comments, whatever they say
    # What a word is in raw text, see `spanwright.text.TextRule`. Saved with the model, which cuts text the same way.
    words: Literal["words", "hyphenated", "characters", "whitespace", "custom"] = "words"
    sentences: Literal["punctuation", "lines", "none"] = "punctuation"  # what ends a sentence in raw text
    cut: Literal["widen", "refuse", "report"] = "widen"  # gold that cuts a word: take it all, fail, or take it and tell
    skip_bad: bool = False  # leave bad records out instead of stopping
    max_words: int = 256  # words; longer sentences are cut into overlapping pieces
    limit: int = 0  # number of training sentences used, from the start; 0: all
    dev_fraction: float = 0.1  # fraction of the training sentences set aside where there is no dev

    def __post_init__(self) -> None:
        check_choices(self)
        check_range(self, "max_words", least=2)
        check_range(self, "limit", least=0)
        check_range(self, "dev_fraction", above=0, below=1)


@dataclass(frozen=True)
class TrainConfig:
    """The table `[train]`: how the weights are found."""

    epochs: int = 6  # times that every training sentence is seen
    lr_encoder: float = 2e-4  # highest learning rate of the encoder
    lr_head: float = 1e-3  # highest learning rate of everything else
    weight_decay: float = 0.01  # of AdamW; norms and biases never decay
    warmup: float = 0.1  # fraction of all updates in which the rates rise; then they fall to 0
    clip: float = 1.0  # longest gradient (2-norm) that is not shortened; 0: never shortened
    accumulate: int = 1  # batches to an update, each of equal weight
    batch_tokens: int = 1024  # pieces in a batch, padding included
    min_updates: int = 40  # updates that an epoch has at least; batches shrink on small corpora to reach them
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"  # numbers the forward pass computes with; weights stay fp32
    freeze_layers: int = 0  # lowest layers of the encoder that never change
    freeze_epochs: int = 0  # epochs at the start in which the transformer does not change
    patience: int = 0  # epochs without a better dev F1 after which training stops; 0: never
    checkpoint_minutes: float = 5.0  # minutes between checkpoints for --resume; 0: only after each epoch
    trackers: tuple[Literal["tensorboard"], ...] = ()  # where metrics go besides metrics.jsonl
    start_from: str = ""  # folder of a trained model to go on from; "": start from the encoder as published

    def __post_init__(self) -> None:
        check_choices(self)
        check_range(self, "epochs", "accumulate", "batch_tokens", least=1)
        check_range(self, "lr_encoder", "lr_head", above=0)
        check_range(self, "weight_decay", "clip", "checkpoint_minutes", least=0)
        check_range(self, "min_updates", "freeze_layers", "freeze_epochs", "patience", least=0)
        check_range(self, "warmup", least=0, below=1)


@dataclass(frozen=True)
class RunConfig:
    """The table `[run]`: the machine's share."""

    seed: int = 1  # decides everything random
    threads: int = 1  # CPU threads; 0: one a core; 1 makes runs on one machine agree bit for bit
    device: str = "auto"  # "auto" (cuda, then mps, then cpu), "cpu", "cuda", "cuda:1", "mps"

    def __post_init__(self) -> None:
        check_range(self, "seed", least=0, below=2**32)
        check_range(self, "threads", least=0)
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", self.device):
            raise BadSetting(f'device = "{self.device}": expected "auto", "cpu", "cuda", "cuda:1" or "mps".')


@dataclass(frozen=True)
class Recipe:
    """All that a training needs. The head's table stays as written until `head_config` reads it (which loads torch)."""

    data: DataConfig = field(default_factory=DataConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    head_name: str = "spanner"
    head_table: Mapping[str, Any] = field(default_factory=dict)  # the head's own settings, without `name`
    train: TrainConfig = field(default_factory=TrainConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def head_config(self) -> Any:
        """The head's own `Config`, checked."""
        from spanwright.heads import head_class

        return from_dict(head_class(self.head_name).Config, self.head_table, "head")

    def resolved(self) -> Recipe:
        """The same with every setting of the head written out."""
        return replace(self, head_table=to_dict(self.head_config()))


TABLES: Mapping[str, type] = {"data": DataConfig, "encoder": EncoderConfig, "train": TrainConfig, "run": RunConfig}
ORDER = ("data", "encoder", "head", "train", "run")


def recipe_of(tables: Mapping[str, Any]) -> Recipe:
    """The recipe that a parsed TOML file describes."""
    for name, table in tables.items():
        if name not in ORDER:
            raise SpanwrightError(f"[{name}] is not a table of a recipe. {_nearest(name, ORDER, '')}")
        if not isinstance(table, Mapping):
            raise SpanwrightError(f"{name} = {shown(table)}: expected a table, [{name}].")
    head = dict(tables.get("head", {}))
    name = head.pop("name", None)
    if not isinstance(name, str) or not name:
        given = "missing" if name is None else shown(name)
        raise SpanwrightError(f'head.name is {given}: expected the name of a head, for example name = "spanner".')
    parts: dict[str, Any] = {key: from_dict(cls, tables.get(key, {}), key) for key, cls in TABLES.items()}
    return Recipe(head_name=name, head_table=head, **parts)


def recipe_to_dict(recipe: Recipe) -> dict[str, Any]:
    """The tables of the recipe's TOML file."""
    head = {"name": recipe.head_name, **_plain(recipe.head_table)}
    tables = {name: to_dict(getattr(recipe, name)) for name in TABLES}
    return {name: head if name == "head" else tables[name] for name in ORDER}


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Reads a recipe; `overrides` such as ``head.max_width=8`` replace single settings."""
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise SpanwrightError(f"There is no recipe {path}. Expected the path of a TOML file.") from None
    except OSError as error:
        raise SpanwrightError(f"The recipe {path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise SpanwrightError(f"{path} is not UTF-8 text (byte {error.start}). Expected a TOML file.") from None
    except tomllib.TOMLDecodeError as error:
        raise SpanwrightError(f"{path} is not valid TOML: {error}.") from None
    for override in overrides:
        _override(tables, override)
    try:
        return recipe_of(tables)
    except SpanwrightError as error:
        origin = f"{path} with {' '.join(overrides)}" if overrides else str(path)
        raise SpanwrightError(f"{origin}: {error}") from error


def save_recipe(recipe: Recipe, path: str | Path) -> None:
    """Writes a TOML file that `load_recipe` reads back as the same recipe."""
    import tomli_w

    Path(path).write_text(tomli_w.dumps(recipe_to_dict(recipe)), encoding="utf-8", newline="\n")


def parse_setting(text: str, expected: str = "key=value") -> tuple[str, Any]:
    """``"train.epochs=3"`` -> ``("train.epochs", 3)``: a TOML value if it is one, else text as it stands."""
    key, equals, given = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise SpanwrightError(f'"{text}" is not a setting: expected {expected}, without spaces around the "=".')
    return key, _parsed(given)


def _parsed(given: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {given}")
    except tomllib.TOMLDecodeError:
        return given
    # More than one key: a line break let a second line in. A date is what a file name may look like.
    simple = set(parsed) == {"value"} and isinstance(parsed["value"], (str, int, float, bool, list, dict))
    return parsed["value"] if simple else given


def _override(tables: dict[str, Any], override: str) -> None:
    key, value = parse_setting(override, "table.key=value, for example train.epochs=3")
    *above, last = key.split(".")
    if not above:
        raise SpanwrightError(f'"{override}" names no table: expected table.key=value, for example train.epochs=3.')
    wanted = get_type_hints(TABLES[above[0]]).get(last) if len(above) == 1 and above[0] in TABLES else None
    if wanted is str and not isinstance(value, str):
        value = override.partition("=")[2]  # a revision such as 1234567 is text, whatever it looks like
    table: Any = tables
    for depth, name in enumerate(above):
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            where = ".".join(above[: depth + 1])
            raise SpanwrightError(f'"{override}": {where} = {shown(table)} is no table, so it has no key "{last}".')
    table[last] = value
