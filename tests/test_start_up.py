"""Start-up: quick answers import none of the slow packages, as seen in the processes."""

import ast
import os
import re
import subprocess
import sys

import pytest

from cli import process
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
        ("-m profiling report --help", 0, "cli.errors"),
    ],
)
def test_what_is_told_at_once_needs_no_torch(words, code, needed):
    ended, modules = imported(*words.split())
    assert ended == code
    assert needed in modules and not SLOW & modules


HELP = """
import runpy, sys

slow, *verbs = sys.argv[1:]
for verb in verbs:
    sys.argv = ["profiling", verb, "--help"]
    try:
        runpy.run_module("profiling", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        assert not ended.code, verb
    assert not sys.modules.keys() & slow.split(), verb
"""


@pytest.mark.slow
def test_the_help_of_every_verb_needs_no_torch():
    """One process has all verbs: what one imports is there after the next, too."""
    verbs = [verb for verb in VERBS if verb not in LAB]
    words = [sys.executable, "-c", HELP, " ".join(SLOW), *verbs]
    ended = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, timeout=150)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("usage: python -m profiling ") == len(verbs)


RUNS = """
import runpy, sys

for words in sys.argv[1:]:
    sys.argv = ["train.py", *words.split()]
    runpy.run_path("train.py", run_name="__main__")
    assert "torch" in sys.modules and "torch._dynamo" not in sys.modules, words
print("all of them")
"""


@pytest.mark.slow
def test_runs_that_compile_nothing_bring_no_dynamo(tmp_path, text_file):
    """One process runs all: what a run brings is there after the next, too."""
    keys = "device=cpu compile=false n_layer=1 n_head=2 n_embd=16 block_size=16 batch_size=2"
    keys += " attention=flash kernels=compiled"  # as a CPU can
    keys += " max_iters=2 eval_iters=1 wandb.mode=disabled always_save_checkpoint=true"
    keys += f" data_source={text_file}"
    recipes = [f"{keys} recipe={name} out_dir={tmp_path}/{name}" for name in ("nanogpt", "fast")]
    runs = [run + more for run in recipes for more in ("", " init_from=resume max_iters=3")]
    words = [sys.executable, "-c", RUNS, *runs]
    ended = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, timeout=150)
    assert ended.returncode == 0 and ended.stdout.endswith("all of them\n"), ended.stderr
    assert all((tmp_path / name / "ckpt.pt").exists() for name in ("nanogpt", "fast"))


def test_how_threads_wait_is_the_user_s_or_ours():
    ask = "from cli import process; process.begin(); print(process.wait_variables())"
    for given, spin in (
        ({}, str(process.ROUNDS)),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "passive"}, None),
    ):
        environ = {k: v for k, v in os.environ.items() if k not in process.VARIABLES} | given
        told = subprocess.check_output([sys.executable, "-c", ask], cwd=PROJECT, env=environ)
        assert ast.literal_eval(told.decode())["GOMP_SPINCOUNT"] == spin
