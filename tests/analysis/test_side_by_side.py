"""Processes that answer side by side, and what becomes of those that end before."""

import os
import signal
import time
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from threading import Timer

import pytest

from profiling.analysis.ranks.side_by_side import Killed, side_by_side


def squared_later(number: int) -> int:
    time.sleep(0.05 * (5 - number))  # the first is done last
    return number**2


def test_results_are_in_the_order_of_the_items_and_nobody_is_left():
    counts: list[int] = []
    assert side_by_side(squared_later, range(5), 3, counts.append) == [0, 1, 4, 9, 16]
    assert counts == [1, 2, 3, 4, 5] and not active_children()


def divided(number: int) -> float:
    return 1 / number


def test_what_the_work_raises_is_raised_and_says_where():
    with pytest.raises(ZeroDivisionError) as raised:
        side_by_side(divided, [1, 0, 2], 2, lambda count: None)
    assert "in divided" in raised.value.__notes__[0] and not active_children()


def large(number: int, go: Path) -> bytes:
    """The second is killed while it writes this, or before."""
    if number:
        while not go.exists():
            time.sleep(0.01)
        Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return bytes(10_000_000)


def test_a_process_killed_while_it_writes_is_told(tmp_path):
    go = tmp_path / "go"

    def until_it_is_dead(count: int) -> None:
        go.touch()
        until = time.monotonic() + 60
        while len(active_children()) == 2 and time.monotonic() < until:
            time.sleep(0.01)

    with pytest.raises(Killed):
        side_by_side(partial(large, go=go), [0, 1], 2, until_it_is_dead)
    assert not active_children()
