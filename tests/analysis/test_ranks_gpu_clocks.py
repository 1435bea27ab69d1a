"""Ranks whose kernels take longer: whether the GPU's clock is why, by the run's own rows."""

import json
from pathlib import Path

import pytest

from benchmarks.fleet.simulation import Fault, Fleet
from profiling.analysis.analysis import Analysis
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.analysis.records import Report
from profiling.analysis.runs.run_clocks import run_clocks
from tests.helpers.fleet import report_of, write_fleet
from tests.helpers.folders import rows_of_start, with_rows

LATE = Fleet(ranks=4, steps=4, fault=Fault("slower_kernels", ranks=(2,)))
HOT = {"gpu2/throttle_thermal_percent": 90.0, "gpu2/throttle_power_percent": 60.0}


def of_run(out_dir: Path, *mhz: float | None, fleet: Fleet = LATE, **more: float) -> RanksReport:
    """Reports a run with these clocks of its GPUs, in the order of the ranks."""
    names = ["gpu/sm_clock_mhz", *(f"gpu{number}/sm_clock_mhz" for number in range(1, len(mhz)))]
    clocks = dict(zip(names, mhz, strict=True)) | more
    with_rows(out_dir, *(row | clocks for row in rows_of_start(20.0)))
    (out_dir / "summary.json").unlink()
    return report_of(write_fleet(fleet, out_dir / "profile"))


@pytest.mark.parametrize(
    "mhz, more, said",
    [
        (
            (1980, 1970, 1500, 1980),
            {},
            "Over the run its clock was 1500 MHz; the others ran at 1980.",
        ),
        (
            (1980, 1970, 1500, 1980),
            HOT,
            "Over the run its clock was 1500 MHz, throttled by its temperature 90 % of the time; "
            "the others ran at 1980.",
        ),
        (
            (1980, 1970, 1975, 1980),
            {},
            "Over the run its clock was 1975 MHz, and the others ran at 1980, so the clock is "
            "not the reason. Check what else runs on that GPU.",
        ),
    ],
    ids=["slower", "hot", "as high"],
)
def test_the_clock_of_a_late_rank_is_held_against_the_others(tmp_path, mhz, more, said):
    report = of_run(tmp_path / "out", *mhz, **more)
    assert report.straggler is not None and report.straggler.rank == 2
    _, slower, clock = report.straggler.evidence
    assert slower.startswith("It runs the same kernels with the same grids, but each takes longer.")
    assert clock == said
    clocks = [row.gpu_clock for row in report.ranks]
    assert [clock and clock.sm_mhz for clock in clocks] == list(mhz)
    assert [clock and clock.held_down_by for clock in clocks] == [
        *(None, None, "temperature" if more else None, None),
    ]


def test_the_verdict_of_a_rank_itself_knows_its_clock(tmp_path, monkeypatch):
    """The same as in the report of its capture alone; `because` is made of that verdict."""

    def by_clock(analysis: Analysis, report: Report, *_: object) -> tuple[str, list[str]]:
        clock = report.run and report.run.gpu_clock
        return ("gpu_latency" if clock and clock.held_down_by else "gpu"), []

    monkeypatch.setattr("profiling.analysis.verdict.gpu.verdict", by_clock)
    of_run(tmp_path / "out", 1980, 1970, 1500, 1980, **HOT)
    paths = sorted((tmp_path / "out" / "profile").iterdir())
    for rank, path in enumerate(paths):
        of_rank = {"rank": rank, "world_size": 4, "files": [path.name]}
        manifest = {"schema_version": 1, "kind": "torch", "window": {}} | of_rank
        path.with_name(f"window-1-rank{rank}.json").write_text(json.dumps(manifest))
    report = report_of(paths)
    assert report.straggler is not None and report.straggler.because == "gpu_latency"
    assert report.ranks[2].bottleneck == "gpu_latency"


def test_where_no_row_tells_of_a_rank_the_reader_has_to_look(tmp_path):
    """Ranks of another machine than rank 0's have no rows, for example."""
    report = of_run(tmp_path / "out", 1980, 1980)
    assert [row.gpu_clock is None for row in report.ranks] == [False, False, True, True]
    assert report.straggler is not None and "Check the GPU's clocks" in report.straggler.evidence[2]
    alone = report_of(write_fleet(LATE, tmp_path / "elsewhere"))
    assert alone.straggler is not None and "Check the GPU's clocks" in alone.straggler.evidence[2]
    assert all(row.gpu_clock is None for row in alone.ranks) and not alone.findings


def test_rows_that_cannot_be_read_are_told_and_the_captures_reported(tmp_path):
    out_dir = with_rows(tmp_path / "out", *rows_of_start(20.0))
    (out_dir / "summary.json").unlink()
    (out_dir / "config.yaml").write_text("- no\n- mapping\n")
    report = report_of(write_fleet(LATE, out_dir / "profile"))
    assert report.straggler is not None and report.straggler.rank == 2
    (found,) = report.findings
    assert found.level == "note" and "clocks of the GPUs are not known" in found.what
    assert "config.yaml" in found.what


LARGER = Fleet(ranks=4, steps=4, noise=0.0, fault=Fault("larger_kernels", ranks=(2,)))


def powers(*limited: int) -> dict[str, float]:
    return {f"gpu{number or ''}/throttle_power_percent": 95.0 for number in limited}


@pytest.mark.parametrize("limited", [(0, 1, 2, 3), (0, 1, 2)], ids=["all", "not all"])
def test_where_power_holds_all_down_less_is_to_be_gained(tmp_path, limited):
    """The others' products take 6 % less time by their clocks, which fall with their waits."""
    mhz = (1802.0, 1802.0, 1700.0, 1802.0)
    late = of_run(tmp_path / "out", *mhz, fleet=LARGER, **powers(*limited)).straggler
    assert late is not None and late.rank == 2
    gemms_ms = (LARGER.forward + LARGER.backward) * LARGER.kernel_us / 1e3 * 3 / 4  # the rest adds
    ahead_ms = 0.06 * gemms_ms if len(limited) == 4 else 0.0
    assert late.gains_ms_per_step == pytest.approx(late.costs_ms_per_step - ahead_ms, abs=0.02)
    said = f"longer. So expect to gain {late.gains_ms_per_step:.2f} ms."
    assert late.evidence[-1].endswith(said) == (len(limited) == 4)


def test_kernels_that_take_equally_long_everywhere_are_not_ahead_by_a_clock(tmp_path):
    """All that the late rank computes longer is in the kernels that it alone launches."""
    fleet = Fleet(ranks=4, steps=4, noise=0.0, fault=Fault("more_kernels", ranks=(2,)))
    mhz = (1802.0, 1802.0, 1700.0, 1802.0)
    late = of_run(tmp_path / "out", *mhz, fleet=fleet, **powers(0, 1, 2, 3)).straggler
    assert late is not None and late.work == "more_kernels"
    assert late.gains_ms_per_step == pytest.approx(late.costs_ms_per_step, abs=0.02)


@pytest.mark.parametrize("mhz", [(1700, 1700, 1700, 1700), (1980, 1980, 1523, 1980)])
def test_clocks_that_do_not_differ_or_are_all_that_is_wrong_take_nothing_off(tmp_path, mhz):
    """Kernels are 1.3 times shorter at 1.3 times the clock: mending the clock gives all of it."""
    late = of_run(tmp_path / "out", *mhz, **powers(0, 1, 2, 3)).straggler
    assert late is not None and late.work == "slower_kernels"
    assert late.gains_ms_per_step == late.costs_ms_per_step
    assert "expect to gain" not in " ".join(late.evidence)


def test_costs_in_turns_are_more_than_is_to_be_gained_at_the_power_limit(tmp_path):
    fleet = Fleet(ranks=4, steps=12, buckets=2, jitter_us=2000)
    report = of_run(tmp_path / "out", 1700, 1700, 1700, 1700, fleet=fleet, **powers(0, 1, 2, 3))
    assert report.verdict == "jitter"
    assert report.evidence[-1].startswith("All GPUs are at their power limits, so expect to gain")


def test_the_clock_of_a_run_is_that_of_its_median_row(tmp_path):
    """Rows of the run's start and of its captures have other clocks."""
    rows = [row | {"gpu/sm_clock_mhz": 1550.0} for row in rows_of_start(20.0)]
    with_rows(tmp_path / "out", rows[0] | {"gpu/sm_clock_mhz": 1980.0}, *rows[1:])
    clock = run_clocks(tmp_path / "out").of_rank(0)
    assert clock is not None and clock.sm_mhz == 1550.0


def test_more_kernels_have_no_clock_to_blame(tmp_path):
    fleet = Fleet(ranks=4, steps=4, fault=Fault("more_kernels", ranks=(2,)))
    report = of_run(tmp_path / "out", 1980, 1980, 1500, 1980, fleet=fleet)
    assert report.straggler is not None and "clock" not in " ".join(report.straggler.evidence)
