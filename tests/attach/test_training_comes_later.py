"""The hook in a program that reads its data first, or trains one model after another."""

import gzip
import json
from pathlib import Path

import pytest

from profiling.launch.any_program.seen import lines
from profiling.launch.any_program.start import HookSettings
from tests.helpers.forked import HOOKED, Forked
from tests.helpers.hooked import hooked

PROGRAM = """
import sys, time, torch
torch.set_num_threads(1)
batches = torch.utils.data.DataLoader(torch.randn(int(sys.argv[1]), 16))
for batch in batches:  # as for a mean, or a vocabulary
    time.sleep(0.0005)
for fold in range(3):
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(40):
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step(); optimizer.zero_grad()
"""
STEPS = 20


@pytest.mark.slow
@pytest.mark.parametrize("batches", [70, 30, 15])  # a window is over by then, is open, is not there
def test_the_window_is_of_the_training_and_all_models_are_counted(batches, tmp_path):
    folder = tmp_path / "run"
    environ = hooked(folder, start=15, steps=STEPS)
    assert ended(batches, tmp_path, environ) == ("", 0)
    said = lines(folder, HookSettings(str(folder), ["x"], "torch", 15, STEPS))
    assert said == ["119 steps; a step ends with SGD.step(), of 3 optimizers one after another"]
    assert captured_updates(folder) == STEPS
    manifest = json.loads((folder / "profile" / "window-1.json").read_text())
    assert manifest["window"]["first_iteration"] == 15 and manifest["window"]["complete"]
    assert len(json.loads((folder / "step_times.json").read_text())["ms"]) == 119


def test_a_window_ends_where_the_next_model_is_made(tmp_path):
    """A model's first steps are known late: they would be one long step of the window."""
    folder = tmp_path / "run"
    environ = hooked(folder, start=30, steps=STEPS)
    assert ended(1, tmp_path, environ) == ("", 0)
    said = lines(folder, HookSettings(str(folder), ["x"], "torch", 30, STEPS))
    assert said[0].startswith("119 steps; ")
    assert said[1].startswith("the window ended with 9 of 20 steps: the program made another ")
    assert captured_updates(folder) == 9


def ended(batches: int, folder: Path, environ: dict[str, str]) -> tuple[str, int]:
    """Run the program to its end; what it wrote, and its exit code."""
    (folder / "mine.py").write_text(PROGRAM)
    process = Forked(["-c", HOOKED, str(folder / "mine.py"), str(batches)], environ)
    return process.communicate(timeout=90)[0], process.wait()


def captured_updates(folder: Path) -> int:
    (capture,) = (folder / "profile").glob("*.trace.json.gz")
    events = json.loads(gzip.decompress(capture.read_bytes()))["traceEvents"]
    return len([each for each in events if each.get("name") == "Optimizer.step#SGD.step"])
