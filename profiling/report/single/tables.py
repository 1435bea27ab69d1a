"""The tables of a report: their columns and rows. Called by profiling.report.single.document.

A kernel's cell shows its label, with the whole name and the places of its sources behind it.
"""

from dataclasses import dataclass, replace
from urllib.parse import urlencode

from profiling.analysis.gpu_time.step_events import StepEvents
from profiling.analysis.records import Gap, Report
from profiling.analysis.sum_records import FamilySum, KernelSum
from profiling.report.document import Cell, Column, Table, row_ids
from profiling.report.kernel_label import kernel_cell
from profiling.report.single.kernel_sources import Links
from profiling.shared.causes import part_named
from profiling.shared.units import milliseconds

DURATIONS = [
    Column("total", "total_ns", "ns", True),
    Column("average", "avg_ns", "ns", True),
    Column("median", "med_ns", "ns"),
    Column("min", "min_ns", "ns"),
    Column("max", "max_ns", "ns"),
    Column("std dev", "stddev_ns", "ns"),
]
COUNT = Column("count", "count", "number", True)
SHARE = Column("share", "percent", "percent", True)
CALLS = [Column("call", "name", "code", True), COUNT, *DURATIONS, SHARE]
GAPS_SHOWN, SHAPES_SHOWN = 5, 5  # rows in a terminal
WORTH_TELLING = 0.01  # share of the mean step


@dataclass(frozen=True)
class PhaseRow:
    """A phase, or a range inside one, with its figures for one step."""

    name: Cell
    calls: float
    host_ms: float
    gpu_ms: float | None
    kernels: float | None


def phases(report: Report) -> Table:
    steps = report.window.steps
    rows = [
        PhaseRow(
            Cell(entry.name, indent=entry.depth),
            entry.count / steps,
            entry.host_ms / steps,
            None if entry.gpu_ms is None else entry.gpu_ms / steps,
            None if entry.kernels is None else entry.kernels / steps,
        )
        for entry in report.ranges
    ]
    columns = [
        Column("phase", "name", "text", True),
        Column("calls", "calls", "number"),
        Column("host ms", "host_ms", "ms", True),
    ]
    note = "Per step: how long the range was open."
    if not report.on_cpu:
        columns += [
            Column("GPU ms", "gpu_ms", "ms", True),
            Column("kernels", "kernels", "number", True),
        ]
        note = "Per step. Host: how long the range was open. GPU: the kernels that it launched."
    return Table("phases", "Phases", note, columns, rows, limit=20, ids=row_ids("range", rows))


def ranges(report: Report) -> Table:
    columns = [
        Column("range", lambda row: Cell(row.name, indent=row.depth), "text", True),
        COUNT,
        Column("total ms", "host_ms", "ms", True),
        Column("median ms", "median_ms", "ms", True),
        Column("min ms", "min_ms", "ms", True),
        Column("max ms", "max_ms", "ms", True),
        Column("std dev ms", "stddev_ms", "ms", True),
    ]
    note = "On the host, over the window: sums by name, and single ranges."
    rows = report.ranges
    return Table("ranges", "Single ranges", note, columns, rows, folded=True)


def columns_per_step(report: Report) -> list[Column]:
    """Columns of count and total for one step, from rows of sums over the whole capture."""
    steps = report.window.steps
    return [
        Column("count per step", lambda row: row.count / steps, "number"),
        Column("total per step", lambda row: row.total_ns / steps, "ns"),
    ]


def families(report: Report) -> Table:
    def cell(row: FamilySum) -> Cell:
        chosen = urlencode({"kernels.filter": f"family:{row.family}"})
        return Cell(row.family, links=[("its kernels", f"#kernels&{chosen}")])

    columns = [
        Column("family", cell, "text", True),
        COUNT,
        Column("total", "total_ns", "ns", True),
        *columns_per_step(report),
        SHARE,
    ]
    note = "Sums over the whole capture."
    rows = report.families
    ids = row_ids("family", rows)
    return Table("families", "Kernel families", note, columns, rows, ids=ids)


def kernels(report: Report, sources: Links) -> Table:
    def cell(kernel: KernelSum) -> Cell:
        return kernel_cell(kernel.name, sources.get(kernel.name, []))

    columns = [
        Column("kernel", cell, "code", True),
        Column("family", "family", "text", True),
        COUNT,
        *columns_per_step(report),
        *(replace(column, brief=column.heading == "total") for column in DURATIONS),
        SHARE,
    ]
    note = "Sums over the whole capture, equal to the nanosecond to those of nsys stats."
    if any(entry.name in sources for entry in report.kernels):
        note += " A kernel of torch.compile links to its source in each graph that contains it."
    rows = report.kernels
    ids = row_ids("kernel", rows)
    return Table("kernels", "Kernels", note, columns, rows, folded=True, ids=ids)


def launches(report: Report) -> Table:
    columns = [
        Column("kernel", lambda row: kernel_cell(row.name), "code", True),
        replace(COUNT, brief=False),
        Column("total", "total_ns", "ns", True),
        Column("blocks", "blocks", "number", True),
        Column("threads", "threads", "number", True),
        Column("registers", "registers", "number", True),
        Column("shared memory", "shared_bytes", "bytes"),
        Column("occupancy", "occupancy_percent", "percent", True),
        Column("limited by", "limited_by", "text", True),
    ]
    note = (
        "Over the whole capture, on this GPU: blocks per grid, threads per block, registers per "
        "thread, shared memory per block. Occupancy: the share of an SM's warps that these leave "
        "room for; a grid with few blocks does not reach it."
    )
    rows, title = report.launches, "Launch geometry"
    ids = row_ids("launch", rows)
    return Table("launches", title, note, columns, rows, folded=True, ids=ids)


def api(report: Report) -> Table:
    note = "On the host, over the whole capture. A long synchronization is not a problem by itself."
    rows = report.api
    ids = row_ids("api", rows)
    return Table("api", "CUDA API calls", note, CALLS, rows, folded=True, ids=ids)


def os_calls(report: Report) -> Table:
    note = (
        "Calls of system libraries on all threads, over the whole capture: waits, files, "
        "threads. Idle threads wait here, which is not a problem."
    )
    rows, title = report.os_calls, "OS runtime calls"
    ids = row_ids("os_call", rows)
    return Table("os_calls", title, note, CALLS, rows, folded=True, ids=ids)


def overlap(report: Report) -> Table:
    step_ms = report.window.step_ms.mean
    columns = [
        Column("what", "kind", "text", True),
        Column("ms", "ms", "ms", True),
        Column("hidden ms", "hidden_ms", "ms", True),
        Column("hidden", "hidden_percent", "percent", True),
        Column("exposed ms", "exposed_ms", "ms", True),
        Column("exposed", lambda row: 100 - row.hidden_percent, "percent", True),
        Column("exposed, share of the step", lambda row: 100 * row.exposed_ms / step_ms, "percent"),
    ]
    note = (
        "Per step. Communication is hidden while kernels compute; copies and memsets are hidden "
        "while any kernel runs. The rest is exposed."
    )
    rows = report.overlap or []
    slowed_ms = max((row.slowed_ms or 0.0 for row in rows), default=0.0)
    if slowed_ms > WORTH_TELLING * step_ms:
        note += (
            f" Hidden communication makes concurrent kernels {milliseconds(slowed_ms)} ms per "
            "step longer, even while it waits for other ranks, because its kernels occupy "
            "multiprocessors."
        )
    return Table("overlap", "Overlap", note, columns, rows, ids=row_ids("overlap", rows))


def copies(report: Report) -> Table:
    columns = [
        Column("direction", "direction", "text", True),
        Column("memory", "memory", "text", True),
        COUNT,
        Column("bytes", "bytes", "bytes", True),
        Column("ms", "ms", "ms", True),
        Column("exposed ms", "exposed_ms", "ms", True),
        Column("GB/s", "gb_per_s", "number", True),
        Column("share of the link", "link_percent", "percent", True),
    ]
    note = (
        "Copies within the steps; ms and exposed ms are per step. Memory: on the host. The link: "
        "its peak in each direction between host and GPU. Small copies are slow on any link "
        "because of their start-up time."
    )
    rows, title = report.copies, "Bandwidth of copies"
    return Table("copies", title, note, columns, rows, ids=row_ids("copy", rows))


def memops(report: Report) -> Table:
    columns = [
        Column("operation", "operation", "code", True),
        COUNT,
        *DURATIONS,
        Column("bytes", "total_bytes", "bytes", True),
        Column("average size", "avg_bytes", "bytes"),
        Column("median size", "med_bytes", "bytes"),
        Column("min size", "min_bytes", "bytes"),
        Column("max size", "max_bytes", "bytes"),
        Column("pageable", "pageable", "number", True),
    ]
    note = "Over the whole capture. Pageable: copies from or to memory that is not pinned."
    rows = report.memops
    ids = row_ids("memop", rows)
    return Table("memops", "Copies and memsets", note, columns, rows, folded=True, ids=ids)


def operators(report: Report) -> Table:
    columns = [
        Column("operator", "name", "code", True),
        COUNT,
        Column("total", "total_ns", "ns", True),
        Column("self", "self_ns", "ns", True),
    ]
    note = "PyTorch's operators on the host, over the window."
    rows = report.operators
    ids = row_ids("operator", rows)
    return Table("operators", "Operators", note, columns, rows, folded=True, ids=ids)


def operator_work(report: Report) -> Table:
    columns = [
        Column("operator", lambda row: row.name.removeprefix("aten::"), "code", True),
        Column("shapes", lambda row: shapes_text(row.shapes), "code", True),
        Column("elements", "dtype", "text"),
        Column("calls", "count", "number"),
        Column("GPU time", "gpu_ns", "ns", True),
        Column("GFLOP", lambda row: row.flops / 1e9, "number"),
        Column("bytes", "bytes", "bytes"),
        Column("TFLOP/s", "tflops", "number", True),
        Column("GB/s", "gbps", "number", True),
        Column("FLOP/byte", "flops_per_byte", "number"),
        Column("roof", "bound", "text"),
        Column("of roof", "percent_of_bound", "percent", True),
    ]
    note = (
        "Over the window: the arithmetic and bytes of a call, computed from its shapes, divided "
        "by the time of all that it launched. Above 100 %: bytes came from the cache."
    )
    rows, title = report.operator_work, "Operators by shape"
    ids, most = row_ids("operator_work", rows), SHAPES_SHOWN
    return Table("operator_work", title, note, columns, rows, most=most, folded=True, ids=ids)


def shapes_text(shapes: list[list[int]]) -> str:
    """The shapes of a call's tensors, as in '8x64 · 64x32' or '3 of 4x12x197x64'."""
    texts = ["x".join(map(str, shape)) for shape in shapes]
    alike = len(texts) > 2 and len(set(texts)) == 1
    return f"{len(texts)} of {texts[0]}" if alike else " · ".join(texts)


def counters(report: Report) -> Table:
    columns = [
        Column("metric", "name", "text", True),
        Column("while busy", "mean_busy", "number", True),
        Column("whole window", "mean_window", "number", True),
    ]
    note = "Means of the hardware counters. Counters that stayed at zero come last."
    found = report.gpu_metrics or []
    order = sorted(range(len(found)), key=lambda number: not found[number].mean_window)
    rows, ids = [found[number] for number in order], [f"counter/{number}" for number in order]
    return Table("metrics", "GPU metrics", note, columns, rows, folded=True, ids=ids)


def gaps(report: Report, events: StepEvents | None = None) -> Table:
    """The longest idle gaps. With the `events` of a timeline each links to its place in it."""
    first = report.window.first_iteration or 0

    def after(gap: Gap) -> Cell:
        links = [("in the timeline", place_of(gap))] if events and events.shown[gap.step] else []
        return kernel_cell(gap.after, links) if gap.after else Cell(None, links=links)

    columns = [
        Column("ms", "ms", "ms", True),
        Column("cause", lambda gap: part_named(gap.cause).title, "text", True),
        Column("phase", "phase", "text", True),
        Column("step", lambda gap: first + gap.step, "number", True),
        Column("at ms", "start_ms", "ms"),
        Column("before", lambda gap: gap.before and kernel_cell(gap.before), "code"),
        Column("after", after, "code", True),
    ]
    note = (
        "The longest times in which nothing ran on the GPU. At: time since the start of the window."
    )
    rows = report.idle.gaps if report.idle else None
    ids, most = row_ids("gap", rows), GAPS_SHOWN
    return Table(
        "gaps", "Idle gaps", note, columns, rows, most=most, limit=10, folded=True, ids=ids
    )


def place_of(gap: Gap) -> str:
    """Address of the gap in the page's timeline: first and last ms, since the window began."""
    return f"#t={gap.start_ms - gap.ms:.6f},{gap.start_ms + 2 * gap.ms:.6f}"


def roofline(report: Report) -> Table:
    columns = [
        Column("family", "family", "text", True),
        Column("ms", "ms", "ms", True),
        Column("GFLOP", lambda row: row.flops / 1e9, "number"),
        Column("bytes", "bytes", "bytes"),
        Column("TFLOP/s", "tflops", "number", True),
        Column("GB/s", "gbps", "number", True),
        Column("FLOP/byte", "flops_per_byte", "number"),
        Column("roof", "bound", "text", True),
        Column("of roof", "percent_of_bound", "percent", True),
    ]
    note = (
        "Per step: the arithmetic and bytes computed from the model's shapes, divided by the time "
        "of each family."
    )
    rows = report.roofline.families if report.roofline else None
    ids = row_ids("roofline", rows)
    return Table("roofline", "Roofline", note, columns, rows, limit=20, folded=True, ids=ids)
