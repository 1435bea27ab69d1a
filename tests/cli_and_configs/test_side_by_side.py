"""Processes that answer concurrently, and the handling of those that end early."""

import os
import signal
import tempfile
import time
from functools import partial
from multiprocessing import active_children, get_context
from pathlib import Path
from threading import Timer

import pytest

from cli.side_by_side import Killed, side_by_side


def squared_later(number: int) -> int:
    time.sleep(0.05 * (5 - number))  # the first is done last
    return number**2


@pytest.mark.slow
def test_results_are_in_the_order_of_the_items_and_nobody_is_left():
    for numbers, squares in (range(5), [0, 1, 4, 9, 16]), (range(1), [0]), ([], []):
        with side_by_side(squared_later, numbers, 3) as results:
            assert list(results) == squares
        assert not active_children()


def test_no_more_are_begun_than_asked_for_and_not_all_have_to_be():
    begun: list[int] = []
    items = (begun.append(number) or number for number in range(9))
    with side_by_side(abs, items, 2, ahead=2) as results:
        for number in range(5):
            assert next(results) == number and len(begun) <= number + 2 * 2
    assert len(begun) < 9 and not active_children()


def divided(number: int) -> float:
    return 1 / number


def test_what_the_work_raises_comes_in_its_turn_and_says_where():
    with side_by_side(divided, [1, 0, 2], 2) as results:
        assert next(results) == 1
        with pytest.raises(ZeroDivisionError) as raised:
            next(results)
    assert "in divided" in str(raised.value.__cause__) and not active_children()


def large(number: int, go: Path) -> bytes:
    """The second is killed while it writes this, or before."""
    if number:
        while not go.exists():
            time.sleep(0.01)
        Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return bytes(10_000_000)


def test_a_process_killed_while_it_writes_is_told(tmp_path):
    with side_by_side(partial(large, go=tmp_path / "go"), [0, 1], 2) as results:
        assert len(next(results)) == 10_000_000
        (tmp_path / "go").touch()
        until = time.monotonic() + 60
        while len(active_children()) == 2 and time.monotonic() < until:
            time.sleep(0.01)
        with pytest.raises(Killed):
            next(results)
    assert not active_children()


def slow_with_a_temporary_folder(number: int) -> int:
    if number:
        tempfile.mkdtemp()
        time.sleep(60)
    while not [*Path(tempfile.gettempdir()).iterdir()]:
        time.sleep(0.01)
    return number


def test_temporary_files_of_a_process_that_is_stopped_go(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stopped = pytest.raises(KeyboardInterrupt)
    with stopped, side_by_side(slow_with_a_temporary_folder, [0, 1], 2) as results:
        assert next(results) == 0 and [*tmp_path.iterdir()]
        raise KeyboardInterrupt
    assert not [*tmp_path.iterdir()]


def asleep(number: int, folder: Path) -> None:
    (folder / str(os.getpid())).touch()
    time.sleep(60)


def wait_for_workers(folder: Path) -> None:
    with side_by_side(partial(asleep, folder=folder), [0, 1], 2) as results:
        list(results)


def test_no_worker_outlives_a_first_process_that_was_killed(tmp_path):
    first = get_context("spawn").Process(target=wait_for_workers, args=(tmp_path,))
    first.start()
    until = time.monotonic() + 60
    while len(workers := [*tmp_path.iterdir()]) < 2:
        assert first.is_alive() and time.monotonic() < until
        time.sleep(0.05)
    first.kill()
    first.join()
    while any(Path("/proc", worker.name).exists() for worker in workers):
        assert time.monotonic() < until
        time.sleep(0.05)
