"""Parts that the programs share: sizes for a GPU or a try on the CPU, and endless loops."""

import os
from collections.abc import Callable
from typing import TypeVar

SMALL = "FOREIGN_SMALL"  # variable of the environment; set: sizes for a try on the CPU
T = TypeVar("T")

# what a program calls after each step, with the step's result where only that can be waited for
Mark = Callable[..., None]


def size(full: T, small: T) -> T:
    """`full` on a GPU, `small` in a try on the CPU."""
    return small if os.environ.get(SMALL) else full


def repeat(step: Callable[[], object], mark: Mark) -> None:
    """Run the step without end; `mark` raises where the measurement is over."""
    while True:
        mark(step())
