"""What the flags of the lab's verbs have in common. Called by attention, square and device."""

import argparse
import re

import torch

from cli.parser import Parser, within
from training.device import resolve_device

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


def lab_device(word: str) -> torch.device:
    """`auto` is the GPU where there is one. Raises ValueError for what is not to be had."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", word):
        raise ValueError(f"--device {word}: auto, cpu, cuda or cuda:N")
    if word == "auto" and not torch.cuda.is_available():
        word = "cpu"
    device = resolve_device(word)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def positive_integers(text: str) -> list[int]:
    """The type of a flag: a list with commas, each number once."""
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        said = f"{text}: whole numbers above 0, by comma, like 128,256"
        raise argparse.ArgumentTypeError(said)
    return list(dict.fromkeys(int(word) for word in words))
