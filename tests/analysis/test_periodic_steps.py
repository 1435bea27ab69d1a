"""Steps of captures that name none, by launches that come again in the same order."""

from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.steps.find import find_steps
from profiling.analysis.steps.periodic import STEP_NAME, repetition
from profiling.analysis.steps.steps import without_ids
from profiling.analysis.summary import summarize
from tests.helpers.captures import trace_of
from tests.helpers.programs import MS, TO_DEVICE, US, Builder

BLOCK = ("qkv", "attend", "project", "up", "act", "down")


def program(steps: int, blocks: int = 12, before: int = 0, batch: bool = True) -> Builder:
    """Steps of 20 ms: launches 20 us apart, then nothing; `before` other launches come first."""
    build, at = Builder(), 0
    for number in range(before):
        build.launched(at, at + 6 * US, at + 9 * US, f"warm-up {number % 7}")
        at += 20 * US
    for _ in range(steps):
        begin = at
        for name in (*([TO_DEVICE] if batch else []), "embed", *BLOCK * blocks, "norm", "head"):
            build.launched(at, at + 6 * US, at + 9 * US, name)
            at += 20 * US
        at = begin + 20 * MS
    return build


@pytest.mark.parametrize("batch", [True, False])
def test_steps_are_found_by_their_launches(batch):
    steps = find_steps(program(6, batch=batch).trace())
    assert (steps.name, len(steps.start_ns)) == (STEP_NAME, 6)
    assert np.diff(steps.start_ns).tolist() == [20 * MS] * 5
    assert steps.start_ns[0] == 0  # where the host paused before it


def test_a_warm_up_before_them_belongs_to_no_step():
    steps = find_steps(program(6, before=200).trace())
    assert (steps.name, len(steps.start_ns)) == (STEP_NAME, 6)
    assert steps.start_ns[0] == 200 * 20 * US


@pytest.mark.parametrize("build", [program(1), program(2), program(1, blocks=48), Builder()])
def test_the_blocks_of_one_step_are_no_steps(build):
    build.launched(50 * MS, 51 * MS, 52 * MS, "last")
    assert find_steps(build.trace()).name is None


def test_without_calls_nothing_tells():
    assert find_steps(program(6).trace(calls=None)).name is None


def test_a_step_that_launches_a_little_more_is_one():
    name = np.tile(np.arange(40, dtype=np.int32), 8)
    name[120:160:20] = 99
    none = np.zeros(len(name), bool)
    assert repetition(name, none) == (0, 320, 40)
    assert repetition(np.arange(300, dtype=np.int32), none[:300]) is None
    assert repetition(np.zeros(2, np.int32), none[:2]) is None


@pytest.mark.parametrize("capture", ["flash_eager", "slow_eager", "flash_compile"])
def test_the_steps_of_a_real_capture_without_its_ranges(capture):
    """Micro-steps and updates alternate in them, two iterations to a log: the period is found."""
    trace = trace_of(capture)
    told = find_steps(trace)
    hidden = find_steps(
        replace(trace, ranges=None, names=[n.replace("adam", "x") for n in trace.names])
    )
    whole_ms = (told.end_ns[-1] - told.start_ns[0]) / len(told.start_ns)
    found_ms = np.mean(np.diff(hidden.start_ns))
    assert hidden.name is not None
    assert found_ms == pytest.approx(whole_ms, rel=0.05)


def test_the_report_says_that_no_range_marks_a_step():
    report = summarize(Analysis(program(6).trace()))
    assert any("no range marks a step" in finding.what for finding in report.health.findings)
    assert report.window.steps == 6


def test_a_name_of_xla_without_its_ids():
    name = "XlaModule:#prefix=jit(step)/jit(main),hlo_module=jit_step,program_id=81431#"
    assert without_ids(name) == "XlaModule:#prefix=jit(step)/jit(main),hlo_module=jit_step#"
    assert without_ids("iteration 12") == "iteration 12"
