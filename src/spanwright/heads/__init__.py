"""The heads by name. A module is imported when its head is asked for; this file does not import torch.

A package of yours adds heads through the entry point group ``spanwright.heads``::

    [project.entry-points."spanwright.heads"]
    mine = "my_package.my_module:MyHead"
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from spanwright.types import Labels, SpanwrightError

if TYPE_CHECKING:
    from spanwright.head import Head

GROUP = "spanwright.heads"
HEADS = {
    "seqner": "spanwright.heads.seqner:SeqNER",
    "spanner": "spanwright.heads.spanner:SpanNER",
    "bundle": "spanwright.heads.bundle:Bundle",
    "bopn": "spanwright.heads.bopn:BOPN",
}


def head_names() -> list[str]:
    """Spanwright's own heads, then those of other packages in alphabetical order."""
    return list(_places())


def head_class(name: str) -> type[Head]:
    """The class of the head `name`."""
    places = _places()
    if name not in places:
        close = get_close_matches(name, places, n=1)
        nearest = f" Did you mean {close[0]!r}?" if close else ""
        raise SpanwrightError(f"there is no head {name!r}.{nearest} The heads are: {', '.join(places)}.")
    try:
        found: type[Head] = places[name].load()
    except (ImportError, AttributeError) as error:
        raise SpanwrightError(
            f"the head {name!r} is registered as {places[name].value!r}, which cannot be imported: {error}. "
            "Repair or remove the package that registers it."
        ) from error
    return found


def build_head(name: str, config: Any, labels: Labels, width: int, input_width: int) -> Head:
    """The head `name` with fresh weights; `width` and `input_width` are the encoder's."""
    return head_class(name)(config, labels, width, input_width)


def register(name: str, place: str) -> None:
    """Makes ``"package.module:Class"`` known as `name` in this process: for a notebook, or a test."""
    HEADS[name] = place


def name_of(kind: type[Head]) -> str:
    """The name under which a head class is saved and found again."""
    place = f"{kind.__module__}:{kind.__qualname__}"
    for name, point in _places().items():
        if point.value == place:
            return name
    raise SpanwrightError(
        f"the head {place} has no name, so a model with it could not be loaded again. Register it through the entry "
        f"point group {GROUP!r} of your package, or with spanwright.heads.register(name, {place!r})."
    )


def _places() -> dict[str, EntryPoint]:
    own = {name: EntryPoint(name, place, GROUP) for name, place in HEADS.items()}
    return own | {point.name: point for point in _added() if point.name not in own}


@cache
def _added() -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=GROUP), key=lambda point: point.name))
