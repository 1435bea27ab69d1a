"""A function of many items, in processes side by side. Called by files.

Each process has a pipe of its own. Those of concurrent.futures write their results into one: where
a process is killed while it writes, the reader waits for the rest of it without end.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from traceback import format_exc
from typing import Generic, TypeVar, cast

Item = TypeVar("Item")
Result = TypeVar("Result")


class Killed(Exception):
    """A process ended before its result."""


@dataclass(frozen=True)
class Worker(Generic[Item, Result]):
    process: SpawnProcess
    pipe: Connection

    def ask(self, item: Item) -> None:
        try:
            self.pipe.send(item)
        except OSError as error:
            raise Killed from error

    def answer(self) -> Result:
        """Waits for it. Raises what the work did, or Killed."""
        try:
            result, error = self.pipe.recv()
        except (EOFError, OSError) as ended:
            raise Killed from ended
        if error is not None:
            raise error
        return cast(Result, result)


def side_by_side(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    workers: int,
    progress: Callable[[int], None],
) -> list[Result]:
    """`work(item)` of each, in their order; `progress` is told how many there are.

    Raises what `work` does, and Killed. No process outlives it.
    """
    started: list[Worker[Item, Result]] = []
    resource_tracker.ensure_running()  # the first process would start it, which lets signals in
    try:
        with signals_held():
            for _ in range(workers):
                started.append(start(work))
        return shared_out(items, started, progress)
    finally:
        for worker in started:  # what they are at, nobody asks for any more
            worker.process.kill()
        for worker in started:
            worker.process.join()


def start(work: Callable[[Item], Result]) -> Worker[Item, Result]:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(work, theirs), daemon=True)
    process.start()
    theirs.close()  # else the pipe does not end with the process
    return Worker(process, ours)


def serve(work: Callable[[Item], Result], pipe: Connection) -> None:
    """A process: answers until nobody asks."""
    try:
        while True:
            answer: tuple[Result | None, Exception | None]
            item = pipe.recv()
            try:
                answer = work(item), None
            except Exception as error:
                error.add_note(format_exc())  # its traceback stays here
                answer = None, error
            pipe.send(answer)
    except (EOFError, BrokenPipeError):
        return


def shared_out(
    items: Sequence[Item], workers: Sequence[Worker[Item, Result]], progress: Callable[[int], None]
) -> list[Result]:
    """Who is done takes the next one."""
    found: dict[int, Result] = {}
    asked: dict[Connection, tuple[int, Worker[Item, Result]]] = {}
    idle = [*workers]
    for number, item in enumerate(items):
        if not idle:
            idle = answered(asked, found, progress)
        worker = idle.pop()
        worker.ask(item)
        asked[worker.pipe] = number, worker
    while asked:
        answered(asked, found, progress)
    return [found[number] for number in range(len(items))]


def answered(
    asked: dict[Connection, tuple[int, Worker[Item, Result]]],
    found: dict[int, Result],
    progress: Callable[[int], None],
) -> list[Worker[Item, Result]]:
    """Waits for the first of those that were asked, or for several; they are idle then."""
    idle = []
    for pipe in wait([*asked]):
        number, worker = asked.pop(cast(Connection, pipe))
        found[number] = worker.answer()
        idle.append(worker)
        progress(len(found))
    return idle


@contextmanager
def signals_held() -> Iterator[None]:
    """None comes while processes are started, and these never get one: this one answers, once."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
