"""The tables of a report: which columns, which rows. Console, Markdown and page lay them out.

A row is a mapping; kernels' names come as a label, with the whole name under `name_full` and the
places of its sources under `name_links`.
"""

from dataclasses import dataclass, replace
from typing import Any

from profiling.report.capture.kernel_sources import Links
from profiling.report.kernel_label import kernel_label

Row = dict[str, Any]


@dataclass(frozen=True)
class Column:
    heading: str
    key: str
    kind: str  # text, code, or one of text.FORMATS
    brief: bool = False  # shown where room is short: in a terminal, in a pull request


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    note: str
    columns: list[Column]
    rows: list[Row] | None  # None: not captured


DURATIONS = [
    Column("total", "total_ns", "ns", True),
    Column("average", "avg_ns", "ns", True),
    Column("median", "med_ns", "ns"),
    Column("min", "min_ns", "ns"),
    Column("max", "max_ns", "ns"),
    Column("std dev", "stddev_ns", "ns"),
]
COUNT = Column("count", "count", "number", True)


def all_tables(report: dict[str, Any], sources: Links | None = None) -> list[Table]:
    """Those with rows of their own; phases, gaps and roofline stand beside their charts."""
    others = (api, memops, operators, metrics)
    return [kernels(report, sources), *(make(report) for make in others)]


def phases(report: dict[str, Any]) -> Table:
    steps = report["window"]["steps"]
    rows = [
        {
            "name": "\u2003" * entry["depth"] + entry["name"],
            "calls": entry["count"] / steps,
            "host_ms": entry["host_ms"] / steps,
            "gpu_ms": None if entry["gpu_ms"] is None else entry["gpu_ms"] / steps,
            "kernels": None if entry["kernels"] is None else entry["kernels"] / steps,
        }
        for entry in report["ranges"]
    ]
    columns = [
        Column("phase", "name", "text", True),
        Column("calls", "calls", "number"),
        Column("host ms", "host_ms", "ms", True),
        Column("GPU ms", "gpu_ms", "ms", True),
        Column("kernels", "kernels", "number", True),
    ]
    note = "A step. Host: how long the range was open. GPU: the kernels that it launched."
    return Table("phases", "Phases", note, columns, rows)


def families(report: dict[str, Any]) -> Table:
    columns = [
        Column("family", "family", "text", True),
        COUNT,
        Column("total", "total_ns", "ns", True),
        Column("share", "percent", "percent", True),
    ]
    note = "Sums over the whole capture."
    return Table("families", "Kernel families", note, columns, report["families"])


def kernels(report: dict[str, Any], sources: Links | None = None) -> Table:
    rows = [
        entry
        | {"name": kernel_label(entry["name"]), "name_full": entry["name"]}
        | {"name_links": (sources or {}).get(entry["name"], [])}
        for entry in report["kernels"]
    ]
    columns = [
        Column("kernel", "name", "code", True),
        Column("family", "family", "text", True),
        COUNT,
        *(replace(column, brief=column.key == "total_ns") for column in DURATIONS),
        Column("share", "percent", "percent", True),
    ]
    note = "Sums over the whole capture, to the nanosecond as nsys stats has them."
    if any(row["name_links"] for row in rows):
        note += " A kernel of torch.compile leads to its source in each graph that has it."
    return Table("kernels", "Kernels", note, columns, rows)


def api(report: dict[str, Any]) -> Table:
    columns = [Column("call", "name", "code", True), COUNT, *DURATIONS]
    note = "On the host, over the whole capture. A long synchronisation is no finding by itself."
    return Table("api", "CUDA API calls", note, columns, report["api"])


def memops(report: dict[str, Any]) -> Table:
    columns = [
        Column("operation", "operation", "code", True),
        COUNT,
        *DURATIONS,
        Column("bytes", "total_bytes", "bytes", True),
        Column("pageable", "pageable", "number", True),
    ]
    note = "Over the whole capture. Pageable: copies from or to memory that is not pinned."
    return Table("memops", "Copies and memsets", note, columns, report["memops"])


def operators(report: dict[str, Any]) -> Table:
    columns = [
        Column("operator", "name", "code", True),
        COUNT,
        Column("total", "total_ns", "ns", True),
        Column("self", "self_ns", "ns", True),
    ]
    note = "PyTorch's operators on the host, over the window."
    return Table("operators", "Operators", note, columns, report["operators"])


def metrics(report: dict[str, Any]) -> Table:
    columns = [
        Column("metric", "name", "text", True),
        Column("while busy", "mean_busy", "number", True),
        Column("whole window", "mean_window", "number", True),
    ]
    note = "Means of the hardware counters; those that stayed at zero come last."
    rows = report["gpu_metrics"]
    if rows is not None:
        rows = sorted(rows, key=lambda row: not row["mean_window"])
    return Table("metrics", "GPU metrics", note, columns, rows)


def gaps(report: dict[str, Any]) -> Table:
    idle = report["idle"]
    rows = None
    if idle is not None:
        rows = [
            gap
            | {f"{side}_full": gap[side] for side in ("before", "after")}
            | {side: gap[side] and kernel_label(gap[side]) for side in ("before", "after")}
            for gap in idle["gaps"]
        ]
    columns = [
        Column("ms", "ms", "ms", True),
        Column("cause", "cause", "text", True),
        Column("phase", "phase", "text", True),
        Column("step", "step", "number", True),
        Column("at ms", "start_ms", "ms"),
        Column("before", "before", "code"),
        Column("after", "after", "code", True),
    ]
    note = "The longest times in which nothing ran on the GPU."
    return Table("gaps", "Idle gaps", note, columns, rows)


def roofline(report: dict[str, Any]) -> Table:
    known = report["roofline"]
    rows = known and [
        entry | {"gflop": entry["flops"] / 1e9, "of_bound": entry["percent_of_bound"]}
        for entry in known["families"]
    ]
    columns = [
        Column("family", "family", "text", True),
        Column("ms", "ms", "ms", True),
        Column("GFLOP", "gflop", "number"),
        Column("bytes", "bytes", "bytes"),
        Column("TFLOP/s", "tflops", "number", True),
        Column("GB/s", "gbps", "number", True),
        Column("FLOP/byte", "flops_per_byte", "number"),
        Column("roof", "bound", "text", True),
        Column("of roof", "of_bound", "percent", True),
    ]
    note = "A step: the arithmetic and bytes of this model's shapes, over the time of each family."
    return Table("roofline", "Roofline", note, columns, rows)
