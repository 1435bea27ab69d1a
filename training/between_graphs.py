"""Work that no CUDA graph is to hold, such as what ranks send each other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

Work = Callable[[], object]


class BetweenGraphs:
    """between(f, a) calls f(a), or hands that to who captures what comes before and behind it."""

    def __init__(self) -> None:
        self.take: Callable[[Work], object] = done_now

    def __call__(self, work: Callable[..., object], *arguments: object) -> None:
        self.take(partial(work, *arguments))

    @contextmanager
    def handed_to(self, take: Callable[[Work], object]) -> Iterator[None]:
        self.take = take
        try:
            yield
        finally:
            self.take = done_now


def done_now(work: Work) -> None:
    work()
