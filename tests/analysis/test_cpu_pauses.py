"""Pauses of a step on a CPU: where they lie, and whether the process computed in them."""

from dataclasses import replace

import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.summary import summarize
from profiling.analysis.verdict import cpu_pauses
from profiling.report.single.verdict_line import verdict_line
from profiling.shared.manifest import ProcessUse
from profiling.timeline.opening import open_capture
from tests.helpers.captures import event, write_trace
from tests.helpers.reports import MANIFEST as OF_GPU

MANIFEST = replace(OF_GPU, device="cpu", config=None, environment={"cpu_cores": 8})
MS = 1000


@pytest.fixture
def paused(tmp_path):
    """The bottleneck of steps of 40 ms: 4 ms forward, 4 backward, 2 optimizer, 30 of a pause."""

    def report(cores_used=None, frame=None, phase=None):
        events = []
        for number in range(6):
            at = 1000.0 + number * 40 * MS
            events += [
                event("user_annotation", f"iteration {number}", at, 40 * MS),
                event("user_annotation", "forward", at, 4 * MS),
                event("cpu_op", "aten::linear", at, 4 * MS),
                event("user_annotation", "backward", at + 4 * MS, 4 * MS),
                event("cpu_op", "aten::mm", at + 4 * MS, 4 * MS),
                event("user_annotation", "optimizer", at + 8 * MS, 2 * MS),
                event("cpu_op", "aten::add_", at + 8 * MS, 2 * MS),
            ]
            if phase:
                events.append(event("user_annotation", phase, at + 10 * MS, 30 * MS))
            if frame:
                events.append(event("python_function", frame, at + 10 * MS, 30 * MS))
        trace = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}
        analysis = Analysis(open_capture(write_trace(tmp_path / "x.trace.json", trace)))
        process = ProcessUse(cores_used=cores_used, compute_threads=1)
        return summarize(analysis, replace(MANIFEST, process=process))

    return report


def test_pauses_between_a_phase_and_the_next_of_its_name_are_said_so(paused, monkeypatch):
    monkeypatch.setattr(cpu_pauses, "between_phases", lambda *_: ("forward", "forward"))
    said = paused().bottleneck.evidence[1]
    assert said == "Most of this time lies between one forward and the next."


def test_the_phases_around_the_pauses_are_named(paused):
    report = paused()
    first, second, *_ = report.bottleneck.evidence
    assert report.bottleneck.verdict == "cpu" and "30.00 of 40.00 ms" in first
    assert second == "Most of this time lies between optimizer and forward."
    assert verdict_line(report).endswith(
        "files or waits took time in which no operator ran, and the run has no GPU"
    )
    assert "gaps" not in " ".join(report.bottleneck.next)
    assert "--stack" in report.bottleneck.next[1]


@pytest.mark.parametrize(
    ("cores", "said"),
    [(0.1, "The process did not run for most of it (4.00 ms of CPU time"), (0.5, None)]
    + [(1.0, "The process used 40.00 ms of CPU time per step: it computes in it outside")],
)
def test_cpu_time_tells_whether_a_pause_is_work_or_a_wait(paused, cores, said):
    lines = [line for line in paused(cores).bottleneck.evidence if "CPU time" in line]
    assert [line.startswith(said) for line in lines] == ([True] if said else [])


def test_a_function_that_covers_the_pauses_is_named(paused):
    bottleneck = paused(frame="metrics.py(12): score").bottleneck
    assert any(
        "30.00 of these 30.00 ms are inside" in line and "score" in line
        for line in bottleneck.evidence
    )
    assert "stacks" not in " ".join(bottleneck.next)  # they are there


@pytest.mark.parametrize(
    ("frame", "line"),
    [
        ("torch/utils/data/sampler.py(182): RandomSampler.__iter__", "Draw the order rarely"),
        ("rows.py(9): Rows.__getitem__", "Prepare the next batch while the step computes"),
    ],
)
def test_a_sampler_that_makes_the_next_batch_late_is_no_matter_of_workers(paused, frame, line):
    bottleneck = paused(frame=frame, phase="data").bottleneck
    assert bottleneck.verdict == "data"
    assert bottleneck.next[0].startswith(line)
    assert any(f"are inside {frame}" in each for each in bottleneck.evidence)
