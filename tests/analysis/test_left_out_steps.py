"""Tests of recorded steps that are left out: torch.profiler's first where it is slow, and the last
where the program's end cut it off."""

from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from profiling.analysis.analysis import Analysis
from profiling.analysis.difference.compared import compared_capture
from profiling.analysis.open_report import open_report
from profiling.analysis.summary import summarize
from profiling.report.renderers.terminal import show
from profiling.report.single.document import report_document
from profiling.report.single.screen import first_screen
from profiling.shared.json_records import read_json, to_json
from profiling.shared.manifest import CapturedWindow, Laps, Manifest, WindowSteps
from tests.helpers.programs import MS, Program
from tests.paths import CAPTURES

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


@pytest.mark.parametrize("kind", ["nsys", "kineto"])
def test_a_step_that_was_cut_off_is_in_no_figure(kind):
    whole = Analysis(recorded(kind, queued_ns=0), keep_first=True)
    analysis = Analysis(recorded(kind, queued_ns=0), keep_first=True, last_iteration=3)
    report = summarize(analysis)
    assert analysis.bounds_ns.tolist() == whole.bounds_ns[:-1].tolist()
    assert (report.window.steps, report.window.first_iteration) == (4, 0)
    summed = 5 if kind == "nsys" else 4  # sums of nsys are those of its whole file
    assert sum(row.count for row in report.kernels) == summed * LAUNCHES
    assert {row.name: row.count for row in report.api}["cudaStreamSynchronize"] == summed
    assert [row.count for row in report.phases] == [4]


def test_a_report_has_the_steps_that_the_manifest_knows_to_be_complete(tmp_path):
    capture, beside = CAPTURES / "flash_eager.trace.json.gz", tmp_path / "window-1.json"
    manifest = read_json(CAPTURES / "flash_eager.trace.window-1.json", Manifest)
    window = manifest.window
    beside.write_text(to_json(manifest))
    first, last = window.first_iteration, window.last_iteration
    assert open_report(capture, beside).report.window.steps == window.steps == last - first + 1
    cut = replace(window, last_iteration=last - 1, ended_by="the end of the program")
    beside.write_text(to_json(replace(manifest, window=cut)))
    assert open_report(capture, beside).report.window.steps == window.steps - 1
    named = open_report(capture, beside, step="iteration").report
    assert named.window.steps == window.steps, "ranges that the user names are numbered otherwise"
