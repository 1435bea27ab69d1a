"""Flags that the lab's verbs share. Called by attention, square, kernels and device."""

import argparse

from cli.parser import Parser, within

DTYPES = ("float32", "bfloat16", "float16")


def add_shared(parser: Parser, max_s: float) -> None:
    """Add the flags --device and --max-s; `max_s` is the default of the latter in seconds."""
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda, cuda:N")
    parser.add_argument(
        "--max-s",
        type=within(float, 0.001),
        default=max_s,
        metavar="SECONDS",
        help=f"time limit in seconds for one measurement ({max_s:g}); longer for less spread",
    )


def positive_integers(text: str) -> list[int]:
    """Parse a flag's list with commas; each number is kept once.

    Raises ArgumentTypeError for anything else than whole numbers above 0.
    """
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        message = f"{text}: give whole numbers above 0, separated by commas, such as 128,256"
        raise argparse.ArgumentTypeError(message)
    return list(dict.fromkeys(int(word) for word in words))
