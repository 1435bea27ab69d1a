"""The tables of a report: which columns, which rows. Called by profiling.report.capture.document.

A kernel stands as its label, with its whole name and the places of its sources behind it.
"""

from dataclasses import replace

from profiling.analysis.report import Report
from profiling.report.capture.kernel_sources import Links
from profiling.report.document import Cell, Column, Row, Table
from profiling.report.kernel_label import kernel_label

DURATIONS = [
    Column("total", "total_ns", "ns", True),
    Column("average", "avg_ns", "ns", True),
    Column("median", "med_ns", "ns"),
    Column("min", "min_ns", "ns"),
    Column("max", "max_ns", "ns"),
    Column("std dev", "stddev_ns", "ns"),
]
COUNT = Column("count", "count", "number", True)
GAPS_SHOWN = 5  # in a terminal


def phases(report: Report) -> Table:
    steps = report.window.steps
    rows: list[Row] = [
        {
            "name": Cell(entry.name, indent=entry.depth),
            "calls": entry.count / steps,
            "host_ms": entry.host_ms / steps,
            "gpu_ms": None if entry.gpu_ms is None else entry.gpu_ms / steps,
            "kernels": None if entry.kernels is None else entry.kernels / steps,
        }
        for entry in report.ranges
    ]
    columns = [
        Column("phase", "name", "text", True),
        Column("calls", "calls", "number"),
        Column("host ms", "host_ms", "ms", True),
        Column("GPU ms", "gpu_ms", "ms", True),
        Column("kernels", "kernels", "number", True),
    ]
    note = "A step. Host: how long the range was open. GPU: the kernels that it launched."
    return Table("phases", "Phases", note, columns, rows, limit=20)


def families(report: Report) -> Table:
    columns = [
        Column("family", "family", "text", True),
        COUNT,
        Column("total", "total_ns", "ns", True),
        Column("share", "percent", "percent", True),
    ]
    rows = [vars(entry) for entry in report.families]
    return Table("families", "Kernel families", "Sums over the whole capture.", columns, rows)


def kernels(report: Report, sources: Links) -> Table:
    rows = [
        vars(entry)
        | {"name": Cell(kernel_label(entry.name), entry.name, sources.get(entry.name, []))}
        for entry in report.kernels
    ]
    columns = [
        Column("kernel", "name", "code", True),
        Column("family", "family", "text", True),
        COUNT,
        *(replace(column, brief=column.key == "total_ns") for column in DURATIONS),
        Column("share", "percent", "percent", True),
    ]
    note = "Sums over the whole capture, to the nanosecond as nsys stats has them."
    if any(entry.name in sources for entry in report.kernels):
        note += " A kernel of torch.compile leads to its source in each graph that has it."
    return Table("kernels", "Kernels", note, columns, rows, folded=True)


def api(report: Report) -> Table:
    columns = [Column("call", "name", "code", True), COUNT, *DURATIONS]
    note = "On the host, over the whole capture. A long synchronisation is no finding by itself."
    rows = [vars(entry) for entry in report.api]
    return Table("api", "CUDA API calls", note, columns, rows, folded=True)


def memops(report: Report) -> Table:
    columns = [
        Column("operation", "operation", "code", True),
        COUNT,
        *DURATIONS,
        Column("bytes", "total_bytes", "bytes", True),
        Column("pageable", "pageable", "number", True),
    ]
    note = "Over the whole capture. Pageable: copies from or to memory that is not pinned."
    rows = [vars(entry) for entry in report.memops]
    return Table("memops", "Copies and memsets", note, columns, rows, folded=True)


def operators(report: Report) -> Table:
    columns = [
        Column("operator", "name", "code", True),
        COUNT,
        Column("total", "total_ns", "ns", True),
        Column("self", "self_ns", "ns", True),
    ]
    note = "PyTorch's operators on the host, over the window."
    rows = None if report.operators is None else [vars(entry) for entry in report.operators]
    return Table("operators", "Operators", note, columns, rows, folded=True)


def counters(report: Report) -> Table:
    columns = [
        Column("metric", "name", "text", True),
        Column("while busy", "mean_busy", "number", True),
        Column("whole window", "mean_window", "number", True),
    ]
    note = "Means of the hardware counters; those that stayed at zero come last."
    rows = None
    if report.gpu_metrics is not None:
        zero_last = sorted(report.gpu_metrics, key=lambda counter: not counter.mean_window)
        rows = [vars(entry) for entry in zero_last]
    return Table("metrics", "GPU metrics", note, columns, rows, folded=True)


def gaps(report: Report) -> Table:
    def operation(name: str | None) -> Cell | None:
        return None if name is None else Cell(kernel_label(name), name)

    rows = None
    if report.idle is not None:
        rows = [
            vars(gap) | {"before": operation(gap.before), "after": operation(gap.after)}
            for gap in report.idle.gaps
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
    return Table("gaps", "Idle gaps", note, columns, rows, most=GAPS_SHOWN, limit=10, folded=True)


def roofline(report: Report) -> Table:
    rows = None
    if report.roofline is not None:
        rows = [vars(entry) | {"gflop": entry.flops / 1e9} for entry in report.roofline.families]
    columns = [
        Column("family", "family", "text", True),
        Column("ms", "ms", "ms", True),
        Column("GFLOP", "gflop", "number"),
        Column("bytes", "bytes", "bytes"),
        Column("TFLOP/s", "tflops", "number", True),
        Column("GB/s", "gbps", "number", True),
        Column("FLOP/byte", "flops_per_byte", "number"),
        Column("roof", "bound", "text", True),
        Column("of roof", "percent_of_bound", "percent", True),
    ]
    note = "A step: the arithmetic and bytes of this model's shapes, over the time of each family."
    return Table("roofline", "Roofline", note, columns, rows, limit=20, folded=True)
