"""Samples of Python's stack in windows of `run -- COMMAND`, by py-spy."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

from profiling.analysis.open_report import open_report
from profiling.launch.any_program import sampling
from profiling.launch.any_program.start import HOOK
from profiling.tools import py_spy
from profiling.verbs import run
from tests.helpers.forked import HOOKED, Forked
from tests.helpers.hooked import hooked

PYTHON = sys.executable
BEGIN = """
import json, os, sys, threading, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train_step(batch):
    model(batch).square().mean().backward()
    optimizer.step(); optimizer.zero_grad()
"""
# collate takes 2 % of the loader's time, and lets Python's lock go in each call
LOADER = (
    BEGIN
    + """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 10_000
    def __getitem__(self, index):
        end_s = time.perf_counter() + 0.001
        while time.perf_counter() < end_s:
            pass
        return torch.zeros(16)
for step, batch in enumerate(torch.utils.data.DataLoader(Rows(), batch_size=20)):
    train_step(batch)
    if step == 60:
        break
"""
)
# most of a step is in a function of C, and other threads compute
THREADS = (
    BEGIN
    + """
def other():
    while True:
        json.dumps(list(range(2000)))
        time.sleep(0.002)
threading.Thread(target=other, daemon=True).start()
def write_row():
    time.sleep(0.03)
def log():
    write_row()
    time.sleep(0.001)
def train():
    for step in range(60):
        log()
        time.sleep(0.003)
        train_step(torch.randn(8, 16))
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""
)
ENDS = (
    BEGIN
    + """
for step in range(20):
    time.sleep(0.01)
    train_step(torch.randn(8, 16))
sys.stdout.flush()
"""
)
RANKS = (
    BEGIN
    + """
import torch.distributed
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(model)
def wait_on_rank_0():
    time.sleep(0.05)
def wait_on_rank_1():
    time.sleep(0.05)
for step in range(60):
    [wait_on_rank_0, wait_on_rank_1][torch.distributed.get_rank()]()
    train_step(torch.randn(8, 16))
torch.distributed.destroy_process_group()
"""
)


@pytest.fixture(autouse=True)
def empty_place(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def installed():
    if py_spy.find() is None:
        pytest.skip("py-spy is not installed: pip install -r requirements.txt")


def said_of(capfd) -> list[str]:
    beginning = "profiling run: "
    lines = capfd.readouterr().err.splitlines()
    return [line.removeprefix(beginning) for line in lines if line.startswith(beginning)]


def ran(code: str, *words: str) -> int:
    Path("mine.py").write_text(code)
    command = [*words, "mine.py"]
    return run.main(["--kind", "torch", "--start", "12", "--", PYTHON, *command])


def bottleneck(name: str = "window-1.trace.json.gz"):
    return open_report(Path("out-run/profile") / name).report.bottleneck


def line_with(text: str, code: str) -> int:
    return 1 + next(at for at, line in enumerate(code.splitlines()) if text in line)


@pytest.mark.slow
def test_of_a_loader_what_makes_the_items_is_named_however_late_py_spy_begins(
    installed, monkeypatch
):
    late = Path("py-spy").absolute()
    late.write_text(f'#!/bin/sh\nsleep 0.7\nexec {py_spy.find()} "$@"\n')
    late.chmod(0o755)
    monkeypatch.setattr(py_spy, "find", lambda: str(late))
    assert ran(LOADER) == 0
    found = bottleneck()
    assert found.verdict == "data"
    (line,) = (line for line in found.evidence if " are inside " in line and "mine.py" in line)
    assert "Rows.__getitem__" in line and "collate" not in " ".join(found.evidence)
    ms, of_ms = float(line.split()[0]), float(line.split()[3])
    assert ms > 0.7 * of_ms, line
    assert not list(Path("tmp").iterdir()), "the socket and the files of py-spy are gone"


@pytest.mark.slow
def test_the_innermost_function_of_python_on_the_thread_that_trains_is_named(
    installed, forked_program
):
    assert ran(THREADS) == 0
    found = bottleneck()
    place = f"mine.py({line_with('time.sleep(0.03)', THREADS)}): write_row"
    caller = f"mine.py({line_with('    write_row()', THREADS)}): log"
    assert any(f" ms are inside {place} (in {caller}), by " in line for line in found.evidence), (
        found.evidence
    )
    assert not any("--stack" in line for line in found.next)


@pytest.mark.slow
def test_each_rank_has_its_own(installed, forked_program):
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    assert ran(RANKS, *torchrun) == 0
    for rank in (0, 1):
        evidence = " ".join(bottleneck(f"window-1-rank{rank}.trace.json.gz").evidence)
        assert f": wait_on_rank_{rank}" in evidence, evidence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "windows", "code"),
    [("", 1, 0), ("os._exit(3)", 0, 3), ("os.kill(os.getpid(), 9)", 0, 137)],
)
def test_a_program_may_end_within_its_window(installed, forked_program, end, windows, code, capfd):
    assert ran(ENDS + end) == code
    assert len(list(Path("out-run/profile").glob("*.gz"))) == windows
    said = [line for line in said_of(capfd) if "sampled" in line]
    assert all("too few at known times" in line for line in said)  # as where no core is free
    assert not list(Path("tmp").iterdir())


@pytest.mark.slow
def test_where_py_spy_may_not_read_this_is_said_once(forked_program, monkeypatch, capfd):
    refused = Path("py-spy")
    refused.write_text("#!/bin/sh\necho 'Error: Permission denied (os error 13)' >&2\nexit 1\n")
    refused.chmod(0o755)
    monkeypatch.setattr(py_spy, "find", lambda: str(refused.absolute()))
    assert ran(THREADS) == 0
    said = [line for line in said_of(capfd) if "sampled" in line]
    assert said == [f"Python's stack was not sampled: {py_spy.NOT_PERMITTED}"]
    (line,) = (line for line in bottleneck().next if "--stack" in line)
    assert line.endswith("run --stack, or without it after pip install py-spy.")


@pytest.mark.slow
def test_without_py_spy_nothing_is_said_but_how_to_get_the_function(
    forked_program, monkeypatch, capfd
):
    monkeypatch.setattr(py_spy, "find", lambda: None)
    assert ran(THREADS) == 0
    assert "py-spy" not in " ".join(said_of(capfd))
    assert any(line.endswith("after pip install py-spy.") for line in bottleneck().next)


def test_the_window_goes_on_where_run_is_gone(tmp_path):
    program, folder = tmp_path / "mine.py", tmp_path / "run"
    program.write_text(BEGIN + "for step in range(40):\n    train_step(torch.randn(8, 16))\n")
    environ = hooked(folder, start=10, steps=5, samples=str(tmp_path / "gone"))
    ended = Forked(["-c", HOOKED, str(program)], environ, folder=tmp_path)
    assert ended.communicate(timeout=90)[0] == ""
    assert (folder / "profile" / "window-1.trace.json.gz").is_file()
    assert "Python's stack was not sampled" in (folder / "facts" / "rank0.json").read_text()


def test_a_long_folder_for_temporary_files_costs_no_more_than_the_samples(tmp_path, monkeypatch):
    (tmp_path / ("x" * 120)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 120)))
    monkeypatch.setattr(py_spy, "find", lambda: "py-spy")
    monkeypatch.syspath_prepend(HOOK)
    from _profiling_attach.python_samples import PythonSamples

    with sampling.sampling() as path, pytest.raises(OSError, match="too long"):
        PythonSamples(path, None)


def test_py_spy_beside_this_python_goes_before_that_on_path(tmp_path, monkeypatch):
    for folder in ("bin", "path"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "py-spy").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    assert py_spy.find() == str(tmp_path / "bin" / "py-spy")
    os.remove(tmp_path / "bin" / "py-spy")
    assert py_spy.find() == str(tmp_path / "path" / "py-spy")
    os.remove(tmp_path / "path" / "py-spy")
    assert py_spy.find() is None
    with sampling.sampling() as path:
        assert path is None
