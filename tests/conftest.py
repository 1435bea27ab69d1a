"""Fixtures that tests of the trainer share: a small text, a tiny configuration, runs of it.

And one browser for all tests of pages.
"""

import atexit
import gc
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

from tests.helpers.chromium import chromium, start_over
from tests.helpers.forked import Forked
from tests.helpers.ranks import output_of_ranks
from tests.paths import FAKES, PROJECT

# Before torch is imported, here and in every child: tiny models gain nothing from threads, and
# with one thread all sums are made in one order.
os.environ["OMP_NUM_THREADS"] = "1"
# inductor's code for a CPU without vectors: it takes two thirds of the time to compile
os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "0"
# g++ does not optimize that code, which runs for less than a second
os.environ["TORCHINDUCTOR_DEBUG_COMPILE"] = "1"
# Some virtual machines announce AMX and die of its first instruction (a bfloat16 product).
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX10_1_512")
# compiled code of tests is not for the user's own runs
os.environ.setdefault(
    "TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir(), "profiling-nanogpt-tests"))
)

# A copy of the project, or an installation, is compiled by its first process and not by each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# what lies in the user's own cache decides no test
os.environ["HF_HUB_CACHE"] = str(Path(tempfile.gettempdir(), "no-hub-cache"))

# A shell's jobs in the background ignore Ctrl-C, and so would every program started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Under nohup they would ignore a hangup. A handler that does nothing is not inherited, and tests
# survive the hangup, also those in the processes of pytest-xdist, which have not inherited nohup.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN or "PYTEST_XDIST_WORKER" in os.environ:
    signal.signal(signal.SIGHUP, lambda *_: None)

# trains in a millisecond an iteration
TINY = dict(
    device="cpu",
    dtype="float32",
    compile=False,
    n_layer=2,
    n_head=2,
    n_embd=32,
    block_size=32,
    batch_size=4,
    dropout=0.0,
    max_iters=8,
    lr_decay_iters=100,
    warmup_iters=4,
    eval_interval=4,
    log_interval=1,
    learning_rate=1e-2,
    min_lr=1e-3,
)


def pytest_collection() -> None:
    """Collect no garbage meanwhile: modules and tests stay, and would be looked at ever again."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave modules and tests out of later collections: pytest alone makes five at its end."""
    gc.freeze()
    atexit.register(gc.unfreeze)  # Triton's library prints what it finds alive behind Python's end
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files with slow tests first: of several processes, none is then left alone with one."""
    with_slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in with_slow)


@pytest.fixture(autouse=True)
def logging_as_before():
    """The trainer takes over the root logger; the next test gets it back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    names = ("train", "training", "data", "configs", "profiling")
    levels = {name: logging.getLogger(name).level for name in names}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(autouse=True)
def no_py_spy(request, monkeypatch):
    """`run` in this process does not start py-spy, which takes a part of a second, but where tests
    are about it."""
    if "py_spy" not in request.node.path.stem and "sampling" not in request.node.path.stem:
        from profiling.tools import py_spy

        monkeypatch.setattr(py_spy, "find", lambda: None)


@pytest.fixture(scope="session")
def text_file(tmp_path_factory) -> Path:
    """Some pages of the built-in play; the process id in its name separates parallel test runs."""
    from data.standin import stand_in_text

    path = tmp_path_factory.mktemp("text") / f"test-{os.getpid()}.txt"
    path.write_text(stand_in_text(length=12_000), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def config(text_file, tmp_path):
    """config(**keys): the tiny configuration, writing to tmp_path/out."""
    from configs.schema import Config
    from configs.training import WandbConfig

    def make(**keys):
        wandb = keys.pop("wandb", None) or WandbConfig(mode="disabled")
        fixed = {"data_source": str(text_file), "out_dir": str(tmp_path / "out"), "wandb": wandb}
        return Config(**{**TINY, **fixed, **keys})

    return make


@pytest.fixture
def compiled_to_no_code(monkeypatch):
    """torch.compile traces and differentiates, but inductor writes no C++, which takes seconds."""
    import torch

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))


@pytest.fixture
def prepared(data_dir):
    """prepared(config): the configuration's Dataset, in a folder of the tests' own."""
    from data.prepare import prepare

    return partial(prepare, data_dir=data_dir)


@pytest.fixture
def run(config, prepared, monkeypatch):
    """run(**keys): trains the tiny configuration in this process; returns its out_dir."""
    import train

    monkeypatch.setattr(train, "prepare", prepared)

    def train_tiny(**keys) -> Path:
        made = config(**keys)
        train.train(made)
        return Path(made.out_dir)

    return train_tiny


@pytest.fixture(scope="session")
def project_data(text_file):
    """Remove what trainers in processes of their own prepared under data/."""
    yield
    for folder in (PROJECT / "data").glob(f"*{text_file.stem}*"):
        shutil.rmtree(folder)


@pytest.fixture
def command(text_file, tmp_path, project_data):
    """command(**keys): the words after `python` that train the tiny configuration."""

    def words(**keys) -> list[str]:
        fixed = {"data_source": str(text_file), "out_dir": str(tmp_path / "out")}
        merged = {**TINY, **fixed, "wandb.mode": "disabled", **keys}
        spelled = {True: "true", False: "false", None: "null"}
        return [
            str(PROJECT / "train.py"),
            *(
                f"{key}={spelled.get(value, value) if isinstance(value, bool) else value}"
                for key, value in merged.items()
            ),
        ]

    return words


@pytest.fixture
def start():
    """start(words): a Python process, whose output is a text pipe; it is killed after the test.

    It is forked from one that has torch, unless it is to be started `anew`.
    """
    started = []

    def process(words: list[str], anew: bool = False, **environ: str) -> Forked | subprocess.Popen:
        environ = {**os.environ, "PYTHONUNBUFFERED": "1", **environ}
        started.append(in_a_new_python(words, environ) if anew else Forked(words, environ))
        return started[-1]

    yield process
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


def in_a_new_python(words: list[str], environ: dict[str, str]) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, *words],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def together(command, tmp_path):
    """together(ranks, **keys): trains on several ranks; returns the out_dir and their output.

    `script` replaces train.py.
    """

    def train(ranks: int, script: Path | None = None, **keys):
        train_py, *words = command(**keys)
        return tmp_path / "out", output_of_ranks(ranks, [str(script or train_py), *words])

    return train


@pytest.fixture
def rows():
    """rows(out_dir): {iteration: row} of metrics.jsonl; later values replace earlier ones."""

    def read(out_dir: Path) -> dict[int, dict]:
        merged: dict[int, dict] = {}
        for line in (out_dir / "metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            if "run" not in row:
                merged.setdefault(row["iter"], {}).update(row)
        return merged

    return read


@pytest.fixture
def losses(rows):
    """losses(out_dir): {iteration: (train/loss, val/loss, eval/train_loss)}, None where absent."""

    def read(out_dir: Path) -> dict[int, tuple]:
        keys = ("train/loss", "val/loss", "eval/train_loss")
        return {i: tuple(row.get(key) for key in keys) for i, row in rows(out_dir).items()}

    return read


@pytest.fixture
def assert_trained_alike(losses):
    """assert_trained_alike(out_dir, alone, count): the runs have `count` rows of equal losses."""

    def check(out_dir: Path, alone: Path, count: int) -> None:
        made, expected = losses(out_dir), losses(alone)
        assert made.keys() == expected.keys() == set(range(count))
        for iteration, row in made.items():
            assert row == pytest.approx(expected[iteration], abs=1e-5), iteration

    return check


@pytest.fixture(scope="session")
def one_chromium():
    with chromium() as driver:
        yield driver


@pytest.fixture(scope="module")
def browser(one_chromium):
    """The browser of all files; a file finds nothing of what tests of another one chose."""
    yield one_chromium
    start_over(one_chromium)


# train.py with the CUDA runtime replaced, so that profile=nsys works on a CPU
WITH_FAKE_CUDART = """
import ctypes, os, torch, train
from configs import command_line
from configs.profiling import ProfileConfig

torch.cuda.cudart = lambda: ctypes.CDLL(os.environ["FAKE_CUDART"])
ProfileConfig.check_machine = lambda *_: None
command_line.run(train.train)
"""


@pytest.fixture(scope="session")
def fake_libraries(tmp_path_factory) -> dict[str, Path]:
    """The C files of tests/fakes as shared libraries."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("libraries")
    built = {}
    for source in FAKES.glob("fake_*.c"):
        built[source.stem] = folder / f"{source.stem}.so"
        command = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", source]
        subprocess.run([*command, "-o", built[source.stem]], check=True)
    return built


@pytest.fixture
def events_of(fake_libraries, command, start, tmp_path):
    """events_of(**keys): the NVTX ranges and cudart calls of a run, lines of the fakes' log."""

    def run(exit_code=0, environ=None, **keys) -> list[list[str]]:
        log = tmp_path / "events"
        log.write_text("")
        script, *words = command(**keys)
        process = start(
            ["-c", WITH_FAKE_CUDART, *words],
            PYTHONPATH=str(PROJECT),
            NVTX_INJECTION64_PATH=str(fake_libraries["fake_nvtx"]),
            FAKE_CUDART=str(fake_libraries["fake_cudart"]),
            CAPTURE_LOG=str(log),
            **(environ or {}),
        )
        output = process.communicate(timeout=90)[0]
        assert process.returncode == exit_code, output
        run.output = output
        return [line.split("|") for line in log.read_text().splitlines()]

    return run
