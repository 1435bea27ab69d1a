"""Traits of the phases of a step on a CPU: many passes, and what runs in them or between them."""

from dataclasses import replace

import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.summary import summarize
from profiling.report.single.verdict_line import verdict_line
from profiling.timeline.opening import open_capture
from tests.helpers.captures import event, write_trace
from tests.helpers.reports import MANIFEST as OF_GPU

MANIFEST = replace(OF_GPU, device="cpu", config=None, environment={"cpu_cores": 8})
MS = 1000
STEPS = 4


class Steps:
    """Events of steps, one behind the other."""

    def __init__(self):
        self.events, self.at = [], 1000.0

    def phase(self, name, ms, operator=None, busy=1.0, each_us=None, sequence=None):
        """A phase, or where `name` is None time between two; operators are in its first part."""
        if name:
            self.events.append(event("user_annotation", name, self.at, ms * MS))
        us = each_us or ms * MS * busy
        args = {} if sequence is None else {"Sequence number": sequence}
        for number in range(round(ms * MS * busy / us) if operator else 0):
            self.events.append(event("cpu_op", operator, self.at + number * us, us, **args))
        self.at += ms * MS


@pytest.fixture
def report_of(tmp_path):
    """The report on steps, each of which `make` adds to the steps before."""

    def report(make):
        steps = Steps()
        for number in range(STEPS):
            begin = steps.at
            make(steps)
            whole = event("user_annotation", f"iteration {number}", begin, steps.at - begin)
            steps.events.append(whole)
        trace = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": steps.events}
        analysis = Analysis(open_capture(write_trace(tmp_path / "x.trace.json", trace)))
        return summarize(analysis, MANIFEST)

    return report


def passes(count, each_us=5, optimizers=1, pause_ms=2):
    """A step of so many forwards and backwards of 2 ms, and a pause behind each optimizer."""

    def make(steps):
        for number in range(count):
            steps.phase("forward", 1, "aten::mul", each_us=each_us)
            steps.phase("backward", 1, "aten::mul", each_us=each_us)
            if number < optimizers:
                steps.phase("optimizer", 1, "aten::add_")
                steps.phase(None, pause_ms)

    return make


def test_many_small_passes_outweigh_a_shorter_pause(report_of):
    found = report_of(passes(10, each_us=9, pause_ms=6)).bottleneck
    assert found.verdict == "cpu_only"
    assert found.evidence[0] == (
        "A step has 10 backwards, of small operators. With their forwards they take 20.00 of 27.00 "
        "ms per step (74 %)."
    )
    assert any("Sum gradients over fewer and larger batches" in line for line in found.next)
    assert found.most_to_gain.startswith("fewer and larger passes, at most 20.00")


@pytest.mark.parametrize(
    "make",
    [passes(7), passes(10, each_us=100), passes(10, optimizers=10, pause_ms=0)],
    ids=["few passes", "large operators", "an update for each pass"],
)
def test_other_passes_are_none_of_it(report_of, make):
    found = report_of(make).bottleneck
    assert "backwards" not in " ".join(found.evidence)
    assert "Sum gradients" not in " ".join(found.next)


def generates(trained, forwards=4):
    def make(steps):
        for _ in range(forwards):
            steps.phase("forward", 3, "aten::addmm")
        steps.phase("forward", 4, "aten::addmm", sequence=7 if trained else None)
        steps.phase("backward", 4, "aten::mm")
        steps.phase("optimizer", 1, "aten::add_")

    return make


def test_forwards_without_gradients_are_counted(report_of):
    found = report_of(generates(trained=True)).bottleneck
    said = "4 forwards in a step are without gradients: 12.00 of 21.00 ms per step (57 %)."
    assert found.evidence[0] == said
    assert "Run forwards without gradients" in found.next[0]
    assert found.most_to_gain.startswith("forwards without gradients, at most 12.00")


@pytest.mark.parametrize(("trained", "forwards"), [(False, 4), (True, 1)])
def test_without_numbers_of_autograd_and_for_a_teacher_nothing_is_said(
    report_of, trained, forwards
):
    found = report_of(generates(trained, forwards)).bottleneck
    assert "without gradients" not in " ".join([*found.evidence, *found.next])


def test_a_phase_without_operators_leads_to_python_and_not_to_the_compiler(report_of):
    def make(steps, busy=0.2):
        steps.phase("forward", 10, "aten::mm", busy=busy)
        steps.phase("backward", 4, "aten::mm")
        steps.phase("optimizer", 1, "aten::add_")

    found = report_of(make).bottleneck
    assert found.verdict == "cpu_only"
    assert found.evidence[0].startswith("No operator runs in forward for 8.00 of 15.00 ms per step")
    assert "Python's own work" in found.next[0] and "--stack" in found.next[1]
    assert "torch.compile" not in " ".join(found.next)
    assert found.most_to_gain.startswith("Python in forward, at most 8.00")
    busy = report_of(lambda steps: make(steps, busy=0.9)).bottleneck
    assert "No operator" not in " ".join(busy.evidence)
    assert "torch.compile" in " ".join(busy.next)


def average(place):
    """Operators of 8 ms in no phase: a loss, a model without modules, or an average of weights."""

    def make(steps):
        if place != "model":
            steps.phase("forward", 2, "aten::mm")
        if place != "weights":
            steps.phase(None, 8, "aten::mul")
        steps.phase("backward", 2, "aten::mm")
        steps.phase("optimizer", 1, "aten::add_")
        if place == "weights":
            steps.phase(None, 8, "aten::mul")

    return make


def test_operators_between_the_phases_are_told_with_their_place(report_of):
    report = report_of(average("weights"))
    assert report.bottleneck.evidence[0] == (
        "Operators outside the phases take 8.00 of 13.00 ms per step (62 %), most behind optimizer "
        "and before forward."
    )
    assert "torch._foreach_lerp_" in report.bottleneck.next[0]
    assert report.bottleneck.most_to_gain.startswith("operators outside the phases, at most 8.00")
    assert verdict_line(report) == "Bound by the CPU: the run has no GPU"  # 15 % of a step bind not
    model = report_of(average("model")).bottleneck
    assert "most behind optimizer and before backward." in model.evidence[0]
    assert "torch._foreach_lerp_" not in " ".join(model.next)
    loss = report_of(average("loss")).bottleneck
    assert "most behind forward and before backward." in loss.evidence[0]
    assert "torch._foreach_lerp_" not in " ".join(loss.next)
