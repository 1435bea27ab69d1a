"""No page has a fault that axe-core finds, of any impact, in light or dark.

The page of the attention lab is searched in tests/lab/test_attention_lab.py.
"""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from benchmarks.fleet.simulation import Fault, Fleet
from profiling.analysis.bench.bench_records import Asked, Bench, Evaluation, TimedProcess, Work
from profiling.analysis.bench.result import measures
from profiling.analysis.difference.baseline import Machine, Sitting
from profiling.analysis.difference.comparison import compare
from profiling.analysis.difference.comparison_records import Experiment
from profiling.analysis.memory.analysis import memory_report
from profiling.analysis.open_report import Capture, open_report
from profiling.analysis.runs.folder import read_run
from profiling.report.bench.document import bench_document
from profiling.report.comparison.document import comparison_document, experiment_document
from profiling.report.dashboard.document import dashboard_page
from profiling.report.history import history_document, points_of
from profiling.report.lab.compiled_document import compiled_document
from profiling.report.memory.document import memory_document
from profiling.report.ranks.document import ranks_document
from profiling.report.ranks.timeline import timeline_of
from profiling.report.renderers.page import page
from profiling.report.single.document import report_document
from profiling.shared.json_records import read_json
from tests.helpers.captures import capture_of, compilation
from tests.helpers.chromium import open_page
from tests.helpers.documents import with_first_rows, without_charts
from tests.helpers.fleet import analyse_files, write_fleet
from tests.helpers.folders import write_run
from tests.helpers.memory_snapshots import out_of_memory, pickled
from tests.helpers.reports import flash, slow
from tests.paths import GOLDENS
from validation.axe import violations
from validation.jax_events import steps_of_jax

pytestmark = pytest.mark.slow  # a dozen pages in Chromium


def nsys_page(_: Path) -> str:
    capture = capture_of("flash_metrics")
    return page(with_first_rows(report_document(capture.report, capture.step_events), 2))


def trace_page(_: Path) -> str:
    """Page with the blocks that the one of nsys lacks: warnings and the table of whatif."""
    return part_of_report(capture_of("flash_eager.trace"), ("whatif", "health"))


def jax_page(folder: Path) -> str:
    path = folder / "vm.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": steps_of_jax()}).encode()))
    capture = open_report(path)
    return part_of_report(capture, ("health", "run"))


def part_of_report(capture: Capture, names: tuple[str, ...]) -> str:
    document = report_document(capture.report, capture.step_events)
    sections = [section for section in document.sections if section.name in names]
    assert len(sections) == len(names)
    return page(without_charts(replace(document, sections=sections)))


def ranks_page(folder: Path) -> str:
    late = Fleet(ranks=4, steps=4, fault=Fault("slower_kernels", ranks=(2,)))
    analysis = analyse_files(write_fleet(late, folder))
    return page(ranks_document(analysis.report, timeline_of(analysis)))


def runs_page(folder: Path) -> str:
    folders = [
        write_run(folder / f"{name}-{seed}", name, seed, rows=5, gpu=False)
        for name in ("slow", "flash")
        for seed in (1, 2)
    ]
    return dashboard_page([read_run(each) for each in folders])


def compiled_page(_: Path) -> str:
    compiled = compilation()
    return page(compiled_document(compiled.index, compiled.files))


def bench_page(_: Path) -> str:
    loss = [Evaluation(0, 3.0, 4.2), Evaluation(250, 9.0, 1.6)]
    processes = [
        TimedProcess(kind, side, 0, [], f"runs/{kind}", 10.0, row_ms=[ms], evaluations=loss)
        for side, ms in (("theirs", 7.0), ("ours", 3.5))
        for kind in ("steps", "run")
    ]
    asked = Asked(["config.yaml"], "/somewhere/nanoGPT", "f00", 300, 1000, 200, 64)
    work = [Work("parameters", "1M", "1M", True)]
    bench = Bench(1, asked, "2026-11-22T00:00:00+00:00", processes, work=work)
    return page(bench_document(msgspec.structs.replace(bench, result=measures(bench)), 2.0))


def memory_page(folder: Path) -> str:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickled(out_of_memory().snapshot()))
    return page(memory_document(memory_report([path]), path.name))


def history_page(_: Path) -> str:
    machine = Machine(None, "a CPU", 2, "2.13.0", None)
    kept = ("python a.py", None, 20, [[1.0, 1.1, 1.2, 1.3, 1.4]] * 2, [2.0, 2.1], 1.5, machine)
    sittings = [
        Sitting(1, "main", f"2026-01-0{day}T00:00:00Z", None, False, None, *kept, {}, [])
        for day in (1, 2)
    ]
    return page(history_document(points_of(sittings)))


PAGES: dict[str, Callable[[Path], str]] = {
    "nsys": nsys_page,
    "trace": trace_page,
    "jax": jax_page,
    "ranks": ranks_page,
    "compare": lambda _: page(comparison_document(compare(slow(), flash()))),
    "ab": lambda _: page(experiment_document(read_json(GOLDENS / "ab-bare.json", Experiment))),
    "dashboard": runs_page,
    "compiled": compiled_page,
    "bench": bench_page,
    "memory": memory_page,
    "history": history_page,
}


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(browser, name, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(PAGES[name](tmp_path), encoding="utf-8")
    open_page(browser, path)
    assert violations(browser) == []
