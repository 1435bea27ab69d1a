"""Moments in a fork of this process, which announces when it comes to one."""

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pkgutil import resolve_name
from unittest import mock

from tests.soak import forks
from tests.soak.forks import Child

Call = Callable[[], None]


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """Open a pipe for the block: (file descriptor to read, file descriptor to write)."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def announce_calls(call: Call, writer: int, *functions: str) -> Call:
    """Function that runs `call` and writes a byte into the pipe when one of `functions` is entered.

    The byte is the index of the function.
    """
    for number, function in enumerate(functions):
        call = call_on_entry(call, function, partial(os.write, writer, bytes([number])))
    return call


def call_on_entry(call: Call, function: str, tell: Callable[[], object]) -> Call:
    """Function that runs `call` and calls `tell` whenever `function`, a full name, is entered."""

    def call_patched() -> None:
        place, _, name = function.rpartition(".")
        original = getattr(resolve_name(place), name)

        def enter(*arguments: object, **named: object) -> object:
            tell()
            return original(*arguments, **named)

        with mock.patch(function, enter):
            call()

    return call_patched


def wait_for_calls(child: Child, reader: int, calls: int, until_s: float) -> bool:
    """Wait until the child has entered the function `calls` times; False if it ended before."""
    while calls > 0:
        if select.select([reader], [], [], forks.POLL_S)[0]:
            calls -= len(os.read(reader, 1))
        elif child.has_ended() or time.perf_counter() > until_s:
            return False
    return True
