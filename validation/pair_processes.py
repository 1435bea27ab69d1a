"""Processes that hold a program's variants, their timed blocks, and windows between such.

`python -m validation pairs` starts them; validation/pair_programs is what runs in them.
"""

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring import PROJECT
from profiling.tools import nsight
from profiling.tools.nsys_tool import Nsys
from validation.framework_programs.parts import SMALL
from validation.frameworks import NSYS_OPTIONS
from validation.pair_programs.series import WITHOUT, Program
from validation.pair_records import Capture

CHILD = (sys.executable, "-m", "validation.pair_programs")
BLOCK_MS = 150.0  # a timed block takes about so long,
FEWEST, MOST = 3, 300  # or so many steps, in threes: whole rounds of what each third step does
LAPS = 5  # blocks without a profiler on each side of a window
STARTS_S, ANSWERS_S = 300.0, 120.0  # a process that has not started, or answered, by then is ended


@dataclass
class Window:
    """A capture as it was made, whose file is still where the profiler wrote it."""

    made: Path
    capture: Capture


class Child:
    """A process that holds variants of a program, and does what it is asked.

    With a path for a `report` it runs under nsys, without `nsys` on the CPU.
    """

    def __init__(
        self,
        program: Program,
        variants: Sequence[str],
        log: Path,
        nsys: Nsys | None,
        report: Path | None = None,
    ) -> None:
        self.variants, self.log = variants, log
        self.folder = tempfile.TemporaryDirectory(prefix="pairs-")
        address = str(Path(self.folder.name, "socket"))
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(address)
        self.listener.listen()
        self.connection: socket.socket | None = None
        command = [*CHILD, program.name, ",".join(variants), address]
        if nsys and report:
            options = [*NSYS_OPTIONS, "--capture-range-end=stop", "--force-overwrite=true"]
            command = [nsys.path, "profile", *options, "-o", str(report.with_suffix("")), *command]
        environ, _ = nsight.without_secrets()  # which nsys would keep
        environ |= program.environ if list(variants) != [WITHOUT] else {}
        environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # processes share the GPU's memory
        environ |= {} if nsys else {SMALL: "1", "JAX_PLATFORMS": "cpu"}
        with open(log, "ab") as file:
            self.process = subprocess.Popen(
                command,
                cwd=PROJECT,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for each in (self.connection, self.listener):
            if each:
                each.close()  # what nsys had started then ends, too
        self.folder.cleanup()

    def start(self) -> list[str]:
        """Wait for the variants that have warmed up, and return their names.

        Raises ValueError where the process ends before.
        """
        self.listener.settimeout(0.2)
        end = time.monotonic() + STARTS_S
        while self.connection is None:
            with suppress(TimeoutError):
                self.connection, _ = self.listener.accept()
            if self.process.poll() is not None or time.monotonic() > end:
                raise ValueError(f"{self.log.stem}: did not start; see {self.log}")
        self.connection.settimeout(STARTS_S)
        self.lines = self.connection.makefile("rw")
        made = self.answer().split()[1:] or list(self.variants)
        self.connection.settimeout(ANSWERS_S)
        return made

    def answer(self) -> str:
        """The next line. Raises ValueError where the process has ended, or does not answer."""
        line = ""
        with suppress(OSError):
            line = self.lines.readline()
        if not line:
            raise ValueError(f"{self.log.stem}: ended without an answer; see {self.log}")
        return line

    def say(self, command: str) -> None:
        with suppress(OSError):  # where it has ended, there is no answer
            self.lines.write(command + "\n")
            self.lines.flush()

    def ask(self, command: str) -> float:
        self.say(command)
        return float(self.answer())

    def finish(self) -> None:
        """Let the process end by itself, which nsys needs to write its report."""
        self.say("end")
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(ANSWERS_S)


class Lap:
    """Blocks of steps of a variant; each call times one, in ms a step."""

    def __init__(self, child: Child, variant: str, settle: int) -> None:
        self.child, self.variant, self.settle = child, variant, settle
        ms = self.ask(f"time {FEWEST} {settle}")
        self.steps = FEWEST * round(min(max(BLOCK_MS / ms / FEWEST, 1), MOST / FEWEST))

    def ask(self, task: str) -> float:
        return self.child.ask(f"{self.variant} {task}")

    def __call__(self) -> float:
        return self.ask(f"time {self.steps} {self.settle}")

    def window(self, tool: str, steps: int, made: Path) -> Window:
        """A window that the tool captures, between laps without it."""
        before_ms = [self() for _ in range(LAPS)]
        file = "" if tool == "nsys" else f" {made}"
        ms = self.ask(f"{tool.split('.')[0]} {steps}{file}")
        after_ms = [self() for _ in range(LAPS)]
        return Window(
            made, Capture(tool, self.variant, steps, ms, before_ms, after_ms, None, 0, "")
        )
