"""What the flags of the lab's verbs have in common. Called by attention, square and device."""

import re

import torch

from training.device import resolve_device

DTYPES = ("float32", "bfloat16", "float16")


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


def positive_integers(flag: str, text: str) -> list[int]:
    """Those of a list with commas, each once. Raises ValueError naming the flag."""
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise ValueError(f"{flag} {text}: whole numbers above 0, by comma, like 128,256")
    return list(dict.fromkeys(int(word) for word in words))


def one_of(flag: str, word: str, words: tuple[str, ...]) -> str:
    if word not in words:
        raise ValueError(f"{flag} {word}: there are {', '.join(words)}")
    return word
