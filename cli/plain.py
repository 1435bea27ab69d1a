"""Texts from files and command lines, stripped of what could affect a terminal or a page."""

import re

# They move the cursor, colour, rename the window, turn the reading direction. Escape sequences are
# removed whole; lone surrogates cannot be written.
CONTROLS = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"
    "|\x1b[\\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def without_controls(words: str) -> str:
    """Text without control characters, but for line ends and tabs: code has them."""
    return CONTROLS.sub("", words)


def plain(words: object) -> str:
    """Text of `words` on one line, without control characters."""
    return " ".join(without_controls(str(words)).split())
