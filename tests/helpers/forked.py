"""Python programs forked from a server that has torch, instead of started anew.

A process that imports torch and the trainer pays two seconds of a core first. Python's own start
and these imports are tested by programs that are started anew: `start(words, anew=True)`.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cache
from io import IOBase
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

from profiling.launch.any_program.start import VARIABLE
from tests.paths import PROJECT

TRAINER = (
    "torch._dynamo",  # fully_shard brings it, and so does a stack that gloo is asked for
    "train",
    "configs.command_line",
    "training.step.replicas",
    "training.step.shards",
    "training.disk.shard_files",
    "tests.helpers.warm_trainer",
)
INTERPRETER = ("tests.helpers.interpreted", "torch._dynamo")
HOOKED = """
import runpy, sys
from _profiling_attach import watch_torch  # what the sitecustomize of profiling/attach/hook does

watch_torch.start()
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""  # words: -c HOOKED SCRIPT ...; with the environment of profiling.launch.any_program.start
OURS = [PROJECT / name for name in ("train.py", "sample.py")]
servers: list[subprocess.Popen] = []


@cache
def server(*modules: str, **environ: str) -> socket.socket:
    """Socket of a server that has imported the modules; it ends with this process."""
    ours, theirs = socket.socketpair()
    words = [sys.executable, str(Path(__file__).with_name("fork_server.py")), *modules]
    environ = {**os.environ, "PYTHONPATH": str(PROJECT), **environ}
    # a pipe, for Python's streams note whether they can seek
    servers.append(subprocess.Popen(words, stdin=theirs, stdout=subprocess.PIPE, env=environ))
    theirs.close()
    return ours


def popen(words: list[str], *, env: dict[str, str], cwd: Path | None = None, **pipes):
    """Start a process as subprocess.Popen; fork train.py, sample.py, torchrun, hooked scripts."""
    unbuffered = {**env, "PYTHONUNBUFFERED": "1"}
    python, script, *_ = rest = [word for word in words if word != "-u"]
    if python == sys.executable and Path(cwd or "", script) in OURS:
        return Forked(rest[1:], unbuffered, folder=cwd)
    if rest[1:3] == ["-m", "torch.distributed.run"]:
        log = pipes["stdout"].fileno() if isinstance(pipes.get("stdout"), IOBase) else None
        words = ["-m", "tests.helpers.torchrun", *rest[3:]]
        return Forked(words, unbuffered, folder=cwd, output=log)
    if python == sys.executable and VARIABLE in env:
        return Forked(["-c", HOOKED, *words[1:]], unbuffered, folder=cwd)
    return subprocess.Popen(words, cwd=cwd, env=env, **pipes)


def trainer() -> socket.socket:
    return server(*TRAINER)


def interpreter() -> socket.socket:
    """Server whose Triton interprets: it reads TRITON_INTERPRET only once in a process."""
    return server(*INTERPRETER, TRITON_INTERPRET="1")


def with_wandb() -> socket.socket:
    """Server that has W&B's client, and not torch."""
    return server("tests.helpers.with_wandb")


class Forked:
    """Program as of subprocess.Popen, with one text pipe for all output and nothing on stdin.

    The pipe stays empty if a file descriptor is given, `output`.
    """

    def __init__(
        self,
        words: list[str],
        environ: dict[str, str],
        of: socket.socket | None = None,
        folder: Path | None = None,
        output: int | None = None,
    ) -> None:
        out, written = os.pipe()
        status, told = os.pipe()
        asked, request = os.pipe()  # at its end it is a stdin that holds nothing
        stream = written if output is None else output
        socket.send_fds(of or trainer(), [b"."], [asked, stream, stream, told])
        for fd in (asked, written, told):
            os.close(fd)
        with open(request, "w", encoding="utf-8") as file:
            where = str(folder or os.getcwd())
            json.dump({"words": words, "environ": environ, "folder": where}, file)
        self.args = words
        self.stdout = open(out, encoding="utf-8")  # noqa: SIM115
        self.status = open(status, "rb", buffering=0)  # noqa: SIM115
        self.pid = int(self.status.readline())
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self.status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = os.waitstatus_to_exitcode(int(self.status.readline()))
            self.status.close()
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        read: list[str] = []
        reader = Thread(target=lambda: read.append(self.stdout.read()), daemon=True)
        reader.start()
        reader.join(timeout)
        if reader.is_alive():
            raise subprocess.TimeoutExpired(self.args, timeout)
        self.wait(timeout)
        return read[0], None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ended just now
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


# stands for the module subprocess in profiling.launch.process
FORKING = SimpleNamespace(**{**vars(subprocess), "Popen": popen})
