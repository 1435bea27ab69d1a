"""What the flags of the lab's verbs have in common. Called by attention, square and device."""

import argparse

from cli.parser import Parser, within

DTYPES = ("float32", "bfloat16", "float16")


def add_shared(parser: Parser, max_s: float) -> None:
    """--device and --max-s, with the default of the latter."""
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda, cuda:N")
    parser.add_argument(
        "--max-s",
        type=within(float, 0.001),
        default=max_s,
        metavar="SECONDS",
        help=f"bound on the samples of one measurement ({max_s:g}); more for less spread",
    )


def positive_integers(text: str) -> list[int]:
    """The type of a flag: a list with commas, each number once."""
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        said = f"{text}: whole numbers above 0, by comma, like 128,256"
        raise argparse.ArgumentTypeError(said)
    return list(dict.fromkeys(int(word) for word in words))
