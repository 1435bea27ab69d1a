"""A process that answers lines: several of them are timed in turns, from outside."""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from benchmarks.measuring import PROJECT

LONGEST_S = 120.0  # a process that has not answered by then is ended


class AnsweringProcess:
    """A process that answers each line of stdin by a line; it ends with the `with` block.

    Its stderr goes to the file `log`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.log = name, log
        with open(log, "wb") as file:
            self.process = subprocess.Popen(
                command,
                cwd=PROJECT,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                bufsize=1,
                start_new_session=True,
            )

    def __enter__(self) -> "AnsweringProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.process.communicate()

    def kill(self) -> None:
        """Kill the process and those that it started, which would keep its pipes open."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def ask(self, command: str = "") -> float:
        """The number that answers a line. Raises ValueError where the process ends without one."""
        with suppress(BrokenPipeError):  # it has ended, which `answer` reports
            self.pipe("stdin").write(command + "\n")
        return float(self.answer())

    def answer(self) -> str:
        """The next line. Raises ValueError with its last words where the process ends instead."""
        timer = threading.Timer(LONGEST_S, self.kill)
        timer.start()
        try:
            line = self.pipe("stdout").readline()
            status = None if line else self.process.wait()
        finally:
            timer.cancel()
        if status is not None:
            words = " ".join(self.log.read_text(errors="replace").split())[-300:]
            raise ValueError(f"{self.name} ended with {status} and no answer: {words}")
        return line.strip()

    def end(self, command: str) -> None:
        """Send the line at which the process ends by itself, and wait until it has ended.

        Raises ValueError if it, or a process that it started, is there after LONGEST_S.
        """
        try:
            self.process.communicate(f"{command}\n", LONGEST_S)
        except subprocess.TimeoutExpired:
            raise ValueError(f"{self.name} was not at its end after {LONGEST_S:g} s") from None

    def pipe(self, name: str) -> IO[str]:
        pipe: IO[str] = getattr(self.process, name)
        return pipe
