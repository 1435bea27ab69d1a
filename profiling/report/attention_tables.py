"""The tables of the attention lab. Called by its verb, for the terminal, and by its page."""

from typing import Any

from rich.console import Console
from rich.text import Text

from profiling.report import text
from profiling.report.console import grid
from profiling.report.tables import Column, Row, Table

MOST_KERNELS = 6  # named in a cell


def all_tables(document: dict[str, Any]) -> list[Table]:
    return [results(document), refused(document), kernels(document)]


def print_attention(document: dict[str, Any], console: Console) -> None:
    console.print(Text(title(document), style="bold"))
    for line in notes(document):
        console.print(Text(line, style="dim"))
    for table in all_tables(document):
        if table.rows:
            console.print(grid(table, console.width, most=len(table.rows)))


def title(document: dict[str, Any]) -> str:
    return f"Attention on {document['device']}, {document['dtype']}, PyTorch {document['torch']}"


def notes(document: dict[str, Any]) -> list[str]:
    """How the figures came about."""
    shape = f"{document['heads']} heads of {document['head_dim']}, dropout {document['dropout']:g}"
    if document["tokens"]:
        shape += f"; batch = {document['tokens']:,} tokens / seq, at least 1"
    forward = "keeps what backward needs" if document["backward"] else "keeps nothing for backward"
    lines = [f"{shape}; forward {forward}"]
    if document["empty_launch_ms"] is not None:
        empty_us = document["empty_launch_ms"] * 1e3
        lines.append(f"empty launch {empty_us:.2f} µs; L2 cache flushed before each sample")
    else:
        lines.append(
            "time by perf_counter, caches as they were; peak memory is known on a GPU only"
        )
    if document["peak_tflops"]:
        lines.append(
            f"peaks by the data sheet: {document['peak_tflops']:g} TFLOP/s, "
            f"{document['peak_gbps']:,.0f} GB/s"
        )
    else:
        lines.append("no peaks are known of this device, so no shares of them")
    if document["dropout"]:
        lines.append("no error against float64: what dropout takes away is random")
    rows = measured(document)
    if loose := [row for row in rows if not (row["precise"] and row["stable"])]:
        lines.append(
            f"{len(loose)} of {len(rows)} medians did not settle within 1 % in their time: raise "
            "--max-s, or free the machine of other work"
        )
    return lines


def measured(document: dict[str, Any]) -> list[Row]:
    return [row for row in document["rows"] if row["status"] == "ok"]


def results(document: dict[str, Any]) -> Table:
    rows = [
        row
        | {
            "median_ns": row["median_ms"] * 1e6,
            "iqr_percent": 100
            * (row["quartiles_ms"][1] - row["quartiles_ms"][0])
            / row["median_ms"],
            "ci95_percent": 50 * (row["ci95_ms"][1] - row["ci95_ms"][0]) / row["median_ms"],
            "launch_ns": None if row["launch_ms"] is None else row["launch_ms"] * 1e6,
        }
        for row in measured(document)
    ]
    columns = [
        Column("backend", "backend", "text", True),
        Column("pass", "direction", "text", True),
        Column("seq", "seq", "number", True),
        Column("batch", "batch", "number"),
        Column("median", "median_ns", "ns", True),
        Column("IQR", "iqr_percent", "percent", True),
        Column("± 95 %", "ci95_percent", "percent", True),
        Column("samples", "samples", "number"),
        Column("launch", "launch_ns", "ns"),
        Column("TFLOP/s", "tflops", "number", True),
        Column("of peak", "percent_of_peak", "percent", True),
        Column("traffic", "bytes", "bytes"),
        Column("GB/s", "gbps", "number", True),
        Column("of bandwidth", "percent_of_bandwidth", "percent", True),
        Column("of roof", "percent_of_roof", "percent"),
        Column("memory", "peak_memory_bytes", "bytes", True),
        Column("max error", "max_abs_error", "number"),
        Column("rel. error", "relative_error", "number", True),
        Column("ran", "ran", "text"),
        Column("note", "note", "text"),
    ]
    said = (
        "Median time of a call; IQR: middle half of the samples, of the median. Memory: peak above "
        "the inputs, backward's with what forward kept. Error: against float64, of one sequence."
    )
    return Table("results", "Measured", said, columns, rows)


def refused(document: dict[str, Any]) -> Table:
    """What did not run, or ran as something else."""
    rows = [
        {"backend": row["backend"], "seq": row["seq"], "status": status, "why": why}
        for row in document["rows"]
        for status, why in [(row["status"].replace("_", " "), row["reason"] or row.get("note"))]
        if why
    ]
    for row in rows:
        row["status"] = {"ok": "note"}.get(row["status"], row["status"])
    merged = merge(rows, ("backend", "status", "why"))
    columns = [
        Column("backend", "backend", "text", True),
        Column("seq", "seqs", "text", True),
        Column("", "status", "text", True),
        Column("why", "why", "code", True),
    ]
    said = "Refusals and notes; out of memory is a result."
    return Table("refused", "Not measured, or not what its name says", said, columns, merged)


def kernels(document: dict[str, Any]) -> Table:
    rows = [
        {
            "backend": row["backend"],
            "direction": row["direction"],
            "seq": row["seq"],
            "kernels": brief(row["kernels"]) if row["kernels"] is not None else None,
            "kernels_full": brief(row["kernels"] or [], None) or row["kernels_missing"],
        }
        for row in measured(document)
    ]
    for row in rows:
        row["kernels"] = row["kernels"] or row["kernels_full"]
    merged = merge(rows, ("backend", "direction", "kernels", "kernels_full"))
    columns = [
        Column("backend", "backend", "text", True),
        Column("pass", "direction", "text", True),
        Column("seq", "seqs", "text", True),
        Column("kernels", "kernels", "code", True),
    ]
    said = "Of a GPU all kernels, from a CUDA graph of the call; of a CPU the longest operators."
    return Table("kernels", "What really ran", said, columns, merged)


def brief(found: list[dict[str, Any]], most: int | None = MOST_KERNELS) -> str:
    names = [k["name"] + (f" ×{k['count']}" if k["count"] > 1 else "") for k in found]
    more = len(names) - most if most else 0
    return ", ".join(names[:most]) + (f", {more} more" if more > 0 else "")


def merge(rows: list[Row], keys: tuple[str, ...]) -> list[Row]:
    """Rows that say the same at several lengths, as one; `seqs` lists these."""
    merged: dict[tuple, list[int]] = {}
    for row in rows:
        seqs = merged.setdefault(tuple(row[key] for key in keys), [])
        if row["seq"] not in seqs:
            seqs.append(row["seq"])
    return [
        dict(zip(keys, values, strict=True)) | {"seqs": ", ".join(map(text.number, seqs))}
        for values, seqs in merged.items()
    ]
