"""Processes that a launcher starts, and those that talk to a W&B of our own."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from profiling.launch import process
from profiling.launch.any_program import start
from tests.helpers.forked import FORKING, HOOKED, Forked, with_wandb
from tests.helpers.planted_secrets import PRESENT
from tests.paths import PROJECT


@pytest.fixture
def shell(tmp_path):
    """shell(*words, **environ): a Python process in tmp_path, without this machine's W&B.

    It is forked from a process that has W&B, or torch if `trainer`, unless it is started `anew`.
    Its stdout has stderr as well.
    """

    def run(
        *words: str, trainer: bool = False, anew: bool = False, **environ: str
    ) -> subprocess.CompletedProcess:
        inherited = {k: v for k, v in os.environ.items() if "WANDB" not in k and "proxy" not in k}
        home = {"HOME": str(tmp_path), "PYTHONPATH": str(PROJECT), "SOME_API_KEY": PRESENT}
        environ = inherited | home | environ
        if anew:
            return subprocess.run(
                [sys.executable, *words],
                cwd=tmp_path,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
            )
        process = Forked(list(words), environ, None if trainer else with_wandb(), tmp_path)
        output, _ = process.communicate(timeout=60)
        return subprocess.CompletedProcess(words, process.returncode, output, "")

    return run


@pytest.fixture
def forked(monkeypatch):
    """Let launchers fork our trainer, sample.py and hooked scripts from a process that has torch.

    Others of their tests start both anew, as users do.
    """

    monkeypatch.setattr(process, "subprocess", FORKING)


@pytest.fixture
def forked_program(monkeypatch):
    """Let `run` fork a hooked program, or its ranks, from a process that has torch.

    forked_program(code) lets it run this code first.
    """

    def popen(words: list[str], env: dict[str, str], stdout: None) -> Forked:
        if first:
            process = Forked(["-c", first + HOOKED, *words[1:]], env)
        else:
            process = FORKING.Popen(words, env=env)
        print(process.communicate(timeout=60)[0], end="", flush=True)
        return process

    def run_first(code: str) -> None:
        nonlocal first
        first = code

    first = ""
    monkeypatch.setattr(start, "subprocess", SimpleNamespace(Popen=popen))
    return run_first
