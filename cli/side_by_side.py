"""A function of many items, in processes side by side; what it returns, in the items' order.

Each process is a fresh Python with a pipe of its own. Those of concurrent.futures write their
results into one: where a process is killed while it writes, the reader waits for the rest of it
without end.
"""

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from traceback import format_exc
from typing import Generic, TypeVar, cast

from cli.start_up import SIGNALS

AHEAD = 2  # items for each process that are in the making, or done and not yet handed out

Item = TypeVar("Item")
Result = TypeVar("Result")


class Killed(Exception):
    """A process ended before its result."""


class RaisedThere(Exception):
    """Its text is the traceback that an error had in its process."""


@dataclass(frozen=True)
class Answer(Generic[Result]):
    result: Result | None
    error: Exception | None
    traceback: str = ""

    def given(self) -> Result:
        """Raises what the work did."""
        if self.error is not None:
            raise self.error from RaisedThere(self.traceback)
        return cast(Result, self.result)


@dataclass(frozen=True)
class Worker(Generic[Item, Result]):
    process: SpawnProcess
    pipe: Connection

    def ask(self, item: Item) -> None:
        try:
            self.pipe.send(item)
        except OSError as error:
            raise Killed from error

    def answer(self) -> Answer[Result]:
        """Waits for it. Raises Killed."""
        try:
            return cast(Answer[Result], self.pipe.recv())
        except (EOFError, OSError) as error:
            raise Killed from error


@contextmanager
def side_by_side(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int, ahead: int = AHEAD
) -> Iterator[Iterator[Result]]:
    """`work(item)` of each, in their order. One worker is this process itself.

    The iterator raises what `work` does, and Killed. No process outlives the block.
    """
    if workers == 1:
        yield map(work, items)
        return
    started: list[Worker[Item, Result]] = []
    resource_tracker.ensure_running()  # the first process would start it, which lets signals in
    with temporary_folder() as temporaries:
        try:
            with signals_held():
                for _ in range(workers):
                    started.append(start(work, temporaries))
            yield in_order(iter(items), started, ahead * workers)
        finally:
            for worker in started:  # what they are at, nobody asks for any more
                worker.process.kill()
            for worker in started:
                worker.process.join()


@contextmanager
def temporary_folder() -> Iterator[str | None]:
    """Of processes that are killed, which remove nothing. None: there is no place for any."""
    with ExitStack() as until_removed:
        folder = None
        with suppress(OSError):
            made = tempfile.TemporaryDirectory(prefix="profiling-", ignore_cleanup_errors=True)
            folder = until_removed.enter_context(made)
        yield folder


def start(work: Callable[[Item], Result], temporaries: str | None) -> Worker[Item, Result]:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(work, theirs, temporaries), daemon=True)
    process.start()
    theirs.close()  # else the pipe does not end with the process
    return Worker(process, ours)


def serve(work: Callable[[Item], Result], pipe: Connection, temporaries: str | None) -> None:
    """A process: answers until nobody asks."""
    tempfile.tempdir = temporaries
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        while True:
            pipe.send(answered(work, pipe.recv()))
    except (EOFError, OSError):
        return


def answered(work: Callable[[Item], Result], item: Item) -> Answer[Result]:
    try:
        return Answer(work(item), None)
    except Exception as error:
        return Answer(None, error, format_exc())


def end_with_parent() -> None:
    """Where that is killed, nobody is left behind."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def in_order(
    items: Iterator[Item], workers: Sequence[Worker[Item, Result]], most: int
) -> Iterator[Result]:
    """Who is done takes the next item, while `most` at most are asked for and not handed out."""
    idle = [*workers]
    asked: dict[Connection, tuple[int, Worker[Item, Result]]] = {}
    found: dict[int, Answer[Result]] = {}
    count = handed_out = 0
    while True:
        for item in islice(items, min(len(idle), most - (count - handed_out))):
            worker = idle.pop()
            worker.ask(item)
            asked[worker.pipe] = count, worker
            count += 1
        if handed_out in found:
            handed_out += 1
            yield found.pop(handed_out - 1).given()
        elif asked:
            for pipe in wait([*asked]):
                number, worker = asked.pop(cast(Connection, pipe))
                found[number] = worker.answer()
                idle.append(worker)
        else:
            return


@contextmanager
def signals_held() -> Iterator[None]:
    """None comes while processes are started, and these never get one: this one answers, once."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
