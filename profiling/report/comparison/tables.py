"""The tables of a comparison and of an experiment. Called by profiling.report.comparison.document.

Their rows are records of profiling.analysis.difference.
"""

from dataclasses import dataclass

import msgspec

from cli.keys import spell
from profiling.analysis.difference.comparison_records import (
    BucketChange,
    Change,
    Comparison,
    ExperimentResult,
    KernelChange,
    KernelOnOneSide,
    LineChange,
)
from profiling.report.document import Column, Table, row_ids
from profiling.report.kernel_label import kernel_cell
from profiling.shared.causes import PART, part_named
from profiling.shared.units import number

BESIDE_THE_GPU = {
    "host_other": "host: between the phases",
    "capture_overhead": "added by capturing (subtracted)",
    "unexplained": "not explained by the capture",
}
SHOWN_KERNELS = 200
MOST_LINES = 3  # of a function, the longest first
MOST_ROWS = 12  # in a terminal


def comparison_tables(comparison: Comparison) -> list[Table]:
    baseline, candidate = comparison.baseline.name, comparison.candidate.name
    return [
        ranks(comparison),
        buckets(comparison),
        families(comparison),
        phases(comparison),
        changed_lines(comparison),
        changed_kernels(comparison),
        one_sided_kernels("removed", f"Kernels only in {baseline}", comparison.kernels.removed),
        one_sided_kernels("added", f"Kernels only in {candidate}", comparison.kernels.added),
        config(comparison),
    ]


def ranks(comparison: Comparison) -> Table:
    """Changes between the ranks; without rows where one process was captured."""
    changes = comparison.ranks
    rows = (
        []
        if isinstance(changes, msgspec.UnsetType)
        else [
            RankFigure("computing, mean", changes.compute_ms),
            RankFigure("computing, slowest", changes.slowest_compute_ms),
            RankFigure("exposed waits", changes.wait_ms),
            RankFigure("transfers", changes.transfer_ms),
            RankFigure("cost of late ranks", changes.late_ms),
        ]
    )
    columns = [
        Column("per step", "what", "text", True),
        Column(f"{comparison.baseline.name} ms", lambda row: row.change.baseline, "ms", True),
        Column(f"{comparison.candidate.name} ms", lambda row: row.change.candidate, "ms", True),
        Column("change ms", lambda row: row.change.delta_ms, "ms_change", True),
    ]
    note = (
        "For the mean rank and for the slowest. The other ranks wait for as long as the late ranks "
        "cost."
    )
    return Table("ranks", "Differences between the ranks", note, columns, rows)


@dataclass(frozen=True)
class RankFigure:
    what: str
    change: Change


def outcome(verdict: str, equal_within_percent: float | None) -> str:
    """The verdict in a word or two."""
    if verdict == "equal":
        return f"equal within {equal_within_percent:g} %"
    return verdict.replace("_", " ")


def side_by_side(comparison: Comparison) -> list[Column]:
    return [
        Column(comparison.baseline.name, "baseline_ms", "ms", True),
        Column(comparison.candidate.name, "candidate_ms", "ms", True),
        Column("change", "delta_ms", "ms_change", True),
    ]


def bucket_label(bucket: str) -> str:
    kind, _, name = bucket.partition("_")
    if kind == "idle" and name:
        return part_named(name).title
    if bucket in PART:
        return PART[bucket].title
    return BESIDE_THE_GPU.get(bucket, bucket.replace("host_", "host: ", 1))


def buckets(comparison: Comparison) -> Table:
    rows = list(comparison.buckets or [])
    ids = row_ids("bucket", rows)
    if rows:
        both_ms = sum(row.baseline_ms for row in rows), sum(row.candidate_ms for row in rows)
        rows.append(BucketChange("mean step", *both_ms, sum(row.delta_ms for row in rows)))
    label = Column("part of the step", lambda row: bucket_label(row.bucket), "text", True)
    columns = [label, *side_by_side(comparison)]
    note = "ms per step. The parts do not overlap and add up to the mean step."
    return Table("buckets", "Parts of the step", note, columns, rows, most=len(rows), ids=ids)


def families(comparison: Comparison) -> Table:
    columns = [Column("family", "family", "text", True), *side_by_side(comparison)]
    note = "ms of kernel time per step. Kernels are matched by what they compute, not by name."
    rows = comparison.families
    ids = row_ids("family", rows)
    return Table("families", "Kernel families", note, columns, rows, most=MOST_ROWS, ids=ids)


def phases(comparison: Comparison) -> Table:
    """Phases by GPU time where that was captured, and by host time.

    The host's columns are brief ones only where there are none of the GPU.
    """
    names = comparison.baseline.name, comparison.candidate.name
    rows = comparison.ranges or []
    known = [(row.baseline_gpu_ms, row.candidate_gpu_ms) != (None, None) for row in rows]
    gpu = any(known) or not rows
    columns = [Column("phase", "name", "text", True)]
    note = "ms per step: how long the phase was open on the host."
    if gpu:
        columns += [
            Column(f"GPU, {names[0]}", "baseline_gpu_ms", "ms", True),
            Column(f"GPU, {names[1]}", "candidate_gpu_ms", "ms", True),
            Column("change", "delta_gpu_ms", "ms_change", True),
        ]
        note = "ms per step. GPU: the kernels that the phase launched. Host: how long it was open."
    columns += [
        Column(f"host, {names[0]}", "baseline_host_ms", "ms", not gpu),
        Column(f"host, {names[1]}", "candidate_host_ms", "ms", not gpu),
        Column("change", "delta_host_ms", "ms_change", not gpu),
    ]
    ids = row_ids("range", rows)
    return Table("phases", "Phases", note, columns, rows, most=MOST_ROWS, ids=ids)


def changed_kernels(comparison: Comparison) -> Table:
    columns = [
        Column("kernel", lambda kernel: kernel_cell(kernel.name), "code", True),
        *side_by_side(comparison),
        Column("%", "percent", "percent_change", True),
        Column("launches", both_counts, "number", True),
        Column("family", "family", "text"),
    ]
    note = (
        "ms and launches per step, with the largest change first. Triton's kernels are matched "
        "without their number."
    )
    rows = comparison.kernels.changed[:SHOWN_KERNELS]
    ids = row_ids("kernel", rows)
    return Table("changed", "Kernels that changed", note, columns, rows, most=MOST_ROWS, ids=ids)


def changed_lines(comparison: Comparison) -> Table:
    """The functions of the program whose kernels changed; without rows where one is unknown."""

    def lines(row: LineChange) -> str:
        return lines_text(row.candidate_lines or row.baseline_lines)

    columns = [
        Column("function", "function", "code", True),
        Column("lines", lines, "text", True),
        *side_by_side(comparison),
    ]
    note = (
        "ms of kernels per step (on a CPU: of operators), by function of the program, because a "
        "change of a file moves its lines. The lines are those of the second side."
    )
    rows = [] if isinstance(comparison.lines, msgspec.UnsetType) else comparison.lines
    return Table("lines", "Lines that changed", note, columns, rows, most=MOST_ROWS)


def lines_text(places: list[str]) -> str:
    """The numbers of the first lines, which are of one file: 7, 9, 12 …"""
    numbers = [place.rpartition(":")[2] for place in places[:MOST_LINES]]
    return ", ".join(numbers) + " …" * (len(places) > MOST_LINES)


def both_counts(row: KernelChange) -> str:
    counts = number(row.baseline_count), number(row.candidate_count)
    return " -> ".join(dict.fromkeys(counts))


def one_sided_kernels(name: str, title: str, only: list[KernelOnOneSide]) -> Table:
    columns = [
        Column("kernel", lambda kernel: kernel_cell(kernel.name), "code", True),
        Column("family", "family", "text", True),
        Column("per step", "count", "number", True),
        Column("ms per step", "ms", "ms", True),
    ]
    note, rows = "Launches and time per step.", only[:SHOWN_KERNELS]
    return Table(name, title, note, columns, rows, most=MOST_ROWS, ids=row_ids(name, rows))


def config(comparison: Comparison) -> Table:
    differences = comparison.differences or {}
    names = comparison.baseline.name, comparison.candidate.name
    columns = [
        Column("key", str, "code", True),
        Column(names[0], lambda key: spell(differences[key].baseline), "text", True),
        Column(names[1], lambda key: spell(differences[key].candidate), "text", True),
    ]
    note = "All keys that differ, except names and folders."
    return Table("config", "Configuration", note, columns, list(differences), most=MOST_ROWS)


def values(key: str, result: ExperimentResult) -> Table:
    """Step times of each value of `key`, which the experiment varies."""
    columns = [
        Column(key, "label", "code", True),
        Column("processes", lambda row: len(row.processes), "number", True),
        Column(result.unit, "middle", "precise", True),
        Column("between", lambda row: 100 * row.spread / row.middle, "percent", True),
        Column("within", "spread_within_percent", "percent", True),
    ]
    note = (
        "Geometric means of the median steps of the processes. The ratios compare these means, "
        "in `bisect` pairs of neighbours in time. Between and within the processes: spreads, which "
        "are interquartile ranges."
    )
    return Table("values", "Step times", note, columns, result.values)


def ratios(result: ExperimentResult) -> Table:
    columns = [
        Column("pair", lambda row: f"{row.candidate} / {row.baseline}", "code", True),
        Column("ratio", "ratio", "precise", True),
        Column("95 % interval", lambda row: "{:.4f} to {:.4f}".format(*row.ci95), "number", True),
        Column("A/A noise", "noise_percent", "percent", True),
        Column(
            "verdict", lambda row: outcome(row.verdict, result.equal_within_percent), "text", True
        ),
    ]
    note = (
        "The interval is over processes (Welch's t on logarithms), in `bisect` over pairs of "
        "them (Student's t), or over the sittings of a baseline. A/A noise is how far two "
        "groups of the same program differ by chance, estimated from the repeats. It counts as a "
        "difference only if the whole interval lies outside it, in `bisect` if one of 99.8 % "
        "excludes 1."
    )
    return Table("ratios", "Against the first value", note, columns, result.comparisons)
