"""Make a side of a comparison from captures of several ranks, and compare their communication.

Called by the verb compare and by comparison.
"""

from statistics import fmean

from profiling.analysis.difference.compared import CapturedStep, Compared, Environment
from profiling.analysis.difference.comparison_records import Change, Pair, RanksChange
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.shared.causes import PART


def compared_ranks(report: RanksReport, name: str) -> Compared:
    """The side of the captures of several ranks.

    A step is as long as the ranks take on average, because they wait for one another.
    """
    step_ms = [fmean(row) for row in report.steps.step_ms]
    rows = report.ranks
    no_verdict = next((row.no_verdict for row in rows if row.no_verdict), None)
    parts = {
        f"idle_{part}" if PART[part].cause else part: fmean(r.parts_ms.get(part, 0.0) for r in rows)
        for part in dict.fromkeys(part for row in rows for part in row.parts_ms)
    }
    return Compared(
        file=name,
        kind=rows[0].kind,
        device=rows[0].gpu,
        step_name=report.steps.name,
        step_ms=step_ms,
        mean_ms=fmean(step_ms),
        free_step_ms=None,
        free_laps_ms=[],
        config=None,
        environment=Environment(),
        captured=CapturedStep(len(step_ms), gpu_parts={} if no_verdict else parts),
        notes=[
            finding.what
            for finding in report.findings
            if finding.level == "warning" or "no other rank" in finding.what
        ],
        ranks=report,
        no_verdict=no_verdict,
    )


def ranks_change(baseline: RanksReport, candidate: RanksReport) -> RanksChange:
    def change(one: float | None, other: float | None) -> Change:
        return Change(one, other, None if one is None or other is None else other - one)

    return RanksChange(
        compute_ms=change(
            *(fmean(row.compute_ms for row in report.ranks) for report in (baseline, candidate))
        ),
        slowest_compute_ms=change(
            *(max(row.compute_ms for row in report.ranks) for report in (baseline, candidate))
        ),
        wait_ms=change(waits_ms(baseline), waits_ms(candidate)),
        transfer_ms=change(transfers_ms(baseline), transfers_ms(candidate)),
        late_ms=change(late_ms(baseline), late_ms(candidate)),
        stragglers=Pair(straggler_evidence(baseline), straggler_evidence(candidate)),
    )


def known_mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def waits_ms(report: RanksReport) -> float | None:
    return known_mean([row.communication.exposed_wait_ms for row in report.ranks])


def transfers_ms(report: RanksReport) -> float | None:
    return known_mean([row.communication.transfer_ms for row in report.ranks])


def late_ms(report: RanksReport) -> float | None:
    if report.verdict == "unknown":
        return None
    return report.straggler.costs_ms_per_step if report.straggler else 0.0


def straggler_evidence(report: RanksReport) -> str | None:
    return report.straggler.evidence[0] if report.straggler else None


def rank_reasons(baseline: Compared, candidate: Compared) -> list[str]:
    """A line if the two sides have different numbers of ranks, which do not compare."""
    one, other = (len(side.ranks.ranks) if side.ranks else 1 for side in (baseline, candidate))
    return [f"ranks {one} against {other}"] if one != other else []
