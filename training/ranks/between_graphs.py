"""Work that has to stay out of CUDA graphs, such as the collectives of a backward pass."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

Work = Callable[[], object]


class BetweenGraphs:
    """Place in a backward pass or update where a capture is interrupted for other work.

    Code that may be captured writes `between(f, a)`. Normally this calls f(a) at once. While a
    capture is under way, f(a) must be launched at each replay and not become part of a graph: so it
    is handed to the function that captures, which ends one graph before it and begins the next one
    after it.
    """

    def __init__(self) -> None:
        self.run: Callable[[Work], object] = run_now

    def __call__(self, work: Callable[..., object], *arguments: object) -> None:
        self.run(partial(work, *arguments))

    @contextmanager
    def hand_to(self, run: Callable[[Work], object]) -> Iterator[None]:
        """Hands the work to `run` within the block, as a function without arguments."""
        self.run = run
        try:
            yield
        finally:
            self.run = run_now


def run_now(work: Work) -> None:
    work()
