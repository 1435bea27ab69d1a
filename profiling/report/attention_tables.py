"""The tables of the attention lab. Called by its verb, for the terminal, and by its page."""

from typing import Any

from rich.console import Console
from rich.text import Text

from profiling.report import text
from profiling.report.console import bullet, grid, heading
from profiling.report.kernel_label import kernel_label
from profiling.report.tables import Column, Row, Table

MOST_KERNELS = 6  # named in a cell


def all_tables(document: dict[str, Any]) -> list[Table]:
    return [results(document), refused(document), kernels(document)]


def print_attention(document: dict[str, Any], console: Console) -> None:
    console.print(Text(title(document), style="bold"))
    for line in notes(document):
        console.print(Text(line, style="dim"))
    for table in all_tables(document):
        if table.name == "refused" and table.rows:  # reasons are to be read, so they wrap
            console.print(heading(table.title), Text(table.note, style="dim"), sep="\n")
            for row in table.rows:
                told = f"{row['backend']} at {row['seqs']}, {row['status']}: {row['why']}"
                console.print(bullet(told))
        elif table.rows:
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
        Column("TFLOP/s", "tflops", "number", True),
        Column("of peak", "percent_of_peak", "percent", True),
        Column("memory", "peak_memory_bytes", "bytes", True),
        Column("rel. error", "relative_error", "number", True),
        Column("GB/s", "gbps", "number", True),
        Column("of bandwidth", "percent_of_bandwidth", "percent", True),
        Column("± 95 %", "ci95_percent", "percent", True),
        Column("samples", "samples", "number"),
        Column("launch", "launch_ns", "ns"),
        Column("traffic", "bytes", "bytes"),
        Column("of roof", "percent_of_roof", "percent"),
        Column("max error", "max_abs_error", "number"),
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
    """A row for each backend and pass, over all lengths."""
    ran: dict[tuple[str, str], list[Row]] = {}
    for row in measured(document):
        ran.setdefault((row["backend"], row["direction"]), []).append(row)
    rows = [
        {"backend": backend, "direction": direction, **told_kernels(found)}
        for (backend, direction), found in ran.items()
    ]
    columns = [
        Column("backend", "backend", "text", True),
        Column("pass", "direction", "text", True),
        Column("kernels", "kernels", "code", True),
    ]
    said = (
        "At any of the lengths. Of a GPU all kernels, from a CUDA graph of the call; of a CPU the "
        "longest operators."
    )
    return Table("kernels", "What really ran", said, columns, rows)


def told_kernels(rows: list[Row]) -> Row:
    """The kernels of one backend and pass, in brief and whole: with lengths, where not at all."""
    seqs: dict[str, list[int]] = {}
    for row in rows:
        for kernel in row["kernels"] or []:
            seqs.setdefault(kernel["name"], []).append(row["seq"])
    missing = dict.fromkeys(row["kernels_missing"] for row in rows if row["kernels"] is None)
    if not seqs:
        said = "; ".join(filter(None, missing)) or None
        return {"kernels": said, "kernels_full": said}
    labels = list(dict.fromkeys(kernel_label(name) for name in seqs))
    more = len(labels) - MOST_KERNELS
    whole = [
        name if len(at) == len(rows) else f"{name} at {', '.join(map(text.number, at))}"
        for name, at in seqs.items()
    ]
    return {
        "kernels": ", ".join(labels[:MOST_KERNELS]) + (f", {more} more" if more > 0 else ""),
        "kernels_full": "; ".join(whole),
    }


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
