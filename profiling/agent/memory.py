"""Answers about memory snapshots: where the peak is, what lay there, what grows, what would fit."""

from profiling.agent.answer import Answer, Number, Row
from profiling.agent.rows import ids, numbered, tables
from profiling.analysis.memory.memory_records import MemoryComparison, MemoryReport
from profiling.report.memory.document import tips
from profiling.shared.units import counted
from profiling.timeline.memory_snapshot import RECORD

KIND = "kind bytes allocations percent"
LINE = "place.line place.function kind bytes allocations percent"
CAUSES = {  # tables that explain an answer, with the fields that are shown
    "leak": "place.line place.function kind bytes_per_step steps bytes_at_end",
    "free": "blocks bytes kind place.line place.function",
    "pinned": "place.line place.function bytes inactive_bytes segments",
}
NO_TIMES = (
    "a memory snapshot has no times of kernels or of the host; capture with profile=nsys or "
    "profile=torch"
)


def verdict(report: MemoryReport, key: str) -> Answer:
    """Answer with the peak, its reason, and what would lower it."""
    known = tables(report)
    rows = [
        row
        for kind, fields in CAUSES.items()
        for row in numbered(key, kind, known.get(kind, []), fields)
    ]
    return Answer(
        f"{report.sentence}.",
        sizes(report),
        rows=rows,
        advice=tips(report),
        cannot_tell=unknown(report),
        evidence=ids(key, known),
    )


def section(report: MemoryReport, key: str, name: str) -> Answer:
    """Answer with the part of that name: memory, step or health; a snapshot has no other."""
    match name:
        case "memory":
            return memory(report, key)
        case "step":
            return steps(report, key)
        case "health":
            said = f"{counted(len(report.notes), 'note')} about the snapshot."
            return Answer(said, because=report.notes, cannot_tell=unknown(report))
    return Answer("That part is of a capture of times.", cannot_tell=[f"{name}: {NO_TIMES}"])


def memory(report: MemoryReport, key: str) -> Answer:
    rows: list[Row] = [
        *numbered(key, "kind", report.kinds, KIND),
        *numbered(key, "line", report.lines, LINE),
    ]
    return Answer(
        f"{report.sentence}. Rows: by kind, which add up to what was allocated then, and by line.",
        sizes(report),
        rows=rows,
        cannot_tell=unknown(report),
        evidence=[f"{key}/block", f"{key}/phase", f"{key}/leak", f"{key}/pinned"],
    )


def steps(report: MemoryReport, key: str) -> Answer:
    """Answer with the memory of each step; its times are not in a snapshot."""
    if not report.steps:
        why = f"memory by step: no steps were recognised; {RECORD}"
        return Answer("No steps were recognised.", cannot_tell=[why, NO_TIMES])
    return Answer(
        f"Bytes in {counted(len(report.steps), 'step')}, {report.steps_from}.",
        rows=numbered(key, "step", report.steps, "step peak_bytes end_bytes"),
        cannot_tell=[f"how long a step takes: {NO_TIMES}"],
        evidence=[f"{key}/phase"],
    )


def compared(record: MemoryComparison, key: str) -> Answer:
    """Answer with the difference of two peaks, by kind and by line."""
    numbers = {
        "before": Number(record.baseline.peak_bytes, "bytes at the peak"),
        "after": Number(record.candidate.peak_bytes, "bytes at the peak"),
        "ratio": Number(record.ratio, "after / before"),
    }
    known = {name: number for name, number in numbers.items() if number.value is not None}
    rows = [*numbered(key, "kind", record.kinds), *numbered(key, "line", record.lines)]
    unknown = [] if record.why is None else [f"which peak is higher: {record.why}; {RECORD}"]
    evidence = ids(key, tables(record))
    return Answer(f"{record.sentence}.", known, rows=rows, cannot_tell=unknown, evidence=evidence)


def sizes(report: MemoryReport) -> dict[str, Number]:
    """Bytes at the moment that the tables are about."""
    at = report.at
    if report.out_of_memory:
        when = "bytes when memory ran out"
    else:
        when = "bytes at the peak" if report.peak else "bytes when the snapshot was written"
    numbers = {
        "peak" if report.peak and not report.out_of_memory else "allocated": Number(
            at.allocated_bytes, when
        ),
        "reserved": Number(at.reserved_bytes, when),
        "inactive": Number(at.inactive_bytes, f"{when}, reserved and not allocated"),
    }
    if failed := report.out_of_memory:
        numbers |= {"asked": Number(failed.asked_bytes, "bytes that were asked for")}
    return numbers


def unknown(report: MemoryReport) -> list[str]:
    """Questions that the snapshot leaves open, with what would tell."""
    if report.peak is None:
        return [f"the peak: no history was recorded; {RECORD}"]
    if report.out_of_memory:
        return ["how much more the program would take: it ended where memory ran out"]
    if not report.reaches_back:
        return [f"whether there was more before the history began; {RECORD} at the program's start"]
    return []
