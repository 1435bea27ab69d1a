"""Document of the attention lab's results. Called by profiling.verbs.attention."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from profiling.report import charts
from profiling.report.charts import colour, figure, fixed, guide, scatter
from profiling.report.document import (
    PAGE,
    TEXT,
    Block,
    Bullets,
    Cell,
    Chart,
    Column,
    Document,
    Figure,
    Paragraph,
    Section,
    Table,
    Verdict,
)
from profiling.report.kernel_label import kernel_label
from profiling.report.lab.documents import timing_note
from profiling.shared.measurements import BACKENDS, AttentionResults, Measurement
from profiling.shared.units import number, percent

LEADS = {
    "time": "Median of a call, with its 95 % interval; both axes are logarithmic.",
    "memory": "Peak memory above the inputs, for one sequence. A matrix of scores grows with T²; a "
    "fused kernel keeps one row at a time and grows with T.",
    "roofline": "Arithmetic of the function divided by the least memory traffic it needs. Longer "
    "sequences lie further right, with more arithmetic per byte.",
}
MOST_KERNELS = 6  # named in a cell
PAGE_ROWS = 60


@dataclass(frozen=True)
class Failure:
    backend: str
    status: str
    why: str


def attention_document(results: AttentionResults) -> Document:
    ratios = slow_against_flash(results.measurements)
    drawn = [
        section
        for direction in ("forward", "backward")
        if (rows := [row for row in results.measurements if row.direction == direction])
        for section in chart_sections(results, direction, rows)
    ]
    verdict: list[Block] = [
        *(Verdict(said[:1].upper() + said[1:], places=PAGE) for said in ratios[:1]),
        Bullets(None, ratios[1:], places=PAGE),
    ]
    return Document(
        title=f"Attention on {results.device}, {results.dtype}, PyTorch {results.torch}",
        notes=notes(results),
        verdict=verdict,
        sections=[
            *drawn,
            measured_section(results),
            failures_section(results),
            kernels_section(results),
        ],
    )


def notes(results: AttentionResults) -> list[str]:
    """Lines that say how the figures were measured."""
    shape = f"{results.heads} heads of {results.head_dim}, dropout {results.dropout:g}"
    if results.tokens:
        shape += f"; batch = {results.tokens:,} tokens / seq, at least 1"
    forward = "saves tensors for backward" if results.backward else "saves nothing for backward"
    timing = timing_note(results, "; peak memory is known only on a GPU")
    peaks = "the peaks of this device are not known, so no shares of them are shown"
    if results.peak_tflops:
        gbps = results.peak_gbps or 0
        peaks = f"peaks from the data sheet: {results.peak_tflops:g} TFLOP/s, {gbps:,.0f} GB/s"
    lines = [f"{shape}; forward {forward}", timing, peaks]
    if results.dropout:
        lines.append("no error against float64, because dropout is random")
    rows = results.measurements
    if loose := [row for row in rows if not (row.precise and row.stable)]:
        lines.append(
            f"{len(loose)} of {len(rows)} medians did not converge to 1 % in the time allowed: "
            "raise --max-s, or stop other work on this machine"
        )
    return lines


def slow_against_flash(rows: list[Measurement]) -> list[str]:
    """A sentence for each pass: both backends at the longest length that both reached."""
    measured = {(row.backend, row.direction, row.seq): row for row in rows}
    sentences = []
    for direction in ("forward", "backward"):
        both = [row.seq for row in rows if row.direction == direction and row.backend == "slow"]
        for seq in sorted(seq for seq in both if ("flash", direction, seq) in measured)[-1:]:
            slow, flash = measured["slow", direction, seq], measured["flash", direction, seq]
            line = f"{direction}, seq {seq:,}: {speed_sentence(slow, flash)}"
            if slow.peak_memory_bytes and flash.peak_memory_bytes:
                less = slow.peak_memory_bytes / flash.peak_memory_bytes
                line += f"; flash takes {less:.1f} × less memory"
            sentences.append(line)
    return sentences


def speed_sentence(slow: Measurement, flash: Measurement) -> str:
    """Says which backend is faster and by how much, or that the measurements cannot tell.

    The bounds of the ratio come from the ends of both 95 % intervals.
    """
    low = slow.ci95_ms[0] / flash.ci95_ms[1]
    high = slow.ci95_ms[1] / flash.ci95_ms[0]
    ratio = slow.median_ms / flash.median_ms
    if low <= 1 <= high:
        return (
            f"it is not clear which is faster: flash is {low:.1f} to {high:.1f} × as fast as slow"
        )
    if ratio > 1:
        return f"flash is {ratio:.1f} × faster than slow ({low:.1f} to {high:.1f})"
    return f"slow is {1 / ratio:.1f} × faster than flash ({1 / high:.1f} to {1 / low:.1f})"


def chart_sections(
    results: AttentionResults, direction: str, rows: list[Measurement]
) -> list[Section]:
    """The sections of one pass, a chart each."""
    figures = {
        "time": chart_over_length(
            rows, lambda row: row.median_ms, "ms per call", spread=interval_bars
        ),
        "memory": memory_chart([row for row in rows if row.peak_memory_bytes]),
        "roofline": roofline(results, rows),
    }
    return [
        Section(
            f"{name}-{direction}",
            f"{name.capitalize()}, {direction}",
            [Chart(f"{name}-{direction}", f"{name} of each backend, {direction}", figure, 380)],
            lead=LEADS[name],
        )
        for name, figure in figures.items()
    ]


def rows_by_backend(rows: list[Measurement]) -> list[tuple[str, list[Measurement]]]:
    """(backend, its rows by length), in the order of BACKENDS; backends not in it come last."""
    by_backend: dict[str, list[Measurement]] = {name: [] for name in BACKENDS}
    for row in sorted(rows, key=lambda row: row.seq):
        by_backend.setdefault(row.backend, []).append(row)
    return [(name, own) for name, own in by_backend.items() if own]


def line(name: str, x: list[float], y: list[float], hover: str, **more: object) -> Figure:
    shade = BACKENDS[name].colour if name in BACKENDS else "other"
    style = {"line": {"color": colour(shade), "width": 2}, "marker": {"size": 7}}
    hover = f"<b>{name}</b>, seq {hover}<extra></extra>"
    return scatter(name, x, y, "lines+markers", hovertemplate=hover, **style, **more)


def interval_bars(rows: list[Measurement]) -> Figure:
    """Error bars that span the 95 % intervals of the medians."""
    up = [row.ci95_ms[1] - row.median_ms for row in rows]
    down = [row.median_ms - row.ci95_ms[0] for row in rows]
    return {"error_y": {"type": "data", "symmetric": False, "array": up, "arrayminus": down}}


def chart_over_length(
    rows: list[Measurement],
    value: Callable[[Measurement], float],
    title: str,
    *more: Figure,
    spread: Callable[[list[Measurement]], Figure] = lambda rows: {},
) -> Figure:
    """A line for each backend, and `more`, on logarithmic axes, where a power law is straight."""
    hover = f"%{{x}}: %{{y:.4g}} {title}"
    lines = [
        line(name, [row.seq for row in own], [value(row) for row in own], hover, **spread(own))
        for name, own in rows_by_backend(rows)
    ]
    lengths = sorted({row.seq for row in rows})
    ticks = {"tickvals": lengths, "ticktext": list(map(str, lengths))}
    xaxis = fixed("sequence length", type="log", **ticks)
    values = [value(row) for row in rows]
    yaxis = fixed(title, type="log", **charts.log_ticks(min(values), max(values)))
    return figure([*lines, *more], xaxis, yaxis)


def memory_chart(rows: list[Measurement]) -> Figure | None:
    """Peak memory of one sequence over its length, so that the batch does not matter.

    Dotted lines show growth with T^2 and with T.
    """
    if not rows:
        return None
    fused = [
        own for name, own in rows_by_backend(rows) if name in BACKENDS and BACKENDS[name].fused
    ]
    unfused = [own for name, own in rows_by_backend(rows) if own not in fused]
    lengths = sorted({row.seq for row in rows})
    dotted = []
    for name, power, lines in (("∝ T²", 2, unfused[:1]), ("∝ T", 1, fused[-1:])):
        for *_, longest in lines:
            y = [megabytes(longest) * (seq / longest.seq) ** power for seq in lengths]
            dotted.append(guide(name, lengths, y, "muted", dash="dot", width=1.5))
    return chart_over_length(rows, megabytes, "MB per sequence", *dotted)


def megabytes(row: Measurement) -> float:
    return (row.peak_memory_bytes or 0) / row.batch / 1e6


def roofline(results: AttentionResults, rows: list[Measurement]) -> Figure:
    """TFLOP/s over FLOP per byte of the function's own traffic; lines run from short to long."""
    hover = "%{customdata[0]}: %{y:.3g} TFLOP/s, %{customdata[1]} of the roof"
    lines = [
        line(
            name,
            [row.flops_per_byte for row in own],
            [row.tflops for row in own],
            hover,
            customdata=[[row.seq, percent(row.percent_of_roof)] for row in own],
        )
        for name, own in rows_by_backend(rows)
    ]
    points = [(row.flops_per_byte, row.tflops) for row in rows]
    return charts.roofline(lines, points, results.peak_tflops, results.peak_gbps, "at least")


def measured_section(results: AttentionResults) -> Section:
    columns = [
        Column("backend", "backend", "text", True),
        Column("pass", "direction", "text", True),
        Column("seq", "seq", "number", True),
        Column("batch", "batch", "number"),
        Column("median", lambda row: row.median_ms * 1e6, "ns", True),
        Column("IQR", lambda row: 100 * relative_width(row, row.quartiles_ms), "percent", True),
        Column("TFLOP/s", "tflops", "number", True),
        Column("of peak", "percent_of_peak", "percent", True),
        Column("memory", "peak_memory_bytes", "bytes", True),
        Column("rel. error", "relative_error", "number", True),
        Column("GB/s", "gbps", "number", True),
        Column("of bandwidth", "percent_of_bandwidth", "percent", True),
        Column("± 95 %", lambda row: 50 * relative_width(row, row.ci95_ms), "percent", True),
        Column("samples", "samples", "number"),
        Column("launch", lambda row: row.launch_ms and row.launch_ms * 1e6, "ns"),
        Column("traffic", "bytes", "bytes"),
        Column("of roof", "percent_of_roof", "percent"),
        Column("max error", "max_abs_error", "number"),
        Column("ran", "ran", "text"),
        Column("note", "note", "text"),
    ]
    note = (
        "Median time per call. IQR: interquartile range of the samples, in per cent of the "
        "median. Memory: peak above the inputs; for backward, including what forward saved. "
        "Error: against float64, for one sequence."
    )
    return table_section("results", "Measured", note, columns, results.measurements)


def relative_width(row: Measurement, interval_ms: tuple[float, float]) -> float:
    """Width of the interval as a share of the median."""
    return (interval_ms[1] - interval_ms[0]) / row.median_ms


def table_section(
    name: str, title: str, note: str, columns: list[Column], rows: Sequence[object]
) -> Section:
    """A section with one table, which a terminal shows whole."""
    table = Table(name, title, note, columns, rows, most=len(rows), limit=PAGE_ROWS)
    return Section(name, title, [table])


def failures_section(results: AttentionResults) -> Section:
    """Backends that did not run, or ran as something else; equal reasons share a line."""
    seqs: dict[Failure, dict[int, None]] = {}
    for row in results.rows:
        why = row.note if isinstance(row, Measurement) else row.reason
        status = "note" if row.status == "ok" else row.status.replace("_", " ")
        if why:
            seqs.setdefault(Failure(row.backend, status, why), {})[row.seq] = None
    columns = [
        Column("backend", "backend", "text"),
        Column("seq", lambda failure: lengths_text(seqs[failure]), "text"),
        Column("status", "status", "text"),
        Column("why", "why", "code"),
    ]
    name, title = "refused", "Not measured, or ran another kernel than its name says"
    note = "Refusals and notes. Running out of memory is a result too."
    lines = [f"{f.backend} at {lengths_text(at)}, {f.status}: {f.why}" for f, at in seqs.items()]
    blocks: list[Block] = [
        Paragraph(note, "note", places=TEXT),
        Bullets(None, lines, places=TEXT),  # unlike a table's cells, these wrap
        Table(name, title, note, columns, list(seqs), limit=PAGE_ROWS, places=PAGE),
    ]
    return Section(name, title, blocks if seqs else [])


def lengths_text(seqs: Iterable[int]) -> str:
    return ", ".join(map(number, seqs))


def kernels_section(results: AttentionResults) -> Section:
    """The kernels that ran: a row for each backend and pass, over all lengths."""
    ran: dict[tuple[str, str], list[Measurement]] = {}
    for row in results.measurements:
        ran.setdefault((row.backend, row.direction), []).append(row)
    columns = [
        Column("backend", lambda rows: rows[0].backend, "text", True),
        Column("pass", lambda rows: rows[0].direction, "text", True),
        Column("kernels", kernels_cell, "code", True),
    ]
    note = (
        "At any of the lengths. On a GPU: all kernels, from a CUDA graph of the call. On a CPU: "
        "the longest operators."
    )
    return table_section("kernels", "What really ran", note, columns, list(ran.values()))


def kernels_cell(rows: list[Measurement]) -> Cell:
    """The kernels of one backend and pass: labels, with the whole names behind them.

    A kernel that did not run at all lengths is followed by its lengths.
    """
    seqs: dict[str, list[int]] = {}
    for row in rows:
        for kernel in row.kernels or []:
            seqs.setdefault(kernel.name, []).append(row.seq)
    if not seqs:
        missing = dict.fromkeys(row.kernels_missing for row in rows if row.kernels is None)
        return Cell("; ".join(filter(None, missing)) or None)
    labels = list(dict.fromkeys(kernel_label(name) for name in seqs))
    more = len(labels) - MOST_KERNELS
    whole = [
        name if len(at) == len(rows) else f"{name} at {lengths_text(at)}"
        for name, at in seqs.items()
    ]
    brief = ", ".join(labels[:MOST_KERNELS]) + (f", {more} more" if more > 0 else "")
    return Cell(brief, "; ".join(whole))
