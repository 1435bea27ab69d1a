"""A function called for many items in parallel processes, with its results in the items' order.

Each process is a fresh Python with a pipe of its own. Those of concurrent.futures share one pipe
for their results: if a process is killed while it writes, the reader waits for the rest for ever.
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

from cli.process import SIGNALS

AHEAD = 2  # items for each process that are being worked on, or done and not yet handed out

Item = TypeVar("Item")
Result = TypeVar("Result")


class Killed(Exception):
    """A process ended before it sent its result."""


class RaisedThere(Exception):
    """Cause of an error that a worker raised; its text is the traceback in that process."""


@dataclass(frozen=True)
class Answer(Generic[Result]):
    result: Result | None
    error: Exception | None
    traceback: str = ""

    def unwrap(self) -> Result:
        """The result; or raises the error that the work raised."""
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
        """Wait for the answer to the oldest item asked. Raises Killed."""
        try:
            answer: Answer[Result] = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise Killed from error
        return answer


@contextmanager
def side_by_side(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int, ahead: int = AHEAD
) -> Iterator[Iterator[Result]]:
    """Yield an iterator over `work(item)` of each item, in their order.

    One worker is this process itself. Each worker has up to `ahead` items that are not handed out
    yet. The iterator raises what `work` raises, and Killed. No process outlives the block.
    """
    if workers == 1:
        yield map(work, items)
        return
    started: list[Worker[Item, Result]] = []
    resource_tracker.ensure_running()  # the first process would start it, which lets signals in
    with temporary_folder() as temporaries:
        try:
            with block_signals():
                for _ in range(workers):
                    started.append(start(work, temporaries))
            yield results_in_order(iter(items), started, ahead * workers)
        finally:
            for worker in started:  # nobody needs the results any more
                worker.process.kill()
            for worker in started:
                worker.process.join()


@contextmanager
def temporary_folder() -> Iterator[str | None]:
    """A temporary folder for workers, which are killed before they clean up.

    Yields None if none can be made.
    """
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
    """Run a worker process: answer each item that comes, until the pipe is closed."""
    tempfile.tempdir = temporaries
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        while True:
            pipe.send(answer_to(work, pipe.recv()))
    except (EOFError, OSError):
        return


def answer_to(work: Callable[[Item], Result], item: Item) -> Answer[Result]:
    try:
        return Answer(work(item), None)
    except Exception as error:
        return Answer(None, error, format_exc())


def end_with_parent() -> None:
    """Wait for the parent process to end, then end this one: if it is killed, no worker is left."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def results_in_order(
    items: Iterator[Item], workers: Sequence[Worker[Item, Result]], most: int
) -> Iterator[Result]:
    """Results in the items' order; each worker that is done gets the next item.

    At most `most` items are with the workers or done and not yet handed out.
    """
    idle = [*workers]
    pending: dict[Connection, tuple[int, Worker[Item, Result]]] = {}
    answers: dict[int, Answer[Result]] = {}
    count = handed_out = 0
    while True:
        for item in islice(items, min(len(idle), most - (count - handed_out))):
            worker = idle.pop()
            worker.ask(item)
            pending[worker.pipe] = count, worker
            count += 1
        if handed_out in answers:
            handed_out += 1
            yield answers.pop(handed_out - 1).unwrap()
        elif pending:
            for pipe in wait([*pending]):
                number, worker = pending.pop(cast(Connection, pipe))
                answers[number] = worker.answer()
                idle.append(worker)
        else:
            return


@contextmanager
def block_signals() -> Iterator[None]:
    """Block signals while processes are started.

    The workers inherit the block and never get one: this process alone handles a signal, once.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
