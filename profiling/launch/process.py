"""Running a program to its end: its output streams through, and Ctrl-C ends it in good order."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import IO, Protocol

from cli.interrupts import handle_signals
from cli.pipes import drop_unread

TAIL_BYTES = 100_000  # end of the output, kept to explain what went wrong
POLL_S = 0.05  # delay in seeing the end if something that the program started holds the pipe


class Output(Protocol):
    """A receiver of a program's output, chunk by chunk as it comes, such as a binary file."""

    def write(self, chunk: bytes, /) -> object: ...

    def flush(self) -> object: ...


@dataclass(frozen=True)
class Ended:
    status: int  # the exit code, as a shell has it
    output: str  # the last TAIL_BYTES of it
    stopped_by: int | None  # SIGINT (Ctrl-C), SIGTERM or SIGHUP, however the program ended then


def stream(
    words: list[str],
    environ: dict[str, str],
    to: Output | None = None,
    folder: Path | None = None,
) -> Ended:
    """Run the command in `folder`, or here; its output goes to `to`, by default our own output.

    It gets a process group of its own and is sent each Ctrl-C, SIGTERM and SIGHUP once, as SIGINT,
    however we got it: training then ends its window, and nsys writes the report. If it ends by
    that, the exit code is our own signal's: 143 for SIGTERM. Raises ValueError for a command that
    cannot be started.
    """
    try:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,  # a background group that reads the terminal would be stopped
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    except OSError as error:
        reason = f"{error.strerror}; name the program that runs it"
        raise ValueError(f"{words[0]}: {reason}") from error

    caught: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        if number == signal.SIGHUP:
            drop_unread()  # the terminal is gone, but the program's output must still be read
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)

    assert process.stdout is not None  # it is a pipe
    with handle_signals(forward):
        try:
            tail = copy_output(process, process.stdout, to or sys.stdout.buffer)
            status = process.wait()
        finally:
            if process.poll() is None:  # our own output failed: nobody would watch the training
                forward(signal.SIGINT, None)
            process.stdout.close()
    status = status if status >= 0 else 128 - status
    stopped_by = caught[0] if caught else None
    if stopped_by and status == 128 + signal.SIGINT:
        status = 128 + stopped_by
    return Ended(status, tail.decode(errors="replace"), stopped_by)


def copy_output(process: subprocess.Popen[bytes], pipe: IO[bytes], to: Output) -> bytes:
    """Copy the pipe to `to` until the process ends, even if another one still holds the pipe.

    Returns the last TAIL_BYTES.
    """
    tail = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], POLL_S)
        if ready:
            chunk = os.read(pipe.fileno(), 65536)
            if not chunk:
                return tail
            to.write(chunk)
            to.flush()
            tail = (tail + chunk)[-TAIL_BYTES:]
        elif process.poll() is not None:
            return tail


def process_beside() -> ProcessPoolExecutor:
    """Start a process that runs what is submitted. It ignores Ctrl-C, which this one handles."""
    quiet = (signal.SIGINT, signal.SIG_IGN)
    return ProcessPoolExecutor(1, get_context("spawn"), signal.signal, quiet)
