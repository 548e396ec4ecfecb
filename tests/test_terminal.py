"""How wide a text is in a terminal, and what of it may get there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanwright.terminal import pad, visible, width


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", 0),
        ("plain", 5),
        ("北京大学", 8),
        ("한국어", 6),
        ("\u1112\u1161\u11ab", 2),  # one Korean syllable spelt in three letters
        ("ｆｕｌｌ", 8),
        ("ｶﾀｶﾅ", 4),
        ("e\u0301", 1),
        ("שָׁלוֹם", 4),
        ("a\u200bb", 2),
        ("क\u094d\u200dष", 2),  # this joiner makes no picture
        ("😀", 2),
        ("☺", 1),
        ("❤\ufe0f", 2),
        ("1\ufe0f\u20e3", 2),
        ("👍🏽", 2),
        ("👨\u200d👩\u200d👧", 2),
        ("👩\u200d❤\ufe0f\u200d👩", 2),
        ("👨\u200d👩\u200d👧王", 4),
        ("🇨🇳", 2),
    ],
)
def test_width(text: str, columns: int) -> None:
    assert width(text) == columns
    assert width(text + "x") == columns + 1
    assert width(pad(text, 12)) == 12
    assert pad(text, 12).rstrip(" ") == text


def test_what_is_too_wide_is_left_as_it_is() -> None:
    assert pad("too wide", 3) == "too wide"


@given(st.text(st.characters(codec=None)))
def test_what_is_visible_is_one_line_that_any_terminal_can_take(text: str) -> None:
    shown = visible(text)
    assert len(shown.splitlines()) <= 1
    shown.encode("utf-8")
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in shown)
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\xad")


def test_controls_are_shown_and_white_space_is_single() -> None:
    assert visible("a\r\n\tb\x1b[31mc\x00\x7f\x9b\ud800d") == "a b␛[31mc␀␡\ufffd\ufffdd"
    assert visible("soft\xadhyphen \u202eturned\u202c") == "softhyphen turned"
    assert visible("👨\u200d👩 e\u0301 שלום") == "👨\u200d👩 e\u0301 שלום"
