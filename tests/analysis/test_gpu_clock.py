"""GPU clock in the report of a capture that lies in its run's folder."""

import json
import shutil
from pathlib import Path

import pytest

from profiling.analysis.open_report import open_report
from profiling.analysis.records import Report
from tests.helpers.captures import MANIFESTS, path_of, report_of
from tests.helpers.folders import rows_of_start, with_rows
from tests.paths import CAPTURES

CLOCK = {"gpu/sm_clock_mhz": 1634.0, "gpu/throttle_power_percent": 95.0}
SAID = "Over the run the GPU's clock was 1634 MHz, throttled by its power limit 95 % of the time."


def of_run(out_dir: Path, **values: float) -> Report:
    """Reports a capture of a GPU that is busy, moved into the folder of a run with these means."""
    with_rows(out_dir, *(row | values for row in rows_of_start(5.4)))
    (out_dir / "summary.json").unlink()
    profile = out_dir / "profile"
    profile.mkdir()
    for file in (path_of("flash_metrics"), CAPTURES / MANIFESTS["flash_metrics"]):
        shutil.copy(file, profile)
    return open_report(out_dir, profile / MANIFESTS["flash_metrics"]).report


def test_a_clock_that_is_held_down_is_evidence(tmp_path):
    report = of_run(tmp_path / "out", **CLOCK)
    assert report.run is not None and report.run.gpu_clock is not None
    assert report.run.gpu_clock.sm_mhz == pytest.approx(1634)
    assert report.bottleneck.evidence[-1] == SAID
    alone = report_of("flash_metrics")
    assert alone.run is not None and alone.run.gpu_clock is None
    assert report.bottleneck.evidence[:-1] == alone.bottleneck.evidence
    assert report.health.findings == alone.health.findings


def test_a_clock_that_nothing_holds_down_is_known_and_no_evidence(tmp_path):
    report = of_run(tmp_path / "out", **CLOCK | {"gpu/throttle_power_percent": 5.0})
    assert report.run is not None and report.run.gpu_clock is not None
    assert (report.run.gpu_clock.sm_mhz, report.run.gpu_clock.held_down_by) == (1634.0, None)
    assert "clock" not in " ".join(report.bottleneck.evidence)


@pytest.mark.parametrize("has_ended", [True, False])
def test_a_run_without_samples_has_no_clock(tmp_path, has_ended):
    report = of_run(tmp_path / "out")
    if has_ended:
        (tmp_path / "out" / "summary.json").write_text("{}")
        manifest = tmp_path / "out" / "profile" / MANIFESTS["flash_metrics"]
        report = open_report(tmp_path / "out", manifest).report
    assert report.run is not None and report.run.gpu_clock is None
    assert report.health.findings == report_of("flash_metrics").health.findings


def test_the_rows_count_and_not_the_means_of_a_run_that_has_ended(tmp_path):
    """Means include the run's start and its captures."""
    of_run(tmp_path / "out", **CLOCK)
    (tmp_path / "out" / "summary.json").write_text(json.dumps(CLOCK | {"gpu/sm_clock_mhz": 1500}))
    manifest = tmp_path / "out" / "profile" / MANIFESTS["flash_metrics"]
    report = open_report(tmp_path / "out", manifest).report
    assert report.run is not None and report.run.gpu_clock is not None
    assert report.run.gpu_clock.sm_mhz == CLOCK["gpu/sm_clock_mhz"]


def test_rows_that_cannot_be_read_are_told_and_the_capture_is_reported(tmp_path):
    of_run(tmp_path / "out", **CLOCK)
    (tmp_path / "out" / "metrics.jsonl").write_text("no row\n")
    manifest = tmp_path / "out" / "profile" / MANIFESTS["flash_metrics"]
    report = open_report(tmp_path / "out", manifest).report
    assert report.run is not None and report.run.gpu_clock is None
    assert "clocks of the GPUs are not known" in report.health.findings[-1].what
    assert "metrics.jsonl:1" in report.health.findings[-1].what
