"""Moments of a process that is a fork of ours: it says when it comes to one."""

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pkgutil import resolve_name
from unittest import mock

from benchmarks.reliability_parts import forks
from benchmarks.reliability_parts.forks import Child

Call = Callable[[], None]


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """(the end that is read, the end that is written)"""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def announcing(call: Call, told: int, *functions: str) -> Call:
    """`call`, which writes a byte into a pipe as it enters one of the functions.

    The byte is the number of the function, from 0.
    """
    for number, function in enumerate(functions):
        call = entering(call, function, partial(os.write, told, bytes([number])))
    return call


def entering(call: Call, function: str, tell: Callable[[], object]) -> Call:
    """`call`, which calls `tell` whenever it enters the function of that full name."""

    def changed() -> None:
        place, _, name = function.rpartition(".")
        original = getattr(resolve_name(place), name)

        def enter(*arguments: object, **named: object) -> object:
            tell()
            return original(*arguments, **named)

        with mock.patch(function, enter):
            call()

    return changed


def wait_for(child: Child, heard: int, calls: int, until_s: float) -> bool:
    """Until the child enters the function for that time; False where it ended before."""
    while calls > 0:
        if select.select([heard], [], [], forks.POLL_S)[0]:
            calls -= len(os.read(heard, 1))
        elif child.has_ended() or time.perf_counter() > until_s:
            return False
    return True
