"""Trainings that start up at once and then train one after the other. Called by planted_ranks.

Start-up takes most of a short training and leaves the GPUs idle. So trainings start at once, and
each rank waits before its warm-up until it is its training's turn: no training compiles, times
kernels or trains while another one does. It waits again before its first iteration, until the
processes of the one before have ended. One that waits holds its weights and optimizer on the GPU.

Each training has a temporary folder with an empty file for each thing that has happened. Its
processes inherit the path of that folder, by which they are found and ended.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from benchmarks.measuring import PROJECT
from cli.interrupts import handle_signals

P = ParamSpec("P")
R = TypeVar("R")

TURN = "TURN"  # variable with the path of the training's temporary folder
WARM_UP, TRAIN = "warm up", "train"  # what a training may do
READY, ENDED = "ready", "ended"  # what is noted of a rank
POLL_S = 0.05
GRACE_S = 10.0  # for trainings that are ended early, before they are killed


def in_turn(warm_up: Callable[P, R]) -> Callable[P, R]:
    """`warm_up` of a rank that notes that it is ready, and waits until it may, and may train."""

    @wraps(warm_up)
    def wait_and_warm_up(*args: P.args, **kwargs: P.kwargs) -> R:
        note(READY)
        wait_until_allowed(WARM_UP)
        result = warm_up(*args, **kwargs)
        wait_until_allowed(TRAIN)
        return result

    return wait_and_warm_up


def wait_until_allowed(what: str) -> None:
    while not (Path(os.environ[TURN]) / what).exists():
        time.sleep(POLL_S)


def note(what: str) -> None:
    """Note for the process that gives turns that `what` has happened to this rank."""
    (Path(os.environ[TURN]) / f"{what}-{os.environ.get('RANK', '0')}").touch()


@dataclass(frozen=True)
class Training:
    """A training that was started, and may wait for its turn."""

    out_dir: Path
    ranks: int
    turn: Path  # its temporary folder
    process: subprocess.Popen[bytes]

    def wait_for(self, what: str) -> None:
        """Wait until `what` is noted of all ranks, or the training has ended."""
        while self.process.poll() is None:
            if all((self.turn / f"{what}-{rank}").exists() for rank in range(self.ranks)):
                return
            time.sleep(POLL_S)

    def allow(self, what: str) -> None:
        (self.turn / what).touch()

    def finish(self) -> int:
        """Wait for its end; return its exit code."""
        status = self.process.wait()
        shutil.rmtree(self.turn, ignore_errors=True)
        return status


def start(
    command: Sequence[str], out_dir: Path, environ: Mapping[str, str], ranks: int
) -> Training:
    """Start a training into `out_dir`; its output is in OUT_DIR.log."""
    turn = Path(tempfile.mkdtemp(prefix="turn-"))
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    with open(out_dir.with_suffix(".log"), "wb") as log:
        process = subprocess.Popen(
            [*command, f"out_dir={out_dir}"],
            cwd=PROJECT,
            env={**os.environ, **environ, TURN: str(turn)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return Training(out_dir, ranks, turn, process)


def take_turns(trainings: Sequence[Training]) -> None:
    """Let trainings train in their order, once all have started up.

    All have trained then, and all processes but those of the last have ended.
    """
    for training in trainings:
        training.wait_for(READY)
    before: Training | None = None
    for training in trainings:
        training.allow(WARM_UP)
        if before:
            before.process.wait()  # a tool may still work, and would beside the training
        training.allow(TRAIN)
        training.wait_for(ENDED)
        before = training


@contextmanager
def ended_at_exit(trainings: Sequence[Training]) -> Iterator[None]:
    """End the trainings that the list still has when the block is left, by an error or a signal."""
    try:
        yield
    finally:
        with handle_signals(signal.SIG_IGN):
            end(trainings)


def end(trainings: Sequence[Training]) -> None:
    """End trainings, and kill what is left of them after GRACE_S."""
    for training in trainings:
        training.process.terminate()
    until_s = time.monotonic() + GRACE_S
    for training in trainings:
        with suppress(subprocess.TimeoutExpired):
            training.process.wait(max(0.0, until_s - time.monotonic()))
        kill_processes(training.turn)
        training.finish()


def kill_processes(turn: Path) -> None:
    """Kill all processes of a training: nsys and torchrun give theirs sessions of their own."""
    inherited = f"{TURN}={turn}".encode()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another user's
            if inherited in environ.read_bytes().split(b"\0"):
                os.kill(int(environ.parent.name), signal.SIGKILL)
