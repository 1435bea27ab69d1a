"""The tables of a comparison and of an experiment. Called by profiling.report.comparison.document.

Their rows are records of profiling.analysis.difference.
"""

from cli.keys import spell
from profiling.analysis.difference.records import Comparison, Experiment, KernelOnOneSide
from profiling.causes import PART, part_named
from profiling.report.document import Cell, Column, Row, Table
from profiling.report.kernel_label import kernel_label
from profiling.units import number

BESIDE_THE_GPU = {
    "host_other": "host: between the phases",
    "capture_overhead": "what capturing added (taken off)",
    "unexplained": "not explained by the capture",
}
SHOWN_KERNELS = 200
MOST_ROWS = 12  # in a terminal


def of_comparison(comparison: Comparison) -> list[Table]:
    """Those that have rows."""
    makers = (buckets, families, phases, changed, removed, added, config)
    return [table for make in makers if (table := make(comparison)).rows]


def outcome(verdict: str, equal_within_percent: float | None) -> str:
    """The answer in a word or two."""
    if verdict == "equal":
        return f"equal within {equal_within_percent:g} %"
    return verdict.replace("_", " ")


def side_by_side(comparison: Comparison) -> list[Column]:
    return [
        Column(comparison.baseline.name, "baseline_ms", "ms", True),
        Column(comparison.candidate.name, "candidate_ms", "ms", True),
        Column("change", "delta_ms", "ms", True),
    ]


def bucket_label(bucket: str) -> str:
    kind, _, name = bucket.partition("_")
    if kind == "idle" and name:
        return part_named(name).bucket
    if bucket in PART:
        return PART[bucket].bucket
    return BESIDE_THE_GPU.get(bucket, bucket.replace("host_", "host: ", 1))


def buckets(comparison: Comparison) -> Table:
    rows: list[Row] = []
    if found := comparison.buckets:
        rows = [vars(row) | {"bucket": bucket_label(row.bucket)} for row in found]
        rows.append(
            {
                "bucket": "mean step",
                "baseline_ms": sum(row.baseline_ms for row in found),
                "candidate_ms": sum(row.candidate_ms for row in found),
                "delta_ms": sum(row.delta_ms for row in found),
            }
        )
    columns = [Column("part of the step", "bucket", "text", True), *side_by_side(comparison)]
    note = "ms a step; the parts exclude each other and add up to the mean step."
    return Table("buckets", "Parts of the step", note, columns, rows, most=len(rows))


def families(comparison: Comparison) -> Table:
    columns = [Column("family", "family", "text", True), *side_by_side(comparison)]
    note = "ms of kernels a step, matched by what they compute, not by name."
    rows = [vars(row) for row in comparison.families or []]
    return Table("families", "Kernel families", note, columns, rows, most=MOST_ROWS)


def phases(comparison: Comparison) -> Table:
    names = comparison.baseline.name, comparison.candidate.name
    columns = [
        Column("phase", "name", "text", True),
        Column(f"GPU, {names[0]}", "baseline_gpu_ms", "ms", True),
        Column(f"GPU, {names[1]}", "candidate_gpu_ms", "ms", True),
        Column("change", "delta_gpu_ms", "ms", True),
        Column(f"host, {names[0]}", "baseline_host_ms", "ms"),
        Column(f"host, {names[1]}", "candidate_host_ms", "ms"),
        Column("change", "delta_host_ms", "ms"),
    ]
    note = "ms a step. GPU: the kernels that the phase launched. Host: how long it was open."
    rows = [vars(row) for row in comparison.ranges or []]
    return Table("phases", "Phases", note, columns, rows, most=MOST_ROWS)


def changed(comparison: Comparison) -> Table:
    """A row: how often it ran and how long, on both sides."""
    rows: list[Row] = [
        vars(row)
        | {
            "name": Cell(kernel_label(row.name), row.name),
            "count": both_counts(row.baseline_count, row.candidate_count),
        }
        for row in comparison.kernels.changed[:SHOWN_KERNELS]
    ]
    columns = [
        Column("kernel", "name", "code", True),
        Column("baseline", "baseline_ms", "ms", True),
        Column("candidate", "candidate_ms", "ms", True),
        Column("change", "delta_ms", "ms", True),
        Column("%", "percent", "percent", True),
        Column("launches", "count", "text", True),
        Column("family", "family", "text"),
    ]
    note = (
        "ms and launches of a step, the largest change first; Triton's kernels are matched without "
        "their number."
    )
    return Table("changed", "Kernels that changed", note, columns, rows, most=MOST_ROWS)


def both_counts(baseline: float, candidate: float) -> str:
    counts = number(baseline), number(candidate)
    return " -> ".join(dict.fromkeys(counts))


def removed(comparison: Comparison) -> Table:
    title = f"Kernels only in {comparison.baseline.name}"
    return kernels("removed", title, comparison.kernels.removed)


def added(comparison: Comparison) -> Table:
    title = f"Kernels only in {comparison.candidate.name}"
    return kernels("added", title, comparison.kernels.added)


def kernels(name: str, title: str, found: list[KernelOnOneSide]) -> Table:
    rows = [
        vars(kernel) | {"name": Cell(kernel_label(kernel.name), kernel.name)}
        for kernel in found[:SHOWN_KERNELS]
    ]
    columns = [
        Column("kernel", "name", "code", True),
        Column("family", "family", "text", True),
        Column("a step", "count", "number", True),
        Column("ms a step", "ms", "ms", True),
    ]
    return Table(name, title, "Launches and time of a step.", columns, rows, most=MOST_ROWS)


def config(comparison: Comparison) -> Table:
    rows: list[Row] = [
        {"key": key, "baseline": spell(pair.baseline), "candidate": spell(pair.candidate)}
        for key, pair in (comparison.differences or {}).items()
    ]
    columns = [
        Column("key", "key", "code", True),
        Column("baseline", "baseline", "text", True),
        Column("candidate", "candidate", "text", True),
    ]
    note = "All keys that differ but names and folders."
    return Table("config", "Configuration", note, columns, rows, most=MOST_ROWS)


def of_experiment(experiment: Experiment) -> list[Table]:
    return [values(experiment), ratios(experiment)]


def values(experiment: Experiment) -> Table:
    assert experiment.result is not None
    rows: list[Row] = [
        {
            "label": row.label,
            "processes": len(row.processes),
            "median": f"{row.median:,.{3 if row.median < 1000 else 0}f}",
            "spread": 100 * row.spread / row.median,
            "within": row.spread_within_percent,
        }
        for row in experiment.result.values
    ]
    columns = [
        Column(experiment.factor.key, "label", "code", True),
        Column("processes", "processes", "number", True),
        Column(f"median, {experiment.result.unit}", "median", "text", True),
        Column("between processes", "spread", "percent", True),
        Column("within a process", "within", "percent", True),
    ]
    note = "Medians of the processes' median steps; spreads are interquartile ranges."
    return Table("values", "Step times", note, columns, rows)


def ratios(experiment: Experiment) -> Table:
    assert (result := experiment.result) is not None
    rows: list[Row] = [
        {
            "pair": f"{row.candidate} / {row.baseline}",
            "ratio": f"{row.ratio:.4f}",
            "interval": f"{row.ci95[0]:.4f} to {row.ci95[1]:.4f}",
            "noise": f"{row.noise_percent:.2f} %",
            "verdict": outcome(row.verdict, result.equal_within_percent),
        }
        for row in result.comparisons
    ]
    columns = [
        Column("pair", "pair", "code", True),
        Column("ratio", "ratio", "text", True),
        Column("95 % interval", "interval", "text", True),
        Column("A/A noise", "noise", "text", True),
        Column("verdict", "verdict", "text", True),
    ]
    note = (
        "The interval is over processes (Welch's t on logarithms). A/A noise: what two groups of "
        "equal processes differ by, from the repeats; a difference is an interval all beyond it."
    )
    return Table("ratios", "Against the first value", note, columns, rows)
