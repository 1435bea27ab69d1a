"""Steps of captures that name none, by launches that come again in the same order."""

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.steps.find import find_steps
from profiling.analysis.steps.periodic import STEP_NAME, periodic_steps, repetition
from profiling.analysis.steps.steps import without_ids
from profiling.analysis.summary import summarize
from tests.helpers.captures import OWN, trace_of
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


def test_one_range_around_the_loop_holds_its_steps():
    build = program(6, before=200, batch=False)
    assert find_steps(build.trace()).name is None  # the warm-up may be the first block of a step
    build.range(200 * 20 * US, 200 * 20 * US + 120 * MS, "measured", domain=None)
    steps = find_steps(build.trace())
    assert (steps.name, len(steps.start_ns)) == (STEP_NAME, 6)


def test_without_calls_nothing_tells():
    assert find_steps(program(6).trace(calls=None)).name is None


def test_a_step_that_launches_a_little_more_is_one():
    name = np.tile(np.arange(40, dtype=np.int32), 8)
    name[120:160:20] = 99
    none = np.zeros(len(name), bool)
    assert repetition(name, none) == (0, 320, 40)
    assert repetition(np.arange(300, dtype=np.int32), none[:300]) is None
    assert repetition(np.zeros(2, np.int32), none[:2]) is None


@pytest.mark.parametrize("capture", OWN)
def test_the_steps_of_a_real_capture_without_its_ranges(capture):
    """A step that logs is longer and is one, too."""
    trace = trace_of(capture)
    told = find_steps(trace)
    found = periodic_steps(trace, told.process, told.device, told.thread)
    assert len(found.start_ns) == len(told.start_ns) == 20
    lengths = [np.diff(each.start_ns) for each in (told, found)]
    assert np.median(lengths[1]) == pytest.approx(np.median(lengths[0]), rel=0.02)


def test_the_report_says_that_no_range_marks_a_step():
    report = summarize(Analysis(program(6).trace()))
    assert any("no range marks a step" in finding.what for finding in report.health.findings)
    assert report.window.steps == 6


def test_a_name_of_xla_without_its_ids():
    name = "XlaModule:#prefix=jit(step)/jit(main),hlo_module=jit_step,program_id=81431#"
    assert without_ids(name) == "XlaModule:#prefix=jit(step)/jit(main),hlo_module=jit_step#"
    assert without_ids("iteration 12") == "iteration 12"
