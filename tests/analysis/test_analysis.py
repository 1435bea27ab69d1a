"""One analysis serves every question about a capture."""

import json
import shutil
from dataclasses import replace

import pytest

from profiling.analysis import analysis as module
from profiling.analysis.analysis import Analysis
from profiling.analysis.open_report import open_report
from profiling.shared.json_records import to_json
from tests.helpers.captures import event, trace_of, write_trace
from tests.helpers.programs import training
from tests.helpers.reports import MANIFEST
from tests.paths import CAPTURES

PARTS = ("find_steps", "attribute", "boundaries", "families_of", "activity_of", "find_gaps")


def test_report_timeline_and_export_find_each_part_once(monkeypatch):
    asked = []
    for name in PARTS:
        find = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, f=find, n=name: asked.append(n) or f(*a))
    capture = open_report(CAPTURES / "flash_compile.sqlite.gz")
    assert asked == []
    assert capture.report is capture.report
    assert capture.step_events is not None and capture.analysis.owning_phase is not None
    assert sorted(asked) == sorted(PARTS)


def test_events_that_take_no_time_are_refused_by_name(tmp_path):
    """Nothing is a share of a step of 0 ms."""
    trace = {"traceEvents": [event("kernel", "gemm", 5, 0, correlation=1, device=0, stream=7)]}
    with pytest.raises(ValueError, match=r"x\.json: all of its events have zero duration"):
        open_report(write_trace(tmp_path / "x.json", trace)).report  # noqa: B018


def test_what_was_not_captured_has_no_part():
    analysis = Analysis(replace(trace_of("slow_eager"), operations=None))
    assert analysis.owned is analysis.owning_phase is analysis.activity is analysis.gaps is None
    assert analysis.step_count == 20
    build = training()
    build.operations = [row | {"call": -1} for row in build.operations]
    build.calls.clear()
    analysis = Analysis(build.trace())
    assert analysis.activity is not None and analysis.gaps is None


@pytest.fixture
def folder(tmp_path):
    shutil.copy(CAPTURES / "slow_eager.sqlite.gz", tmp_path / "nsys.sqlite.gz")
    return tmp_path


@pytest.mark.slow
def test_the_manifest_lies_beside_the_capture_or_where_it_is_said(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    path = folder / "nsys.sqlite.gz"
    assert open_report(path).manifest is None
    other = elsewhere / "other.json"
    other.write_text(to_json(replace(MANIFEST, overhead_percent=7.0)))
    (folder / "window-3.json").write_text(to_json(MANIFEST))
    assert open_report(path).manifest == open_report(folder).manifest == MANIFEST
    given = open_report(path, other)
    assert (given.manifest_name, given.report.health.overhead_percent) == ("other.json", 7.0)
    shutil.copy(path, elsewhere)
    assert open_report(elsewhere).manifest is None
    assert open_report(elsewhere / "nsys.sqlite.gz", beside=path).manifest_name == "window-3.json"


def test_the_manifests_facts_are_the_reports(folder):
    (folder / "window-1.json").write_text(to_json(MANIFEST))
    told = json.loads(to_json(open_report(folder).report))
    assert told["run"] == {
        key: json.loads(to_json(MANIFEST))[key]
        for key in ("config", "environment", "attention", "compile", "process")
    } | {"gpu_clock": None, "program_steps": None}
