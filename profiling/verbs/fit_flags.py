"""Flags of `report --fit`."""

import re
from argparse import ArgumentTypeError, Namespace
from typing import TYPE_CHECKING

import msgspec

from cli.parser import Flags, flag

if TYPE_CHECKING:
    from profiling.analysis.memory.memory_records import Plan

BYTES = {"MB": 10**6, "GB": 10**9, "MiB": 1 << 20, "GiB": 1 << 30}
ALONE = ("checkpointing", "moments")
NUMBERED = ("batch", "context", "layers", "zero1", "fsdp")
OF_FIT = ("gpu_memory", "batch", "context", "predict")


def fit_flags(group: Flags) -> None:
    flag(group, "--fit", "what would fit: the largest batch and context, and peaks after a change")
    flag(group, "--gpu-memory SIZE", "of this GPU, such as 80GiB (default: the run's own)", size)
    of_each = "of each snapshot, by comma, where the run's folder does not say it"
    flag(group, "--batch N,N", f"the batch {of_each}", numbers, default=[])
    flag(group, "--context N,N", f"the context {of_each}", numbers, default=[])
    change = "one more peak, such as batch=32,checkpointing,moments,fsdp=8; all of it at once"
    group.add_argument(
        "--predict", metavar="CHANGE", type=plan_of, action="append", default=[], help=change
    )


def check_fit(flags: Namespace) -> None:
    """Raise ValueError for a flag that does nothing without --fit."""
    for name in OF_FIT:
        if getattr(flags, name) and not flags.fit:
            raise ValueError(f"--{name.replace('_', '-')}: needs --fit")


def size(word: str) -> int:
    """Bytes of a word such as 80GiB. Raises ArgumentTypeError."""
    found = re.fullmatch(r"([\d.]+) ?([MG]i?B)", word)
    try:
        held = int(float(found[1]) * BYTES[found[2]]) if found else 0
    except ValueError:
        held = 0
    if not 0 < held < 1 << 50:
        raise ArgumentTypeError(f"{word}: give a size such as 80GiB or 80GB")
    return held


def numbers(words: str) -> list[int]:
    """Numbers from 1 on, by comma. Raises ArgumentTypeError."""
    return [count(word) for word in words.split(",")]


def count(word: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", word):
        raise ArgumentTypeError(f"{word}: give a number from 1 on, or several by comma: 8,16")
    return int(word)


def plan_of(words: str) -> "Plan":
    """The change in words such as batch=32,fsdp=8. Raises ArgumentTypeError."""
    from profiling.analysis.memory.memory_records import Plan  # 12 ms, which no other report needs

    given: dict[str, int | bool] = {}
    for word in words.split(","):
        name, _, value = word.partition("=")
        if name in given:
            raise ArgumentTypeError(f"{words}: has {name} twice; give --predict for each")
        if name in ALONE and not value:
            given[name] = True
        elif name in NUMBERED:
            try:
                given[name] = count(value)
            except ArgumentTypeError:
                raise ArgumentTypeError(f"{word}: give {name}=N, a number from 1 on") from None
        else:
            names = ", ".join([*ALONE, *(f"{name}=N" for name in NUMBERED)])
            raise ArgumentTypeError(f"{word}: give {names}")
    return msgspec.convert(given, Plan)
