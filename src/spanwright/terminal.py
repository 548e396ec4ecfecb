"""How text looks in a terminal: how many columns it takes, and what must not reach the screen as it is."""

from __future__ import annotations

import re
from unicodedata import category, east_asian_width

SPACES = re.compile(r"\s+")
ZERO_WIDTH_JOINER, EMOJI_STYLE = "\u200d", "\ufe0f"
SKIN_TONES = range(0x1F3FB, 0x1F400)
JAMO_TAILS = range(0x1160, 0x1200)  # vowels and final consonants that join the Hangul letter before them

# Control characters as pictures of themselves; U+FFFD for those without one, and for halves of surrogate pairs, which
# no output can encode. One character stands for one, so that places in the text stay what they are.
PICTURES: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(0x20)},
    0x7F: "\u2421",
    **dict.fromkeys([*range(0x80, 0xA0), *range(0xD800, 0xE000)], "\ufffd"),
}
# Some terminals draw the soft hyphen and some do not; the others turn the direction of all that follows them.
UNSEEN: dict[int, str] = dict.fromkeys([0xAD, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "")


def visible(text: str) -> str:
    """The text on one line: white space becomes single spaces, and controls are shown instead of obeyed."""
    return SPACES.sub(" ", text).translate(PICTURES | UNSEEN)


def width(text: str) -> int:
    """The columns that a visible text takes. A joined sequence of emoji is one picture of two columns."""
    if text.isascii():
        return len(text)
    columns = last = 0
    joined = False  # the character before joins this one to the picture
    for char in text:
        if char == EMOJI_STYLE and last == 1:
            columns, last = columns + 1, 2
        elif not joined and not (ord(char) in SKIN_TONES and last == 2) and (own := _columns(char)):
            columns, last = columns + own, own
        joined = char == ZERO_WIDTH_JOINER and last == 2
    return columns


def pad(text: str, columns: int) -> str:
    """The text with spaces after it, up to so many columns."""
    return text + " " * (columns - width(text))


def _columns(char: str) -> int:
    if category(char) in ("Mn", "Me", "Cf") or ord(char) in JAMO_TAILS:
        return 0
    return 2 if east_asian_width(char) in "WF" else 1
