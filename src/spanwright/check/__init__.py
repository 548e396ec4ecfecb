"""The head contract as a test suite: one function a law, for the heads of this package and for anybody's.

    from spanwright.check import LAWS, check_head

    @pytest.mark.parametrize("law", LAWS)
    def test_my_head(law):
        check_head(MyHead, oracle=my_oracle, laws=[law])

An *oracle* answers ``oracle(head, sentence)`` with the scores that a perfect `forward` would return for that one
sentence. It need not be clever: it fills a table from the gold.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from spanwright.check.bundles import BUNDLE_LAWS, BundleCase
from spanwright.check.case import Case, Oracle, make_case, registered
from spanwright.check.laws import LAWS, SLOW
from spanwright.head import Head

__all__ = ["BUNDLE_LAWS", "LAWS", "SLOW", "BundleCase", "Case", "Oracle", "check_bundle", "check_head"]


def check_head(
    head_class: type[Head],
    config: Any = None,
    *,
    oracle: Oracle,
    labels: Sequence[str] = ("A", "B", "C"),
    nested: bool = False,
    laws: Collection[str] | None = None,
) -> None:
    """Holds a head to the laws (all of `LAWS` unless told which). AssertionError: the first law it breaks.

    `config` defaults to ``head_class.Config()``. `nested` claims that the head can answer with nested entities.
    The laws named in `SLOW` take longer than all others together.
    """
    case = make_case(head_class, config, oracle=oracle, labels=labels, nested=nested)
    with registered(head_class):
        for name in LAWS if laws is None else laws:
            hold(name, LAWS[name], case)


def check_bundle(
    members: Mapping[str, tuple[type[Head], Any]],
    *,
    labels: Sequence[str] = ("A", "B", "C"),
    laws: Collection[str] | None = None,
) -> None:
    """Holds heads to the laws of the composite (all of `BUNDLE_LAWS` unless told which).

    `members` are head classes and their configs (None: the default), under the names they have in the bundle.
    """
    cases = {name: make_case(head, config, labels=labels) for name, (head, config) in members.items()}
    with registered(*(case.head_class for case in cases.values())):
        for name in BUNDLE_LAWS if laws is None else laws:
            hold(name, BUNDLE_LAWS[name], BundleCase(cases))


def hold(name: str, law: Callable[[Any], None], case: Case | BundleCase) -> None:
    """Runs one law; what goes wrong becomes an AssertionError that names it. The random generators stay as they are."""
    states = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            law(case)
    except Exception as error:
        meaning = " ".join((law.__doc__ or "").split())
        seen = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        raise AssertionError(f"{case.title} breaks the law {name!r}.\nLaw: {meaning}\nSeen: {seen}") from error
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
