"""Quotes around texts on the command line: Übung.txt, novel (1).txt, a=b.txt, a,b.txt.

Hydra's grammar gives blanks, commas and parentheses a meaning, and knows ASCII alone. So a text is
put in quotes before Hydra reads it. What is in quotes already, and ${...}, is left to Hydra.
"""

import re

from hydra.core.override_parser.types import Quote, QuotedString

from cli.keys import keys
from configs.schema import Config

PLAIN = re.compile(r"[\w./@%+:-]+", re.ASCII)  # Hydra reads it as it stands
SWEEP = re.compile(r"(choice|range|interval|glob|sort|shuffle|tag|extend_list)\(.*\)")
ONE_QUOTED = re.compile(r"""(['"])(\\.|(?!\1).)*\1""", re.S)


def quote_texts(overrides: list[str], multirun: bool) -> list[str]:
    """Put quotes around the values of text keys; with `multirun` a comma separates values.

    A word that stands for a list becomes one: profile.ranks=all.
    """
    return [quote_text(word, multirun) for word in overrides]


def quote_text(word: str, multirun: bool) -> str:
    name, _, text = word.partition("=")
    key = keys(Config).get(name)
    if key and key.kind is list and text in key.choices:
        return f"{name}=[{text}]"
    if key is None or key.kind is not str or key.choices or is_for_hydra(text):
        return word
    if not multirun:
        return f"{name}={in_quotes(text)}"
    if "'" in text or '"' in text:  # commas inside are no separators: the user's own quotes rule
        return word
    pieces = [piece if PLAIN.fullmatch(piece) else in_quotes(piece) for piece in text.split(",")]
    return f"{name}={','.join(pieces)}"


def is_for_hydra(text: str) -> bool:
    """Whether `text` is meant for Hydra's grammar: null, ${...}, choice(...), a text in quotes."""
    meant = text in ("", "null", "???") or "${" in text
    return meant or bool(SWEEP.fullmatch(text) or ONE_QUOTED.fullmatch(text))


def in_quotes(text: str) -> str:
    return QuotedString(text, Quote.single).with_quotes()
