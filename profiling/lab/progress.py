"""How far a series of measurements is, on stderr. Called by the lab's verbs."""

import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO, TypeVar

Item = TypeVar("Item")


def tracked(
    items: list[Item], describe: Callable[[Item], str], file: TextIO | None = None
) -> Iterator[Item]:
    """Yields the items, and says which is under way and how long the rest may take.

    One line that is written over on a terminal, a line for each item elsewhere.
    """
    file = file or sys.stderr
    terminal, start = file.isatty(), time.perf_counter()
    for number, item in enumerate(items):
        line = f"{number + 1}/{len(items)}  {describe(item)}"
        if number:
            left_s = (time.perf_counter() - start) / number * (len(items) - number)
            line += f"  about {left_s:.0f} s left"
        print(f"\r\033[K{line}" if terminal else line, end="" if terminal else "\n", file=file)
        file.flush()
        yield item
    if terminal:
        print("\r\033[K", end="", file=file, flush=True)
