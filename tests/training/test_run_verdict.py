"""Verdict of a run at its end: from made-up times, and in a real run."""

import json
import re
import time

import pytest
import torch

from profiling.shared.gpu_clock import gpu_clock
from training.metrics.run_verdict import Steps, run_verdict
from training.step.clock import CudaClock, Launched

SECONDS = {"start_up": 4.0, "compile": 6.0, "training": 80.0, "evaluation": 9.0, "checkpoint": 1.0}
UNKNOWN = Steps(
    waiting_for_data_s=0.4,
    on_cpu=False,
    step_ms=5.4,
    host_ms=None,
    gpu_busy_percent=None,
    cpu_percent=None,
)


def steps(**known: float) -> Steps:
    return Steps(**(vars(UNKNOWN) | known))


@pytest.mark.parametrize(
    "part, words",
    [
        ("start_up", "Held back by its start-up: start-up 80 %"),
        ("compile", "Held back by compiling: compiling 80 %"),
        ("evaluation", "Held back by evaluation: evaluation 80 %"),
        ("checkpoint", "Held back by its checkpoints: checkpoints 80 %"),
    ],
)
def test_the_largest_part_of_the_wall_time_is_named(part, words, monkeypatch):
    monkeypatch.setattr(torch.__spec__, "cached", __file__)
    found = run_verdict(dict.fromkeys(SECONDS, 2.5) | {part: 40.0}, UNKNOWN)
    assert found.cause == part and found.sentence == f"{words} of 50 s"


@pytest.mark.parametrize("part, told", [("start_up", True), ("compile", False)])
def test_a_start_that_compiles_pytorch_says_so(part, told, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.__spec__, "cached", str(tmp_path / "__pycache__" / "missing.pyc"))
    found = run_verdict(dict.fromkeys(SECONDS, 2.5) | {part: 40.0}, UNKNOWN)
    assert (
        found.sentence.endswith("whose bytecode is missing: `python -m compileall` on it") == told
    )


@pytest.mark.parametrize(
    "host_ms, power, told",
    [(1.2, 97.0, True), (1.2, 12.0, False), (5.3, 97.0, False)],
    ids=["held down", "now and then", "the host is late"],
)
def test_a_clock_that_is_held_down_is_told_where_the_gpu_is_late(host_ms, power, told):
    means = {"gpu/sm_clock_mhz": 1634.4, "gpu/throttle_power_percent": power}
    known = steps(host_ms=host_ms, gpu_busy_percent=61.0, gpu_clock=gpu_clock(means))
    said = "; its clock was 1634 MHz, throttled by its power limit 97 % of the time"
    assert (said in run_verdict(SECONDS, known).sentence) == told


def test_a_clock_that_nobody_sampled_is_not_known():
    assert gpu_clock({"gpu/throttle_power_percent": 97.0}) is None
    assert gpu_clock({"gpu/sm_clock_mhz": None}) is None
    assert gpu_clock({"gpu/sm_clock_mhz": 0.0}) is None
    assert gpu_clock({"gpu/sm_clock_mhz": 1980.0}, number=1) is None


def test_a_second_part_that_is_large_is_told_too():
    found = run_verdict(SECONDS | {"evaluation": 60.0}, steps(host_ms=1.0))
    assert found.cause == "gpu"
    assert "training steps 53 %, evaluation 40 % of 3 min" in found.sentence


@pytest.mark.parametrize(
    "known, cause",
    [
        ({"host_ms": 1.2}, "gpu"),  # far ahead
        ({"host_ms": 1.2, "gpu_busy_percent": 40.0}, "gpu"),
        ({"host_ms": 5.3, "gpu_busy_percent": 97.0}, "gpu"),  # the queue was full
        ({"host_ms": 5.3, "gpu_busy_percent": 61.0}, "host"),
        ({"gpu_busy_percent": 61.0}, "host"),
        ({"host_ms": 5.3}, None),
        ({}, None),
        ({"on_cpu": True, "cpu_percent": 190.0}, "cpu"),
        ({"on_cpu": True, "waiting_for_data_s": 60.0}, "data"),
        ({"host_ms": 5.3, "gpu_busy_percent": 30.0, "waiting_for_data_s": 60.0}, "data"),
        ({"host_ms": 5.3, "waiting_for_data_s": 60.0}, "data"),
        ({"host_ms": 5.3, "gpu_busy_percent": 30.0, "waiting_for_data_s": 20.0}, "host"),
        ({"host_ms": 5.3, "gpu_busy_percent": 95.0, "waiting_for_data_s": 60.0}, "gpu"),
        ({"host_ms": 1.2, "waiting_for_data_s": 60.0}, "gpu"),  # while the GPU had work queued
    ],
)
def test_the_host_or_the_gpu_is_late_or_it_is_not_known(known, cause):
    found = run_verdict(SECONDS, steps(**known))
    assert found.cause == found.metrics["verdict/cause"] == cause
    assert ("not known" in found.sentence) == (cause is None)
    assert "\n" not in found.sentence
    waited_s = known.get("waiting_for_data_s", 0.4)
    assert found.metrics["time/waiting_for_data_s"] == waited_s
    told = f"the host waited {100 * waited_s / 80:.0f} % of the steps for data"
    assert (told in found.sentence) == (waited_s >= 20)
    assert found.metrics["time/host_step_ms"] == known.get("host_ms")


class Event:
    def __init__(self, ms):
        self.ms = ms

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return end.ms - self.ms


def test_laps_of_a_gpu_know_what_the_host_took(monkeypatch):
    moments = iter([(0, 0.0), (0, 0.0), (5, 0.001), (11, 0.003), (20, 0.004)])
    monkeypatch.setattr(
        CudaClock, "mark", lambda self: Launched(Event((now := next(moments))[0]), now[1])
    )
    clock = CudaClock()
    clock.start()
    for label in (None, "captured", None):
        clock.lap(label)
    laps = clock.read()
    assert (laps.ms, laps.captured_ms) == ([5, 9], [6])
    assert laps.host_ms == pytest.approx([1.0, 1.0])


@pytest.mark.slow
def test_a_run_ends_with_its_verdict(start, tmp_path):
    words = "compile=false n_layer=1 n_head=2 n_embd=16 block_size=16 batch_size=2 max_iters=30"
    words += f" eval_iters=1 eval_interval=30 dropout=0 wandb.mode=disabled out_dir={tmp_path}/out"
    began_s = time.monotonic()
    process = start(["train.py", "config/shakespeare_char_cpu.yaml", *words.split()], anew=True)
    said = process.communicate(timeout=120)[0]
    whole_s = time.monotonic() - began_s
    assert process.returncode == 0, said
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert said.rstrip().splitlines()[-1] == summary["verdict"]
    assert re.match(r"Held back by .+ \d+ % of \d+ s", summary["verdict"])
    parts = [summary[f"time/{part}_s"] or 0.0 for part in (*SECONDS, "capture")]
    assert min(parts) >= 0 and sum(parts) == pytest.approx(summary["wall_s"], abs=0.5)
    assert 0.75 * whole_s < summary["wall_s"] < whole_s  # with all imports
    assert summary["time/evaluation_s"] > 0 and summary["time/checkpoint_s"] > 0
    assert 0 < summary["time/waiting_for_data_s"] < summary["time/training_s"]
