"""Run our programs in forks of this process, which has imported what they need.

The same code runs in a real process that can be killed and limited, in a hundredth of the time.
"""

import os
import resource
import runpy
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import hydra.compose  # noqa: F401
import torch

import configs.command_line  # noqa: F401  # these, so that no fork has to import them
import sample  # noqa: F401
import train  # noqa: F401
import training.profiler  # noqa: F401
from cli.process import begin
from data import prepare
from tests.paths import PROJECT

DATA_BYTES = 6 << 30  # an allocation beyond it is a MemoryError, as on a small machine
POLL_S = 0.005


@dataclass(frozen=True)
class ProcessEnd:
    status: int | None  # exit code; -N: killed by signal N; None: killed at the time limit
    out: str
    err: str
    wall_s: float


def use_data_folder(folder: Path) -> None:
    """Let all programs from here on prepare their texts in `folder`, not in the project's data/."""
    prepare.DATA_DIR = folder
    prepare.prepare.__defaults__ = (folder,)


def program(name: str, words: list[str]) -> Callable[[], None]:
    """Function that does what `python NAME.py WORDS` or `python -m NAME WORDS` would do."""
    if name == "data.prepare":
        return lambda: run_main(name, words, lambda: prepare.main(words))
    if name in ("profiling", "training.export"):
        run = runpy.run_module
        return lambda: run_main(name, words, lambda: run(name, run_name="__main__", alter_sys=True))
    path = str(PROJECT / f"{name}.py")
    return lambda: run_main(path, words, lambda: runpy.run_path(path, run_name="__main__"))


def run_main(name: str, words: list[str], main: Callable[[], object]) -> None:
    sys.argv = [name, *words]
    main()


@dataclass
class Child:
    """A fork that runs in the current folder and leads a process group, which signals go to."""

    pid: int
    out: IO[bytes]
    err: IO[bytes]
    began_s: float
    status: int | None = None

    def signal(self, number: int) -> None:
        os.killpg(self.pid, number)

    def has_ended(self) -> bool:
        if self.status is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if ended else None
        return self.status is not None

    def wait(self, until_s: float) -> ProcessEnd:
        """Wait for the end; kill the fork at `until_s` of time.perf_counter()."""
        while not self.has_ended():
            if time.perf_counter() > until_s:
                self.signal(signal.SIGKILL)
                os.waitpid(self.pid, 0)
                break
            time.sleep(POLL_S)
        wall_s = time.perf_counter() - self.began_s
        return ProcessEnd(self.status, read_output(self.out), read_output(self.err), wall_s)


def read_output(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode(errors="replace")


def run_in_fork(call: Callable[[], None], environ: Mapping[str, str], limit_s: float) -> ProcessEnd:
    """Run `call` in a fork until it ends or is killed after `limit_s`."""
    child = start_fork(call, environ)
    return child.wait(child.began_s + limit_s)


def start_fork(call: Callable[[], None], environ: Mapping[str, str]) -> Child:
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
    sys.stdout.flush()
    began_s, ready = time.perf_counter(), os.pipe()
    pid = os.fork()
    if not pid:
        os.setsid()
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        begin()  # as the first line of each program
        os.write(ready[1], b"x")
        os._exit(exit_code(call, environ))
    os.read(ready[0], 1)  # from here on it leads a group, which signals go to
    for end in ready:
        os.close(end)
    return Child(pid, out, err, began_s)


def exit_code(call: Callable[[], None], environ: Mapping[str, str]) -> int:
    """Run `call` in the fork, and return the exit code with which Python would end a process."""
    # text streams of its own: those of whoever runs the measurement may be no files
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    os.environ.update(environ)
    torch.set_num_threads(1)  # many small processes side by side would wait for one another
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
    warnings.simplefilter("ignore", RuntimeWarning)  # of a module that was imported before
    code: object = 0
    try:
        call()
    except SystemExit as ended:
        code = ended.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = 120
    return code if isinstance(code, int) else 0
