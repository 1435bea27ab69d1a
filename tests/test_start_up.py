"""What is told at once imports none of the slow packages: seen in the processes themselves."""

import os
import re
import subprocess
import sys

import pytest

from profiling.__main__ import VERBS
from tests.paths import PROJECT

SLOW = {"torch", "torch._dynamo", "wandb"}
LAB = {"attention", "square", "device"}  # their flags' checks ask torch what it knows


def imported(*words: str) -> tuple[int, set[str]]:
    """The exit code of `python WORDS`, and the modules that it imported."""
    process = subprocess.run(
        [sys.executable, "-X", "importtime", *words],
        cwd=PROJECT,
        env=os.environ | {"COMP_LINE": "python train.py n_la"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    return process.returncode, set(re.findall(r"^import time:.*\| +(\S+)$", process.stderr, re.M))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "needed"),
    [
        ("train.py --help", 0, "hydra"),
        ("train.py shakespeare_char_cpu --help", 0, "hydra"),
        ("train.py n_layers=2", 2, "hydra"),
        ("train.py -m seed=1,x", 2, "hydra"),
        ("train.py --cfg job", 0, "hydra"),
        ("train.py -sc query=bash", 0, "hydra"),
        ("sample.py --help", 0, "cli.help"),
        ("sample.py tempreature=1", 2, "cli.help"),
        ("-m profiling", 0, "cli.errors"),
        ("-m profiling reprot", 2, "cli.errors"),
        ("-m profiling run n_layers=2", 2, "hydra"),
        *((f"-m profiling {verb} --help", 0, "cli.errors") for verb in VERBS if verb not in LAB),
    ],
)
def test_what_is_told_at_once_needs_no_torch(words, code, needed):
    ended, modules = imported(*words.split())
    assert ended == code
    assert needed in modules and not SLOW & modules
