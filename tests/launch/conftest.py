"""Processes that talk to a W&B of our own."""

import os
import subprocess
import sys

import pytest

from tests.helpers.planted_secrets import PRESENT
from tests.paths import PROJECT


@pytest.fixture
def shell(tmp_path):
    """shell(words, **environ): a Python process in tmp_path, without this machine's W&B."""

    def run(*words: str, **environ: str) -> subprocess.CompletedProcess:
        inherited = {k: v for k, v in os.environ.items() if "WANDB" not in k and "proxy" not in k}
        home = {"HOME": str(tmp_path), "PYTHONPATH": str(PROJECT), "SOME_API_KEY": PRESENT}
        return subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=inherited | home | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run
