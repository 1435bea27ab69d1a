"""Ranks started by torchrun that do together what they are asked, with nsys in each or without.

`python -m validation foreign_ranks` starts them; validation.rank_programs is what runs in them.
"""

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from benchmarks.measuring import PROJECT, launcher
from profiling.launch import command
from profiling.tools.nsys_tool import Nsys

PROGRAM = ["-m", "validation.rank_programs"]
STARTS_S, ANSWERS_S = 150.0, 90.0  # ranks that have not started, or answered, by then are ended
ENDS_S = 90.0  # nsys writes its reports


class Group:
    """The ranks of one program.

    With `nsys` each runs under it, which writes so many reports to the folder `reports`.
    """

    def __init__(
        self,
        program: str,
        ranks: int,
        log: Path,
        environ: Mapping[str, str],
        nsys: Nsys | None = None,
        reports: Path = Path(),
        windows: int = 1,
    ) -> None:
        self.ranks, self.log, self.reports = ranks, log, reports
        self.folder = tempfile.TemporaryDirectory(prefix="ranks-")
        address = str(Path(self.folder.name, "socket"))
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(address)
        self.listener.listen()
        self.connections: list[socket.socket] = []
        self.lines: list[IO[str]] = []
        words = [sys.executable, *launcher(ranks), *PROGRAM, program, address]
        if nsys:
            reports.mkdir(parents=True, exist_ok=True)
            # one more than there are: nsys then numbers the reports, and lets the program go on
            options, _ = command.nsys_options(nsys, "light", windows + 1, None, True, [])
            target = [sys.executable, *PROGRAM, program, address]
            everyone = list(range(ranks))
            words = command.whole_command(nsys, options, reports, target, ranks, everyone)
        with open(log, "wb") as file:
            self.process = subprocess.Popen(
                words, cwd=PROJECT, env=environ, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.connections:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # a rank that waits for a command ends
        self.listener.close()
        self.process.terminate()  # torchrun then ends its ranks
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def start(self) -> None:
        """Wait until all ranks have warmed up. Raises ValueError where one does not."""
        self.listener.settimeout(0.2)
        end_s = time.monotonic() + STARTS_S
        while len(self.connections) < self.ranks:
            with suppress(TimeoutError):
                self.connections.append(self.listener.accept()[0])
            if self.process.poll() is not None or time.monotonic() > end_s:
                raise ValueError(f"{self.log.stem}: did not start; see {self.log}")
        for connection in self.connections:
            connection.settimeout(STARTS_S)
            self.lines.append(connection.makefile("rw"))
        self.answers()  # ready
        for connection in self.connections:
            connection.settimeout(ANSWERS_S)

    def answers(self) -> list[str]:
        """A line of each rank. Raises ValueError where one has ended, or does not answer."""
        found = []
        for lines in self.lines:
            line = ""
            with suppress(OSError):
                line = lines.readline()
            if not line:
                raise ValueError(f"{self.log.stem}: ended without an answer; see {self.log}")
            found.append(line)
        return found

    def say(self, line: str) -> None:
        for lines in self.lines:
            with suppress(OSError):  # where it has ended, there is no answer
                lines.write(line + "\n")
                lines.flush()

    def ask(self, line: str) -> float:
        """Milliseconds a step of the rank that took the longest."""
        self.say(line)
        return max(map(float, self.answers()))

    def finish(self) -> None:
        """Let the ranks end by themselves, which nsys needs to write its reports."""
        self.say("end")
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(ENDS_S)
