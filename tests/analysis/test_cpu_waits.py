"""Parts of a step without a GPU that compute nothing, and the verdict that follows from them."""

from unittest.mock import Mock

import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.summary import summarize
from profiling.analysis.verdict import cpu_waits
from profiling.analysis.verdict.cpu_waits import class_of_phase
from profiling.report.single.verdict_line import verdict_line
from profiling.timeline.opening import open_capture
from tests.helpers.captures import event, write_trace

NEXT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
NODE = "autograd::engine::evaluate_function: AddmmBackward0"
MS = 1000.0


def trained(tmp_path, load=0.1, evaluate=0.0, save=0.0, pause=0.0, pauses=1, marked=True):
    """The report of five steps on a CPU, each with the given milliseconds of a part.

    Forward takes 2 ms, backward 4, the optimizer 1. The pause is in so many parts, with an operator
    behind each. Unless `marked`, the steps have no ranges.
    """
    events, at = [], 1000.0
    for number in range(5):
        begin, parts = at, []
        for name, ms in ((NEXT, load), ("aten::addmm", 2), (NODE, 4), ("Optimizer.step#Adam", 1)):
            parts.append((name, at, ms * MS))
            at += ms * MS
        for _ in range(2 if evaluate else 0):
            parts += [(NEXT, at, 100), ("aten::addmm", at + 100, evaluate * MS / 2 - 100)]
            at += evaluate * MS / 2
        for _ in range(6 if save else 0):
            parts += [("aten::detach", at, 2), ("detach", at + 1, 1)]
            at += 2
        at += save * MS
        parts.append(("aten::item", at, 1))
        for _ in range(pauses):
            at += pause * MS / pauses
            parts.append(("aten::item", at, 1))
        at += 2
        if marked:
            events.append(event("user_annotation", f"ProfilerStep#{number}", begin, at - begin))
        events += [
            event("cpu_op" if "::" in name or name == "detach" else "user_annotation", name, ts, us)
            for name, ts, us in parts
        ]
    trace = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}
    return summarize(Analysis(open_capture(write_trace(tmp_path / "x.trace.json", trace))))


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(
    ("verdict", "planted"),
    [
        ("data", dict(load=20)),
        ("evaluation", dict(evaluate=20)),
        ("checkpoint", dict(save=20)),
        ("cpu", dict(pause=20)),
        ("cpu", dict(pause=20, pauses=200)),
    ],
)
def test_what_takes_most_of_a_step_is_the_verdict(tmp_path, verdict, planted, marked):
    report = trained(tmp_path, **planted, marked=marked)
    found = report.bottleneck
    assert report.on_cpu and found.verdict == verdict
    ms = {row.name: row.host_ms / report.window.steps for row in report.phases}
    # steps without ranges last from optimizer to optimizer, the first one from its first operator:
    # of five loads, or of five evaluations, they hold four
    share = 1 if marked else 0.8
    assert ms["other" if verdict == "cpu" else verdict] == pytest.approx(20 * share, rel=0.02)
    assert ms["backward"] == pytest.approx(4) and ms["optimizer"] == pytest.approx(1, rel=0.02)
    assert verdict_line(report).endswith("the run has no GPU")
    assert "up to" in found.most_to_gain and "GPU" not in " ".join(found.next)


def test_a_loader_that_is_fast_enough_and_a_model_that_computes(tmp_path):
    report = trained(tmp_path, load=0.8)
    assert report.bottleneck.verdict == "cpu_only"
    assert report.bottleneck.evidence[0].startswith("The next batch is made while nothing else")
    assert report.bottleneck.evidence[1].startswith("The longest phase is backward: 4.00 of")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (NEXT, "data"),
        ("[pl][profile][_TrainingEpochLoop].train_dataloader_next", "data"),
        ("get_batch", "data"),
        ("[pl][profile][_EvaluationLoop].val_next", "evaluation"),
        ("[pl][profile][Strategy]SingleDeviceStrategy.validation_step", "evaluation"),
        ("[pl][profile]save_checkpoint", "checkpoint"),
        ("metrics", "logging"),
        ("log", "logging"),
        ("log_softmax", None),
        ("[pl][profile]run_training_batch", None),
        ("values", None),
        ("backward", None),
    ],
)
def test_the_name_of_a_phase_tells_its_class(name, expected):
    assert class_of_phase(name) == expected


def test_what_lies_between_the_passes_of_an_evaluation_belongs_to_it(tmp_path):
    events = []
    for number in range(5):
        at = 1000.0 + number * 30 * MS
        events.append(event("user_annotation", f"iteration {number}", at, 30 * MS))
        rows = [("forward", 4), ("backward", 6), ("optimizer", 2)]
        rows += [("data", 2), ("evaluation", 3), ("data", 4), ("evaluation", 3)]
        for name, ms in rows:
            events.append(event("user_annotation", name, at, ms * MS))
            if name != "data":
                events.append(event("cpu_op", "aten::mm", at, ms * MS))
            at += ms * MS
    trace = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}
    report = summarize(Analysis(open_capture(write_trace(tmp_path / "x.trace.json", trace))))
    first, second, *_ = evidence = report.bottleneck.evidence
    assert report.bottleneck.verdict == "evaluation"
    assert first == "An evaluation runs inside the step: 10.00 of 30.00 ms per step (33 %)."
    assert second.startswith("No operator runs") and "6.00 of 30.00" in second
    assert any("nothing else runs: 2.00 of 30.00 ms" in line for line in evidence)


@pytest.mark.parametrize("wait", ["in backward", "behind it"])
def test_a_collective_of_ranks_is_no_pause_and_no_quiet_phase(tmp_path, wait):
    """Backward computes 4 ms; the wait for gloo's thread, 12 ms, is a part of it, as in DDP, or
    comes behind it, as in DeepSpeed. Its operator, which DDP calls from one of autograd's, takes
    2 ms of that."""
    events = []
    for number in range(5):
        at = 1000.0 + number * 20 * MS
        events += [
            event("user_annotation", f"iteration {number}", at, 20 * MS),
            event("user_annotation", "forward", at, 2 * MS),
            event("cpu_op", "aten::addmm", at, 2 * MS),
            event("user_annotation", "backward", at + 2 * MS, (16 if wait[0] == "i" else 4) * MS),
            event("cpu_op", NODE, at + 2 * MS, (6 if wait[0] == "i" else 4) * MS),
            event("cpu_op", "c10d::allreduce_", at + 6 * MS, 2 * MS),
            event("user_annotation", "gloo:all_reduce", at + 7 * MS, 11 * MS) | {"tid": 43},
            event("user_annotation", "optimizer", at + 18 * MS, 2 * MS),
            event("cpu_op", "aten::add_", at + 18 * MS, 2 * MS),
        ]
    trace = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}
    report = summarize(Analysis(open_capture(write_trace(tmp_path / "x.trace.json", trace))))
    found = report.bottleneck
    assert found.verdict == "communication"
    assert verdict_line(report) == (
        "Bound by communication: the rank waited for others, or exchanged data with them, and the "
        "run has no GPU"
    )
    assert found.evidence[0].startswith("Ranks exchange data, or wait for one another, while no op")
    assert "12.00 of 20.00 ms per step (60 %)" in found.evidence[0]
    assert "No operator runs" not in " ".join(found.evidence)
    assert "Operators take 8.00 of 20.00 ms" in " ".join(found.evidence)
    assert "outside the phases" not in " ".join(found.evidence)
    assert not any("GPU" in line or "--ranks" in line for line in found.next)


def test_the_times_of_a_step_are_worked_out_once(tmp_path, monkeypatch):
    counted = {name: Mock(wraps=getattr(cpu_waits, name)) for name in ("operators", "collectives")}
    for name, function in counted.items():
        monkeypatch.setattr(cpu_waits, name, function)
    report = trained(tmp_path, load=20, evaluate=10, pause=10)
    assert report.bottleneck.verdict == "data"
    assert {name: function.call_count for name, function in counted.items()} == {
        "operators": 1,
        "collectives": 1,
    }
