"""Compare our Triton kernels with float64: interpreted on a CPU, compiled on a GPU."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from tests.helpers.forked import Forked, interpreter
from tests.paths import PROJECT

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
ON_GPU = pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])
DEVICES = ("cpu", ON_GPU)
LONG_DEVICES = (pytest.param("cpu", marks=pytest.mark.slow), ON_GPU)  # seconds of interpreting


# a library's thread once ended the process by std::terminate, on a GPU and after the last line
END = "\nimport os, sys; sys.stdout.flush(); os._exit(0)"


QUIET = "import warnings; warnings.simplefilter('ignore')\n"


def run(program: str, device: str, **environ: str) -> None:
    """Run a program in a process of its own, and assert that its last line is `right`.

    Triton reads TRITON_INTERPRET only once in a process. `environ` is added to the environment.
    """
    if device == "cpu":
        environ = {**os.environ, **environ, "TRITON_INTERPRET": "1"}
        forked = Forked(["-c", QUIET + program + END, device], environ, interpreter())
        said, _ = forked.communicate(timeout=300)
        assert forked.wait() == 0 and said.strip().endswith("right"), said[-3000:]
    else:
        run_anew(program, device, **environ)


def run_anew(program: str, device: str, **environ: str) -> None:
    """Do the same in a process that is not forked from one that has imported torch."""
    begin = "import tests.helpers.interpreted\n" if device == "cpu" else ""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", begin + program + END, device],
        cwd=PROJECT,
        env={**os.environ, **environ, "TRITON_INTERPRET": "1" if device == "cpu" else "0"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.strip().endswith("right")
