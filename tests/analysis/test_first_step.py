"""Tests of the first recorded step of torch.profiler, which is left out where it is slow."""

from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from profiling.analysis.analysis import Analysis
from profiling.analysis.difference.compared import compared_capture
from profiling.analysis.summary import summarize
from profiling.report.renderers.terminal import show
from profiling.report.single.document import report_document
from profiling.report.single.screen import first_screen
from profiling.shared.manifest import CapturedWindow, Laps, Manifest, WindowSteps
from tests.helpers.programs import MS, Program

LAUNCHES = 10


def recorded(kind: str, queued_ns: int = 30 * MS, steps: int = 5):
    """Steps of 10 ms of kernels; the first one begins behind what a warm-up had queued."""
    program = Program()
    program.gpu = queued_ns
    for _ in range(steps):
        with program.step(), program.phase("forward"):
            program.launch(1 * MS, LAUNCHES)
            program.wait()
    return program.trace(kind=kind)


def test_a_slow_first_step_of_torch_profiler_is_in_no_figure():
    whole = Analysis(recorded("kineto"), keep_first=True)
    analysis = Analysis(recorded("kineto"))
    report = summarize(analysis)
    assert analysis.bounds_ns.tolist() == whole.bounds_ns[1:].tolist()
    assert (report.window.steps, report.window.first_iteration) == (4, 1)
    assert report.window.left_out_ms == pytest.approx(40, rel=0.01)
    assert report.window.step_ms.max < 11
    assert sum(row.count for row in report.kernels) == 4 * LAUNCHES
    assert {row.name: row.count for row in report.api}["cudaStreamSynchronize"] == 4
    assert [row.count for row in report.launches] == [4 * LAUNCHES]
    assert [row.count for row in report.phases] == [4]
    assert sum(report.parts_ms.values()) == pytest.approx(report.window.step_ms.mean)
    assert len(compared_capture(report).step_ms) == 4


def test_what_capturing_added_is_without_it_too():
    around = WindowSteps(before=Laps(8.0, [8.0]), captured=Laps(12.0, [12.0]))
    manifest = Manifest(1, "torch", CapturedWindow(), around, overhead_percent=50.0)
    report = summarize(Analysis(recorded("kineto")), manifest)
    added_percent = 100 * (report.window.step_ms.median / 8.0 - 1)
    assert report.health.overhead_percent == pytest.approx(added_percent) != 50.0
    kept = summarize(Analysis(recorded("kineto"), keep_first=True), manifest)
    assert kept.health.overhead_percent == 50.0


@pytest.mark.parametrize("document", [first_screen, report_document])
def test_that_it_is_left_out_is_said_once(document):
    out = StringIO()
    show(document(summarize(Analysis(recorded("kineto")))), Console(file=out, width=200))
    assert out.getvalue().count("left out") == 1


@pytest.mark.parametrize(
    "trace",
    [recorded("nsys"), recorded("kineto", queued_ns=2 * MS), recorded("kineto", steps=2)],
    ids=["nsys", "not_slow", "two_steps"],
)
def test_another_first_step_stays(trace):
    analysis = Analysis(trace)
    report = summarize(analysis)
    assert report.window.left_out_ms is None
    assert report.window.steps == len(np.diff(analysis.bounds_ns))
    assert sum(row.count for row in report.kernels) == LAUNCHES * report.window.steps
