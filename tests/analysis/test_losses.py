"""Launched kernels that a capture lost: counted, reported, and no verdict above 5 %."""

import gzip
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from profiling.analysis.analysis import Analysis
from profiling.analysis.difference.compared import compared_capture
from profiling.analysis.difference.comparison import compare
from profiling.analysis.gpu_time.losses import Losses
from profiling.analysis.open_report import Capture
from profiling.analysis.records import Report
from profiling.analysis.scale.model_sizes import ModelSizes
from profiling.analysis.scale.step_parts import step_parts
from profiling.analysis.summary import summarize
from profiling.report.document import Document
from profiling.report.renderers import terminal as renderer
from profiling.report.renderers.markdown import markdown
from profiling.report.renderers.page import page
from profiling.report.single.document import report_document
from profiling.report.single.screen import first_screen
from profiling.report.single.verdict_line import verdict_line
from profiling.shared.json_records import to_json
from profiling.timeline import chrome_json
from profiling.timeline.nsys_sqlite import read
from profiling.timeline.trace import COPY, KERNEL, EventCounts
from tests.helpers import fleet
from tests.helpers.captures import event, small_trace, write_trace
from tests.helpers.programs import MAIN, MS, US, Builder, Program, training
from tests.helpers.written import write_nsys
from tests.paths import PROJECT
from tests.soak.damage import alter_export


def lossy(share: float) -> Builder:
    """A training of 252 launches whose kernels are gone by that share, spread over all of it."""
    build = training()
    every = round(1 / share)
    build.operations = [row for i, row in enumerate(build.operations) if i % every != every // 2]
    return build


def losses(build: Builder, **fields) -> Losses | None:
    return Analysis(build.trace(**fields)).losses


def report_of(build: Builder) -> Report:
    return summarize(Analysis(build.trace()))


@pytest.mark.parametrize(("kept", "no_verdict"), [(800, False), (300, True)])
def test_events_that_the_tool_counted_tell_where_launches_are_lost_too(kept, no_verdict):
    report = summarize(Analysis(training().trace(events=EventCounts(1000, kept))))
    assert report.health.lost_kernels.no_verdict == no_verdict
    assert (report.bottleneck.verdict == "unknown") == no_verdict
    said = f"the capture holds only {kept} of 1,000 recorded events"
    assert (said in verdict_line(report)) == no_verdict


def test_a_whole_capture_lost_nothing():
    assert losses(training()) == Losses(252, 0)
    assert report_of(training()).health.lost_kernels.percent == 0.0
    assert not report_of(training()).health.loss_findings


@pytest.mark.parametrize(("share", "lost"), [(0.02, 5), (0.04, 10)])
def test_a_small_loss_is_a_warning_beside_the_verdict(share, lost):
    report = report_of(lossy(share))
    assert report.health.lost_kernels.lost == lost and not report.health.lost_kernels.no_verdict
    assert report.bottleneck.verdict == report_of(training()).bottleneck.verdict != "unknown"
    for words in everywhere(report):
        assert f"{lost} of 252 launched kernels are not in the capture" in words


@pytest.mark.parametrize(("share", "lost"), [(0.1, 25), (0.25, 63), (0.34, 84)])
def test_above_five_per_cent_nothing_names_a_bottleneck(share, lost):
    report = report_of(lossy(share))
    assert report.health.lost_kernels.lost == lost and report.health.lost_kernels.no_verdict
    found = report.bottleneck
    assert (found.verdict, found.ranked, found.most_to_gain) == ("unknown", [], None)
    assert "capture again: fewer steps" in found.next[0]
    assert verdict_line(report).startswith(
        f"No bottleneck can be named: {lost} of 252 launched kernels"
    )
    for words in everywhere(report):
        assert f"{lost} of 252 launched kernels" in words and "Bound by" not in words


def terminal(document: Document) -> str:
    said = io.StringIO()
    renderer.show(document, Console(file=said, width=100))
    return said.getvalue()


def everywhere(report: Report) -> list[str]:
    """The first screen, the whole report, Markdown and page, on one line each."""
    whole = report_document(report)
    texts = [terminal(first_screen(report)), terminal(whole), markdown(whole), page(whole)]
    return [" ".join(text.split()) for text in texts]


def test_no_kernel_at_all_is_no_known_share_and_no_verdict():
    build = training()
    build.operations = []
    call = build.call(0, 5 * US, "cudaMemcpyAsync")
    build.operation(6 * US, 9 * US, "[CUDA memcpy Host-to-Device]", call, kind=COPY, bytes=8)
    report = report_of(build)
    lost = report.health.lost_kernels
    assert (lost.launched, lost.lost, lost.percent, lost.no_verdict) == (252, None, None, True)
    assert report.bottleneck.verdict == "unknown"
    assert "no kernel for any of its 252 launches" in report.health.findings[0].what


def test_without_calls_or_launches_nothing_is_known():
    build = training()
    assert losses(build, calls=None) is None
    copies = Program()
    with copies.step():
        copies.copy(1 * MS)
    assert losses(copies.build) is None
    assert report_of(copies.build).health.lost_kernels is None


def add_calls(build: Builder, at: int, names: tuple[str, ...], failed: bool = False) -> None:
    for number, name in enumerate(names):
        build.call(at + number * 10, at + number * 10 + 5, name)
        build.calls[-1] = (*build.calls[-1][:-1], failed)


def test_failed_launches_and_those_of_a_graph_capture_have_no_kernel():
    launches = ("cudaLaunchKernel_v7000", "cuLaunchKernelEx", "hipModuleLaunchKernel") * 20
    build = training()
    add_calls(build, 5 * MS, launches, failed=True)
    assert losses(build) == Losses(252, 0)
    build = training()
    around = ("cudaStreamBeginCapture_v10000", *launches, "cudaStreamEndCapture_v10000")
    add_calls(build, 5 * MS, around)
    assert losses(build) == Losses(252, 0)
    build = training()
    add_calls(build, 5 * MS, launches)
    assert losses(build) == Losses(312, 60)


@pytest.mark.parametrize("name", ["cudaStreamBeginCapture", "cudaStreamEndCapture_v10000"])
def test_half_a_graph_capture_excuses_no_launch_beside_others_with_kernels(name):
    build = lossy(0.25)
    add_calls(build, 30 * MS, (name,))
    assert losses(build).lost == 63


def test_launches_at_the_end_may_still_wait_for_the_gpu():
    build = training()
    end = max(row["end_ns"] for row in build.operations)
    add_calls(build, end - 9 * US, ("cudaLaunchKernel",) * 200)
    assert losses(build) == Losses(252, 0)
    add_calls(build, end + 9 * MS, ("cudaDeviceSynchronize",))  # nothing ran until then
    assert losses(build) == Losses(452, 200)


def test_a_call_inside_of_another_launches_the_same_kernel():
    build = Builder()
    for at in range(0, 1000 * US, 10 * US):
        build.call(at, at + 5 * US)
        build.operation(
            at + 7 * US, at + 9 * US, call=build.call(at + 1 * US, at + 4 * US, "cuLaunchKernel")
        )
    assert losses(build) == Losses(100, 0)


def graphs(launches: int = 30) -> Builder:
    """Three graphs in turn, of eight nodes, of four and of none."""
    build = Builder()
    for number in range(launches):
        at = number * MS
        build.range(at, at + MS, f"iteration {number // 3}") if number % 3 == 0 else None
        call = build.call(at, at + 20 * US, "cudaGraphLaunch_v10000")
        for node in range((8, 4, 0)[number % 3]):
            start = at + (30 + 20 * node) * US
            of_graph = {"graph_node": 100 * (number % 3) + node}
            build.operation(start, start + 10 * US, call=call, **of_graph)
    build.call(launches * MS, launches * MS + US, "cudaDeviceSynchronize")
    return build


def test_kernels_of_graphs_are_counted_by_their_nodes():
    assert losses(graphs()) == Losses(120, 0)
    build = graphs()
    del build.operations[50:53], build.operations[7]
    assert losses(build) == Losses(120, 4)
    build = graphs()
    build.operations = [row for row in build.operations if not 9 * MS < row["start_ns"] < 13 * MS]
    assert losses(build) == Losses(120, 20)  # two launches whole, and another's eight
    build = graphs()
    build.operations = [row for row in build.operations if row["start_ns"] < 24 * MS]
    assert losses(build) == Losses(120, 24)  # up to the end


def test_another_process_may_have_lost_its_own():
    build, other = training(), lossy(0.5)
    other.process, other.names = 8, build.names
    build.calls += [(*row[:3], 8, 80, False) for row in training().calls]
    assert losses(build) == Losses(252, 0)


def test_a_comparison_with_a_lossy_side_cannot_tell():
    sides = [compared_capture(report_of(build)) for build in (training(), lossy(0.25))]
    comparison = compare(*sides)
    assert comparison.verdict == "cannot_tell" and comparison.cannot_tell.reason == "lost_kernels"
    assert "63 of 252 launched kernels" in comparison.sentence
    assert comparison.candidate.bottleneck is None and comparison.buckets is None
    kernels = comparison.kernels
    assert not (kernels.added or kernels.removed or kernels.changed)
    assert compare(sides[0], sides[0]).verdict == "equal"


# events that last too long


def test_an_event_longer_than_the_capture_is_left_out_and_said(tmp_path):
    path = tmp_path / "x.sqlite"
    write_nsys(training().trace(), path)
    query = (
        'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = "end" + 30000000000000000 WHERE rowid < 4'
    )
    path.write_bytes(alter_export(path.read_bytes(), lambda database: database.execute(query)))
    trace = read(path)
    assert trace.warnings == ["left out 3 events that last longer than the whole capture"]
    report = summarize(Analysis(trace))
    assert report.health.lost_kernels.lost == 3 and report.window.wall_ms < 100
    assert "left out 3 events" in " ".join(terminal(first_screen(report)).split())


def test_the_session_says_how_long_an_event_may_be(tmp_path):
    path = tmp_path / "x.sqlite"
    write_nsys(training().trace(), path)

    def change(database):
        database.execute("CREATE TABLE ANALYSIS_DETAILS (duration INT)")
        database.execute("INSERT INTO ANALYSIS_DETAILS VALUES (?)", (60 * MS,))
        kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
        database.execute(f'UPDATE {kernels} SET "end" = start + {59 * MS} WHERE rowid = 1')
        database.execute(f'UPDATE {kernels} SET "end" = start + {61 * MS} WHERE rowid = 2')

    path.write_bytes(alter_export(path.read_bytes(), change))
    assert read(path).warnings == ["left out 1 event that lasts longer than the whole capture"]


@pytest.mark.parametrize(("span_us", "left_out"), [(None, 0), (100, 1), (400_000, 0)])
def test_a_trace_of_torch_profiler_says_how_long_it_ran(tmp_path, span_us, left_out):
    trace = small_trace()
    events = [each for each in trace["traceEvents"] if each.get("cat") != "Trace"]
    start = events[1]["ts"]
    events.append(event("kernel", "long", start + 90, 300_000.0, device=0, stream=7, correlation=9))
    if span_us:
        events.append(event("Trace", "PyTorch Profiler (0)", start, span_us))
    found = chrome_json.read(write_trace(tmp_path / "x.json", trace | {"traceEvents": events}))
    assert len(found.warnings) == left_out
    assert sum(found.operations.kind == KERNEL) == 3 - left_out


# ranges without an end


def opened(build: Builder, names: tuple[str, ...]) -> Builder:
    """Leaves the ranges so called open until the end of the capture, as a reader hands them on."""
    last = max(row[1] for row in build.ranges)
    build.ranges = [
        (row[0], last, False, *row[3:]) if build.names[row[3]] in names else row
        for row in build.ranges
    ]
    return build


def test_steps_without_ends_stay_the_steps_that_they_are_and_are_said():
    whole, open_ones = training(), tuple(f"iteration {number}" for number in range(40, 46))
    analysis = Analysis(opened(training(), open_ones).trace())
    assert len(analysis.steps.start_ns) == 6 and analysis.steps.endless == 5
    assert analysis.bounds_ns[1:-1].tolist() == Analysis(whole.trace()).bounds_ns[1:-1].tolist()
    report = summarize(analysis)
    assert report.window.steps == 6
    said = " ".join(terminal(first_screen(report)).split())
    assert "5 ranges lost their ends" in said
    assert [row.name for row in report.phases] == ["data", "forward", "backward", "optimizer"]


def test_a_phase_without_an_end_is_left_out_and_said():
    report = summarize(Analysis(opened(training(), ("forward",)).trace()))
    assert report.window.steps == 6
    assert "5 ranges lost their ends" in " ".join(terminal(first_screen(report)).split())
    assert {"data", "backward", "optimizer"} <= {row.name for row in report.phases}


@pytest.mark.parametrize("copies_to_the_end", [True, False])
def test_launches_behind_a_long_copy_are_cut_off_and_not_lost(copies_to_the_end):
    """The host is ten launches ahead of a GPU that copies until the capture ends."""
    build = Builder()
    for i in range(20):
        build.launched(i * MS, i * MS, i * MS + US)
    if copies_to_the_end:
        call = build.call(20 * MS, 20 * MS + US, "cudaMemcpyAsync")
        build.operation(20 * MS, 40 * MS, call=call, kind=COPY)
    for i in range(10):
        build.call((21 + i) * MS, (21 + i) * MS + US, "cudaLaunchKernel")
    build.call(39 * MS, 40 * MS, "cudaStreamSynchronize")
    assert losses(build) == (Losses(20, 0) if copies_to_the_end else Losses(30, 10))


def test_a_range_that_the_end_of_the_capture_cut_off_lost_nothing():
    report = summarize(Analysis(opened(training(), ("iteration 45",)).trace()))
    assert report.window.steps == 6
    assert not any("lost" in finding.what for finding in report.health.findings)


def test_steps_of_one_name_without_ends():
    build = Builder()
    for step in range(6):
        build.range(step * 10 * MS, step * 10 * MS + 9 * MS, "step", domain=None)
        build.launched(step * 10 * MS, step * 10 * MS + MS, step * 10 * MS + 8 * MS, thread=MAIN)
    report = summarize(Analysis(opened(build, ("step",)).trace()))
    assert report.window.steps == 6 and report.window.step_name == "step"


def test_the_json_has_the_figures():
    found = json.loads(to_json(report_of(lossy(0.25))))
    lost = found["health"]["lost_kernels"]
    assert (lost["launched"], lost["lost"], lost["percent"]) == (252, 63, 25.0)
    assert found["bottleneck"]["verdict"] == "unknown" and replace(Losses(1, 0), lost=1).share == 1


def test_a_lossy_rank_leaves_it_open_who_is_waited_for(tmp_path):
    whole = PROJECT / "profiling" / "examples" / "late_rank"
    paths = sorted(shutil.copy(path, tmp_path) for path in whole.glob("*.trace.json.gz"))
    assert fleet.report_of(list(map(Path, paths))).verdict == "straggler"
    trace = json.loads(gzip.decompress(Path(paths[1]).read_bytes()))
    kernels = [each for each in trace["traceEvents"] if each.get("cat") == "kernel"]
    lost = {id(kernel) for kernel in kernels[::3]}
    trace["traceEvents"] = [each for each in trace["traceEvents"] if id(each) not in lost]
    Path(paths[1]).write_bytes(gzip.compress(json.dumps(trace).encode()))
    report = fleet.report_of(list(map(Path, paths)))
    assert report.verdict == "unknown" and report.straggler is None
    assert "launched kernels are not in the capture" in report.evidence[0]
    assert [row.no_verdict is None for row in report.ranks] == [True, False]
    assert [row.bottleneck == "unknown" for row in report.ranks] == [False, True]


def test_no_prediction_is_made_of_a_lossy_capture(tmp_path):
    capture = Capture(Analysis(lossy(0.25).trace()), None, None)
    with pytest.raises(ValueError, match="63 of 252 launched kernels .* capture again"):
        step_parts(capture, cast(ModelSizes, None))
