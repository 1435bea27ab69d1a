"""The tables of a comparison. Called by its console, Markdown and page, and those of `ab`."""

from typing import Any

from profiling.report import text
from profiling.report.kernel_label import kernel_label
from profiling.report.tables import Column, Row, Table
from profiling.report.wording import VERDICTS

BUCKETS = {
    "compute": "compute",
    "communication": "communication",
    "copy": "copies and memsets",
    "idle": "GPU idle",
    "idle_launch": "idle: launch-bound",
    "idle_synchronization": "idle: synchronisation",
    "idle_data": "idle: waiting for data",
    "idle_cpu": "idle: CPU, Python",
    "idle_queue": "idle: between queued kernels",
    "host_other": "host: between the phases",
    "capture_overhead": "what capturing added (taken off)",
    "unexplained": "not explained by the capture",
}
SHOWN_KERNELS = 200


def all_tables(comparison: dict[str, Any]) -> list[Table]:
    makers = (buckets, families, phases, removed, added, config)
    return [make(comparison) for make in makers]


def side_by_side(comparison: dict[str, Any]) -> list[Column]:
    return [
        Column(comparison["baseline"]["name"], "baseline_ms", "ms", True),
        Column(comparison["candidate"]["name"], "candidate_ms", "ms", True),
        Column("change", "delta_ms", "ms", True),
    ]


def bucket_label(bucket: str) -> str:
    return BUCKETS.get(bucket, bucket.replace("host_", "host: ", 1))


def buckets(comparison: dict[str, Any]) -> Table:
    rows: list[Row] | None = None
    if comparison["buckets"] is not None:
        rows = [row | {"bucket": bucket_label(row["bucket"])} for row in comparison["buckets"]]
        rows.append(
            {
                "bucket": "mean step",
                "baseline_ms": sum(row["baseline_ms"] for row in rows),
                "candidate_ms": sum(row["candidate_ms"] for row in rows),
                "delta_ms": sum(row["delta_ms"] for row in rows),
            }
        )
    columns = [Column("part of the step", "bucket", "text", True), *side_by_side(comparison)]
    note = "ms a step; the parts exclude each other and add up to the mean step."
    return Table("buckets", "Parts of the step", note, columns, rows)


def families(comparison: dict[str, Any]) -> Table:
    columns = [Column("family", "family", "text", True), *side_by_side(comparison)]
    note = "ms of kernels a step, matched by what they compute, not by name."
    return Table("families", "Kernel families", note, columns, comparison["families"])


def phases(comparison: dict[str, Any]) -> Table:
    names = comparison["baseline"]["name"], comparison["candidate"]["name"]
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
    return Table("phases", "Phases", note, columns, comparison["ranges"])


def removed(comparison: dict[str, Any]) -> Table:
    title = f"Kernels only in {comparison['baseline']['name']}"
    return kernels("removed", title, comparison["kernels"]["removed"])


def added(comparison: dict[str, Any]) -> Table:
    title = f"Kernels only in {comparison['candidate']['name']}"
    return kernels("added", title, comparison["kernels"]["added"])


def kernels(name: str, title: str, found: list[Row]) -> Table:
    rows = [
        row | {"name": kernel_label(row["name"]), "name_full": row["name"]}
        for row in found[:SHOWN_KERNELS]
    ]
    columns = [
        Column("kernel", "name", "code", True),
        Column("family", "family", "text", True),
        Column("a step", "count", "number", True),
        Column("ms a step", "ms", "ms", True),
    ]
    return Table(name, title, "Launches and time of a step.", columns, rows)


def config(comparison: dict[str, Any]) -> Table:
    differences = comparison["differences"]
    rows = differences and [
        {"key": key, "baseline": spell(pair["baseline"]), "candidate": spell(pair["candidate"])}
        for key, pair in differences.items()
    ]
    columns = [
        Column("key", "key", "code", True),
        Column("baseline", "baseline", "text", True),
        Column("candidate", "candidate", "text", True),
    ]
    note = "All keys that differ but names and folders."
    return Table("config", "Configuration", note, columns, rows)


def spell(value: Any) -> str:
    """As one types it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def facts(comparison: dict[str, Any]) -> list[tuple[str, str]]:
    """(what, figure) under the verdict."""
    step = comparison["step_ms"]
    unit = step.get("unit", "ms a step").removesuffix(" a step")
    rows = [
        (comparison[side]["name"], f"{text.milliseconds(step[side])} {unit}")
        for side in ("baseline", "candidate")
    ]
    interval = "none: too few steps"
    if step["ci95"]:
        interval = f"{step['ci95'][0]:.3f} to {step['ci95'][1]:.3f}"
    rows += [("ratio", f"{step['ratio']:.3f}"), ("95 % interval", interval)]
    if free := comparison["free_step_ms"]:
        times = [text.milliseconds(free[side]) for side in ("baseline", "candidate")]
        rows.append(("uncaptured steps", f"{' -> '.join(times)} ms ({free['ratio']:.3f})"))
    for what, key in (("attention kernels", "attention_backend"), ("bound by", "bottleneck")):
        pair = [named(comparison[side][key]) for side in ("baseline", "candidate")]
        if pair != [text.ABSENT] * 2:
            rows.append((what, pair[0] if pair[0] == pair[1] else " -> ".join(pair)))
    return rows


def named(value: str | None) -> str:
    """A bottleneck by its name, an attention kernel as it is."""
    return text.ABSENT if value is None else VERDICTS.get(value, (value,))[0]
