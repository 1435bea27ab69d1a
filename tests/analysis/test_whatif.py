"""Predictions from captures: what holds of each, and what is refused."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from profiling.analysis.analysis import Analysis
from profiling.analysis.open_report import Capture, open_report
from profiling.analysis.whatif import whatif
from profiling.analysis.whatif.changes import NO
from profiling.analysis.whatif.whatif import Asked
from profiling.analysis.whatif.whatif_records import Prediction, WhatIf
from profiling.report.whatif import commands, facts, unscaled
from profiling.shared.manifest import CapturedWindow, Laps, Manifest, WindowSteps
from profiling.timeline.trace import GRAPH, Trace
from tests.helpers.captures import APART, OWN, capture_of
from tests.helpers.programs import MS, US, Builder, Program, training
from validation.jax_events import steps_of_jax

EAGER = ("slow_eager", "flash_eager", "flash_eager.trace", *APART[:1])
FASTER = (("gemm", 0.5), ("gemm", 0.8))


def asked(name: str) -> Asked:
    return Asked(tuple(NO), name in EAGER, FASTER)


def capture(trace: Trace, manifest: Manifest | None = None) -> Capture:
    return Capture(Analysis(trace), manifest, None)


def what_if(capture: Capture, asked: Asked) -> WhatIf:
    return whatif.what_if(capture.analysis, capture.manifest, asked)


def by_change(result: WhatIf) -> dict[str, Prediction]:
    return {row.change: row for row in result.predictions}


@pytest.mark.parametrize("name", [*OWN, *APART, "flash_metrics"])
def test_what_holds_of_every_capture(name):
    result = what_if(capture_of(name), asked(name))
    assert result.gates.passed and result.gates.end_percent < 0.001
    assert result.gates.steady_percent < 1.5
    rows = by_change(result)
    for row in rows.values():
        assert row.gpu_ms <= row.step_ms and row.low_ms <= row.step_ms <= row.high_ms
        assert row.step_ms <= result.free.ms  # all of these only take away
        assert row.ratio_low <= row.ratio <= row.ratio_high
        assert row.answer != "shorter" or row.high_ms <= result.free.ms
        vague = row.limited_by == "host" and row.high_ms == result.free.ms
        assert row.has_size != (row.answer == "cannot tell" or row.answer == "shorter" and vague)
    assert rows["--scale gemm=0.5"].step_ms <= rows["--scale gemm=0.8"].step_ms
    nothing = rows["--no allocation"]
    assert nothing.answer == "nothing" and nothing.step_ms == result.free.ms
    assert nothing.ratio == nothing.ratio_low == nothing.ratio_high == 1


def test_two_tools_agree_on_one_program():
    """The steps of the two captures differ by a factor of two."""
    nsys, kineto = (by_change(what_if(capture_of(n), asked(n))) for n in EAGER[1:3])
    assert nsys["--graphs"].step_ms == pytest.approx(kineto["--graphs"].step_ms, rel=0.1)
    assert nsys["--graphs"].answer == kineto["--graphs"].answer == "shorter"


def test_the_step_is_given_measured_or_estimated():
    manifest = Manifest(1, "nsys", CapturedWindow(), WindowSteps(before=Laps(12.0)))
    trace = capture_of("flash_eager").trace
    found = [
        what_if(capture(trace, known), Asked(no=("cpu",), free_ms=free_ms)).free
        for known, free_ms in ((None, None), (manifest, None), (manifest, 11.5))
    ]
    assert [each.source for each in found] == ["estimated", "manifest", "given"]
    assert [each.ms for each in found[1:]] == [12, 11.5]
    assert [each.scaled for each in found] == [False, True, True]


@pytest.mark.parametrize("workers", [True, False])
def test_a_step_that_waits_for_workers_takes_as_long_without_a_profiler(workers):
    """A loader in the program's own process is another matter: there the profiler costs time."""
    kind = "_MultiProcessing" if workers else "_SingleProcess"
    made = Program()
    for _ in range(5):
        with made.step():
            begin = made.host
            made.work(8 * MS)
            loader = f"enumerate(DataLoader)#{kind}DataLoaderIter.__next__"
            made.build.range(begin, made.host, loader, domain=None)
            for _ in range(40):
                made.launch(5 * US, 40)
    found = what_if(capture(made.trace(kind="kineto")), Asked(no=("data",)))
    assert (found.free.ms == found.captured_ms) is workers
    assert found.free.ms <= found.captured_ms and found.predictions[0].answer == "shorter"


def test_a_step_that_the_replay_comes_nowhere_near_scales_nothing_and_a_sentence_says_so():
    near, far = (what_if(capture_of("flash_eager"), Asked(free_ms=ms)) for ms in (12, 2))
    assert unscaled(near) == [] and far.free.replayed_ms == near.free.replayed_ms
    (line,) = unscaled(far)
    assert "are not scaled to the 2.00 ms" in line and "a step takes 11.68 ms" in line


def test_waits_by_the_driver_that_pytorch_s_profiler_does_not_record_leave_it_open():
    """Kernels that a program launches by the driver's calls are alone then; PyTorch's own are
    within its operators, and nsys records the waits."""

    def of(kind: str, operator: bool = False, name: str = "cuLaunchKernelEx") -> Prediction:
        program = Program()
        for _ in range(5):
            with program.step():
                for _ in range(20):
                    begin = program.host
                    program.host += 6 * US
                    program.execute(20 * US, "spread", program.call(5 * US, name))
                    program.host = program.gpu + 4 * US  # a wait that is not recorded
                    if operator:
                        program.build.operator(begin, program.host, "aten::mul")
        found = what_if(capture(program.trace(kind=kind)), Asked(no=("sync",)))
        return found.predictions[0]

    unseen = of("kineto")
    assert unseen.answer == "cannot tell" and "no wait by the driver's calls" in str(unseen.reason)
    for seen in (of("nsys"), of("kineto", operator=True), of("kineto", name="cudaLaunchKernel")):
        assert seen.answer == "nothing"


def test_without_a_change_all_are_asked_of_which_there_is_something():
    eager = by_change(what_if(capture_of("flash_eager"), Asked()))
    assert {*eager} == {"--no sync", "--graphs"}
    assert "--graphs" not in by_change(what_if(capture_of("flash_compile"), Asked()))


def test_a_document_counts_one_step_and_names_no_folders():
    found = what_if(capture_of("flash_eager"), Asked())
    assert facts(replace(found, steps=1))[0][1].startswith("1 step, ")
    measured = replace(found.predictions[0], try_it="ab -- python /home/me/mine/train.py --lr=1")
    (line,) = commands(replace(found, predictions=[measured]))
    assert line == "--no sync: python -m profiling ab -- python train.py --lr=1"


def test_together_is_one_prediction():
    given = Asked(("cpu", "sync"), True, (("gemm", 0.5),), together=True)
    (row,) = what_if(capture_of("flash_eager"), given).predictions
    assert row.change == "--no cpu --no sync --graphs --scale gemm=0.5"
    alone = what_if(capture_of("flash_eager"), replace(given, together=False)).predictions
    assert row.step_ms < min(each.step_ms for each in alone)


def test_the_command_that_measures_a_change():
    own = capture_of("flash_eager.trace")
    rows = by_change(what_if(own, asked("flash_eager.trace")))
    command = "ab config/shakespeare_char.yaml attention=flash compile=false cuda_graphs=false,true"
    assert rows["--graphs"].try_it == command
    assert rows["--no sync"].try_it is rows["--no data"].try_it is None
    assert own.manifest and own.manifest.config
    tokens = replace(own.manifest, config=own.manifest.config | {"token_storage": "mmap"})
    (row,) = what_if(capture(own.trace, tokens), Asked(no=("data",))).predictions
    assert row.try_it and row.try_it.endswith(" token_storage=mmap,device")
    foreign = replace(own.manifest, config={"command": "python mine.py --lr 1"})
    (row,) = what_if(capture(own.trace, foreign), Asked(no=("sync",))).predictions
    assert row.try_it and "-- python mine.py --lr 1 ::: " in row.try_it


def test_steps_in_which_nothing_was_launched_are_refused():
    build = Builder()
    for row in range(10):
        build.launched(row * US, row * MS, (row + 1) * MS)
    for step in range(4):
        build.range((20 + step) * MS, (21 + step) * MS, f"iteration {step}")
        build.call((20 + step) * MS, (20 + step) * MS + US, "cudaStreamSynchronize")
    found = capture(build.trace())
    with pytest.raises(ValueError, match="nothing on the GPU was launched in its steps"):
        what_if(found, Asked())
    assert found.report.what_if is None


def test_a_capture_that_is_not_given_back_tells_nothing():
    """The GPU falls behind at first and lives on its lead, as no steady program does."""
    build = Builder()
    for step in range(12):
        at = step * MS
        for row in range(10):
            launch = at + row * 20 * US
            start = max(launch + 8 * US, 4 * MS + (10 * step + row) * 55 * US)
            build.launched(launch, start, start + 50 * US)
        build.range(at, at + 900 * US, f"iteration {step}")
    result = what_if(capture(build.trace()), Asked(no=("cpu",), graphs=True))
    assert not result.gates.passed and result.gates.end_percent < 1
    assert {row.answer for row in result.predictions} == {"cannot tell"}
    assert "replayed unchanged" in (result.predictions[0].reason or "")


def program(steps: int = 5) -> Program:
    made = Program()
    for _ in range(steps):
        with made.step():
            made.launch(50 * US, 5)
    return made


def overlapping() -> Trace:
    build = training()
    for row in range(2_000):
        build.launched(row * 25 * US, row * 25 * US + 8 * US, row * 25 * US + 9 * US, thread=99)
    return build.trace()


def of_two_gpus() -> Trace:
    made = program()
    made.build.operation(1, 2, device=1)
    return made.trace()


def renamed(name: str) -> Trace:
    made = program()
    made.build.launched(made.host, made.gpu, made.gpu + 1, name)
    return made.trace()


def as_whole_graphs() -> Trace:
    made = program()
    made.launch(50 * US, kind=GRAPH)
    return made.trace()


def half_without_calls() -> Trace:
    made = program().trace()
    made.operations.call[::2] = -1
    return made


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        (half_without_calls(), "half of its operations or more have no recorded call"),
        (program().trace(calls=None), "no CUDA calls were recorded"),
        (program().trace(ranges=None), "it contains no steps"),
        (program(2).trace(), "it contains 2 steps; at least 3"),
        (overlapping(), "several threads drive the GPU at the same time"),
        (of_two_gpus(), "several GPUs or processes; for more GPUs: python -m profiling scale"),
        (renamed("ncclDevKernel_AllReduce"), "one of several ranks; for several GPUs"),
        (as_whole_graphs(), "captured as a whole"),
        (program().trace(operations=None), "no GPU activity"),
    ],
)
def test_a_capture_that_cannot_be_replayed(trace, why):
    with pytest.raises(ValueError, match=re.escape(why)) as refused:
        what_if(capture(trace), Asked())
    assert "\n" not in str(refused.value) and str(refused.value).startswith("hand.sqlite: ")


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("flash_compile", Asked(graphs=True), "already runs in CUDA graphs: cudaGraphLaunch"),
        ("flash_eager", Asked(scale=(("convolution", 0.5),)), "they have gemm, attention,"),
        ("flash_eager", Asked(without=(re.compile("no such"),)), "--without no such: no operator"),
    ],
)
def test_a_change_that_cannot_be_made(name, given, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        what_if(capture_of(name), given)


def test_ranks_are_refused():
    manifest = Manifest(1, "nsys", CapturedWindow(), world_size=2)
    with pytest.raises(ValueError, match="one of several ranks"):
        what_if(capture(program().trace(), manifest), Asked())


def test_an_impossible_order_ends():
    """Operations end before they are launched, and calls have no end."""
    made = program(40)
    trace = made.trace()
    assert trace.operations and trace.calls
    operations, calls = trace.operations, trace.calls
    early = replace(
        operations, start_ns=np.sort(operations.start_ns % 97), end_ns=operations.end_ns % 97
    )
    endless = replace(
        calls, end_ns=np.where(np.arange(len(calls.end_ns)) % 3, calls.end_ns, 1 << 50)
    )
    for spoilt in (replace(trace, operations=early), replace(trace, calls=endless)):
        try:
            result = what_if(capture(spoilt), Asked())
        except ValueError as refused:
            assert "\n" not in str(refused)
        else:
            assert all(np.isfinite(row.step_ms) for row in result.predictions)


def test_a_report_has_what_helps_most_and_nothing_else(monkeypatch):
    eager = capture_of("flash_eager")
    found = whatif.what_would_help(eager.analysis, None)
    asked_for_all = what_if(eager, Asked())
    shorter = by_change(asked_for_all)["--graphs"]
    assert found == replace(asked_for_all, predictions=[shorter])
    steps_ms = [7.0, 5.0, 8.0, 6.0, 9.0, 4.0]
    rows = [replace(shorter, step_ms=ms) for ms in steps_ms]
    rows.append(replace(shorter, step_ms=1.0, reason="by how much is not known"))
    with monkeypatch.context() as patch:
        patch.setattr(whatif, "what_if", lambda *_: replace(asked_for_all, predictions=rows))
        found = whatif.what_would_help(eager.analysis, None)
    assert found and [row.step_ms for row in found.predictions] == sorted(steps_ms)[:5]
    monkeypatch.setattr(whatif, "MOST_IN_REPORT", len(eager.trace.operations.name) - 1)
    assert whatif.what_would_help(eager.analysis, None) is None


def test_what_jax_s_profiler_does_not_show_as_calls_is_refused(tmp_path):
    """A trace with full buffers as functions, and no allocation, would say "nothing"."""
    path = tmp_path / "vm.trace.json"
    path.write_text(json.dumps({"traceEvents": steps_of_jax()}))
    capture = open_report(path)
    for what in ("copies", "allocation"):
        with pytest.raises(ValueError, match=f"--no {what}: vm.trace.json does not show all of it"):
            what_if(capture, Asked(no=(what,)))
    assert {each.change for each in what_if(capture, Asked()).predictions} <= {
        "--no data", "--no sync", "--no cpu", "--graphs",
    }  # fmt: skip
