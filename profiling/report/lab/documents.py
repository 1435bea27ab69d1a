"""Documents of the measurements of `device`, `square` and `kernels`. Called by these verbs."""

from profiling.report.document import Block, Column, Document, Paragraph, Section, Table
from profiling.shared.measurements import (
    AttentionResults,
    DeviceResults,
    KernelResults,
    KernelTiming,
    SquareResults,
    Variant,
)
from profiling.shared.units import duration_ns, size_bytes


def device_document(results: DeviceResults) -> Document:
    rate, ridge = rates(results), ridges(results)
    sections = [
        Section(rate.name, rate.title, [rate]),
        Section(ridge.name, ridge.title, [ridge, Paragraph(empty_launch(results))]),
    ]
    return Document(results.device, [properties(results)], [], sections)


def properties(results: DeviceResults) -> str:
    clocks = [results.sm_clock_mhz, results.memory_clock_mhz]
    sm_clock, memory_clock = (clock and f"{clock} MHz" for clock in clocks)
    parts = {
        "compute capability": results.capability,
        "multiprocessors": results.multiprocessors,
        "L2 cache": results.l2_bytes and size_bytes(results.l2_bytes),
        "memory": results.memory_bytes and size_bytes(results.memory_bytes),
        "SM clock up to": sm_clock,
        "memory clock up to": memory_clock,
    }
    known = ", ".join(f"{name} {value}" for name, value in parts.items() if value)
    unknown = ", ".join(name for name, value in parts.items() if not value)
    return "; ".join(filter(None, [known, unknown and f"not known here: {unknown}"]))


def rates(results: DeviceResults) -> Table:
    columns = [
        Column("rate", "what", "text", True),
        Column("measured", "measured", "number", True),
        Column("±", "uncertainty_percent", "percent", True),
        Column("nominal", "nominal", "number", True),
        Column("unit", "unit", "text", True),
        Column("reached", "percent_of_nominal", "percent", True),
    ]
    rows = [results.bandwidth, *results.products.values()]
    note = (
        "Nominal: dense rate from the data sheet; – where it is not known. float32 is without TF32."
    )
    return Table("rates", "Rates", note, columns, rows)


def ridges(results: DeviceResults) -> Table:
    by_dtype = results.ridge_flops_per_byte
    columns = [
        Column("elements", str, "text", True),
        Column("measured", lambda dtype: by_dtype[dtype].measured, "number", True),
        Column("nominal", lambda dtype: by_dtype[dtype].nominal, "number", True),
    ]
    note = "FLOP per byte: a kernel with fewer is bound by memory, one with more by arithmetic."
    return Table("ridge", "Ridge of the roofline", note, columns, list(by_dtype))


def empty_launch(results: DeviceResults) -> str:
    if results.empty_launch_ms is None or results.empty_launch_host_ms is None:
        return "empty launch: does not exist on a CPU"
    return (
        f"empty launch: {duration_ns(results.empty_launch_ms * 1e6)} between two events, "
        f"{duration_ns(results.empty_launch_host_ms * 1e6)} of host time to queue it"
    )


def square_notes(results: SquareResults) -> list[Block]:
    """The lines that are known before anything is measured."""
    lines = [f"{results.device}, {results.dtype}, PyTorch {results.torch}"]
    if results.peak_gbps:
        lines.append(f"bandwidth from the data sheet {results.peak_gbps:,.0f} GB/s")
    lines.append(timing_note(results, ": a small matrix stays in the caches"))
    return [Paragraph(line, "note") for line in lines]


def timing_note(results: AttentionResults | SquareResults | KernelResults, on_a_cpu: str) -> str:
    if results.empty_launch_ms is None:
        return f"time by perf_counter, caches not flushed{on_a_cpu}"
    empty_us = results.empty_launch_ms * 1e3
    return f"empty launch {empty_us:.2f} µs; L2 cache flushed before each sample"


def square_table(mebibytes: int, variants: list[Variant]) -> Table:
    columns = [
        Column("way", "name", "text", True),
        Column("median", lambda row: row.median_ms and row.median_ms * 1e6, "ns", True),
        Column("GB/s", lambda row: getattr(row, "gbps", None), "number", True),  # timed ones'
        Column("of the copy", lambda row: getattr(row, "percent_of_copy", None), "percent", True),
        Column("result, against float64", lambda row: row.missing or row.result, "code", True),
    ]
    title, note = f"{mebibytes} MiB", "Each matrix is read once and written once."
    return Table("square", title, note, columns, variants, most=len(variants))


def kernels_document(results: KernelResults) -> Document:
    sizes = f"{results.tokens} tokens, {results.width} wide, vocabulary {results.vocabulary}"
    facts = [f"{sizes}, dropout {results.dropout:g}, {results.dtype}, PyTorch {results.torch}"]
    if results.peak_gbps:
        facts.append(f"bandwidth from the data sheet {results.peak_gbps:,.0f} GB/s")
    facts.append(timing_note(results, ""))
    operations = dict.fromkeys(row.operation for row in results.rows)
    tables = [
        kernels_table(name, [row for row in results.rows if row.operation == name])
        for name in operations
    ]
    sections = [Section(table.name, table.title, [table]) for table in tables]
    return Document(results.device, facts, [], sections)


def kernels_table(operation: str, rows: list[KernelTiming]) -> Table:
    columns = [
        Column("way", "way", "text", True),
        Column("direction", "direction", "text", True),
        Column("median", lambda row: row.median_ms and row.median_ms * 1e6, "ns", True),
        Column("GB/s", "gbps", "number", True),
        Column("error", error_or_reason, "code", True),
    ]
    note = (
        "GB/s: the bytes that must be read and written, each tensor once, per second. Error: "
        "against float64."
    )
    name = "".join(character for character in operation.lower() if character.isalnum())
    return Table(name, operation, note, columns, rows, most=len(rows))


def error_or_reason(row: KernelTiming) -> str | None:
    if row.relative_error is None:
        return row.missing
    return f"{row.relative_error:.1e}"
