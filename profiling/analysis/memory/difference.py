"""Compares the peaks of two memory snapshots, by kind and by line."""

from collections.abc import Iterable

from profiling.analysis.memory.memory_records import (
    Change,
    MemoryComparison,
    MemoryReport,
    Side,
    Verdict,
)
from profiling.analysis.memory.sentence import short
from profiling.shared.units import binary_bytes, change_binary, change_percent

WHOLE_STEP = {"forward", "backward"}  # phases in which a step of training has its peak


def compare_memory(
    baseline: MemoryReport, candidate: MemoryReport, equal_within_percent: float
) -> MemoryComparison:
    """The difference of two reports, of their peaks or of where memory ran out."""
    sides = side(baseline), side(candidate)
    verdict, why = verdict_of(baseline, candidate, equal_within_percent)
    kinds = changes(
        [(row.kind, row.bytes) for row in baseline.kinds],
        [(row.kind, row.bytes) for row in candidate.kinds],
    )
    lines = changes(
        [(short(row.place), row.bytes) for row in baseline.lines],
        [(short(row.place), row.bytes) for row in candidate.lines],
    )
    known = baseline.peak and candidate.peak and baseline.at.allocated_bytes
    ratio = candidate.at.allocated_bytes / baseline.at.allocated_bytes if known else None
    words = sentence(verdict, why, baseline, candidate, kinds, lines)
    return MemoryComparison(verdict, words, why, ratio, equal_within_percent, *sides, kinds, lines)


def side(report: MemoryReport) -> Side:
    peak = report.peak.allocated_bytes if report.peak else None
    reserved, sure = report.at.reserved_bytes, has_peak(report)
    return Side(report.file, report.device, report.answer, peak, reserved, sure, report.sentence)


def has_peak(report: MemoryReport) -> bool:
    """Whether the history has the peak: all of the program, or all of a step."""
    if report.peak is None or report.answer == "out_of_memory":
        return False
    return report.reaches_back or {row.phase for row in report.phases} >= WHOLE_STEP


def verdict_of(
    baseline: MemoryReport, candidate: MemoryReport, equal_within_percent: float
) -> tuple[Verdict, str | None]:
    """(the answer, why it cannot be told). A peak that is a lower bound may still decide it."""
    for name, report in (("the baseline", baseline), ("the candidate", candidate)):
        if report.peak is None:
            return "cannot_tell", f"{name} has no history"
    one, other = baseline.at.allocated_bytes, candidate.at.allocated_bytes
    change = 100 * (other - one) / max(one, 1)
    if change > equal_within_percent and has_peak(baseline):
        return "more", None
    if change < -equal_within_percent and has_peak(candidate):
        return "less", None
    for name, report in (("the baseline", baseline), ("the candidate", candidate)):
        if not has_peak(report):
            ended = "ran out of memory" if report.out_of_memory else "recorded no whole step"
            return "cannot_tell", f"{name} {ended}, so its peak is at least what was seen"
    return "equal", None


def changes(
    baseline: Iterable[tuple[str, int]], candidate: Iterable[tuple[str, int]]
) -> list[Change]:
    """A row for each name of either side, the largest difference first."""
    both: dict[str, list[int]] = {}
    for which, values in enumerate((baseline, candidate)):
        for name, held in values:
            both.setdefault(name, [0, 0])[which] += held
    rows = [Change(name, one, other, other - one) for name, (one, other) in both.items()]
    return sorted(rows, key=lambda row: (-abs(row.change_bytes), row.name))


def sentence(
    verdict: Verdict,
    why: str | None,
    baseline: MemoryReport,
    candidate: MemoryReport,
    kinds: list[Change],
    lines: list[Change],
) -> str:
    one, other = baseline.at.allocated_bytes, candidate.at.allocated_bytes
    pair = f"{binary_bytes(other)} against {binary_bytes(one)}"
    if verdict == "cannot_tell":
        return f"Cannot tell: {why}. Seen: {pair}"
    percent = change_percent(100 * (other - one) / max(one, 1))
    if verdict == "equal":
        return f"Equal peaks: {pair} ({percent})"
    sign = 1 if verdict == "more" else -1
    begin = f"{binary_bytes(abs(other - one))} {verdict} at the peak ({percent}): {pair}"
    parts = [row for row in kinds if row.change_bytes * sign > 0][:1]
    parts += [row for row in lines if row.change_bytes * sign > 0][:1]
    words = [f"{row.name} {change_binary(row.change_bytes)}" for row in parts]
    return f"{begin}; most of it {', '.join(words)}" if words else begin
