"""Document of the predicted step on more GPUs. Called by profiling.verbs.scale."""

from itertools import groupby

from profiling.analysis.scale.scale_records import Choice, LinkSpeed, Prediction, Scale
from profiling.report.charts import axis, colour, figure, logarithmic, scatter
from profiling.report.document import (
    Block,
    Bullets,
    Chart,
    Column,
    Document,
    Facts,
    Figure,
    Section,
    Table,
    Verdict,
    row_ids,
)
from profiling.shared.units import milliseconds, number, percent, size_bytes

MODE_COLOURS = {"ddp": "gemm", "fsdp": "attention", "hsdp": "optimizer"}
WORTH_PERCENT = 90.0  # the headline names the most GPUs that have at least this efficiency


def scale_document(result: Scale) -> Document:
    chart = Chart("efficiency", "efficiency by number of GPUs", efficiency(result.predictions))
    blocks: list[Block] = [
        chart,
        table(result),
        Bullets("Use", uses(result.choices)),
        Facts(facts(result), heading="Measured and known values"),
        Bullets("Assumed", result.assumed),
    ]
    return Document(
        f"Scale: {result.file}",
        [],
        [Verdict(headline(result))],
        [Section("scale", "On more GPUs", blocks, lead=NOTE)],
    )


NOTE = (
    "Predicted from one measured step and from collectives modelled by latency and bandwidth; only "
    "the row of one GPU was measured. The range comes from the uncertainty of links and host. "
    "Efficiency: of one GPU's speed. Exposed: communication that no compute hides. *: recommended."
)


def headline(result: Scale) -> str:
    """A sentence on how well the step scales with the modes that are to be used."""
    best = {each.gpus: each.mode for each in result.choices}
    rows = [row for row in result.predictions if best[row.gpus] == row.mode and row.gpus > 1]
    step = f"{milliseconds(result.measured.step_ms)} ms per step"
    if not rows:
        return f"Measured: one GPU takes {step}"
    last = rows[-1]
    kept = (
        f"Predicted{assumed_speeds(result)}: on {gpus(last.gpus)} with {last.mode} each GPU runs "
        f"at {percent(last.efficiency_percent)} of its speed alone ({range_ms(last)} ms per step, "
        f"{milliseconds(result.measured.step_ms)} on one)"
    )
    worth = [row.gpus for row in rows if row.efficiency_percent >= WORTH_PERCENT]
    if worth and worth[-1] != last.gpus:
        kept += f"; on up to {worth[-1]:,} at least at {WORTH_PERCENT:.0f} %"
    return kept


def assumed_speeds(result: Scale) -> str:
    """A clause on links of which nobody gave or measured the speed; empty if there are none."""
    links = (("links", result.link), ("network", result.network))
    assumed = [name for name, speed in links if speed and speed.source == "assumed"]
    return f" (speed of {' and '.join(assumed)} assumed)" if assumed else ""


def range_ms(row: Prediction) -> str:
    """The range of the step in ms, or the one figure where both ends read the same."""
    low, high = milliseconds(row.fastest_ms), milliseconds(row.slowest_ms)
    return low if low == high else f"{low} to {high}"


def uses(choices: list[Choice]) -> list[str]:
    """A line for each run of GPU counts with the same mode, with the reason of the largest."""
    lines = []
    for mode, alike in groupby(choices, key=lambda choice: choice.mode):
        run = [*alike]
        first, last = run[0], run[-1]
        span = f"{first.gpus:,} to {gpus(last.gpus)}" if first != last else gpus(first.gpus)
        lines.append(f"{span}: {'' if mode == 'one' else f'{mode}, '}{last.why}")
    return lines


def gpus(count: int) -> str:
    return f"{count:,} GPU{'s' if count > 1 else ''}"


def table(result: Scale) -> Table:
    best = {(each.gpus, each.mode) for each in result.choices}

    def mode(row: Prediction) -> str:
        return f"{row.mode} *" if (row.gpus, row.mode) in best and row.gpus > 1 else row.mode

    columns = [
        Column("GPUs", "gpus", "number", True),
        Column("parallel", mode, "text", True),
        Column("step, ms", "step_ms", "ms", True),
        Column("range", range_ms, "number", True),
        Column("tokens/s", lambda row: rounded(row.tokens_per_s), "number", True),
        Column("efficiency", "efficiency_percent", "percent", True),
        Column("exposed, ms", "exposed_ms", "ms", True),
        Column("sent", "sent_bytes", "bytes"),
        Column("limit", "limited_by", "text", True),
        Column("memory", lambda row: row.memory.known, "bytes", True),
    ]
    rows = result.predictions
    most, ids = len(rows), row_ids("prediction", rows)
    return Table("scale", "On more GPUs", NOTE, columns, rows, most=most, limit=most, ids=ids)


def rounded(value: float) -> float:
    """The value to four digits: a prediction has no more."""
    return float(f"{value:.4g}")


def facts(result: Scale) -> list[tuple[str, str]]:
    parts, model = result.measured, result.model
    pairs = [
        ("forward, backward", f"{ms(parts.forward_ms)}, {ms(parts.backward_ms)}"),
        (
            "of a block",
            f"{ms(parts.block_forward_ms)}, {ms(parts.block_backward_ms)}, "
            f"by its {parts.blocks_from}",
        ),
        ("micro-steps, tokens", f"{parts.micro_steps}, {result.tokens:,} a step on each GPU"),
        ("model", f"{model.parameters:,} parameters, {model.blocks} blocks"),
        ("last bucket", f"{last_bucket(result)}: no work is left to hide it"),
    ]
    for what, speed in (("link", result.link), ("network", result.network)):
        if speed:
            pairs.append((what, speed_text(speed)))
    slower, host = result.slowdown, result.host
    pairs.append(
        ("compute during communication", f"{number(slower.percent)} % longer, {slower.source}")
    )
    if copies := result.slowdown_beside_copies:
        pairs.append(
            ("compute during copies", f"{number(copies.percent)} % longer, {copies.source}")
        )
    step = f"{ms(host.step_ms)} a step of fsdp and hsdp, {host.source}"
    return [*pairs, ("host", step)]


def last_bucket(result: Scale) -> str:
    """Size of ddp's last bucket: dense, with the embedding's gradient as rows, or both."""
    model, of_ddp = result.model, [row for row in result.predictions if row.mode == "ddp"]
    sizes = (model.last_bucket_bytes, model.rows_last_bucket_bytes)
    have_rows = {row.embedding_rows for row in of_ddp} or {False}
    dense, rows = map(size_bytes, sizes)
    if have_rows == {False, True}:
        return f"{dense}, {rows} where the embedding's gradient is sent as rows"
    return rows if have_rows == {True} else dense


def ms(value: float) -> str:
    return f"{milliseconds(value)} ms"


def speed_text(speed: LinkSpeed) -> str:
    low, high = number(speed.low_gb_per_s), number(speed.high_gb_per_s)
    span = f" ({low} to {high})" if low != high else ""
    return f"{number(speed.gb_per_s)} GB/s{span}, {speed.source}"


def efficiency(rows: list[Prediction]) -> Figure | None:
    """Efficiency over the number of GPUs, points for each mode with their range; None with fewer
    than two counts.

    No line joins the points, because nothing was computed between them.
    """
    counts = sorted({row.gpus for row in rows})
    if len(counts) < 2:
        return None
    points = []
    for mode, shade in MODE_COLOURS.items():
        if own := [row for row in rows if row.mode == mode]:
            x, y = [row.gpus for row in own], [row.efficiency_percent for row in own]
            best = [row.efficiency_percent * row.step_ms / row.fastest_ms for row in own]
            worst = [row.efficiency_percent * row.step_ms / row.slowest_ms for row in own]
            bars: Figure = {
                "type": "data",
                "symmetric": False,
                "array": [high - middle for high, middle in zip(best, y, strict=True)],
                "arrayminus": [middle - low for low, middle in zip(worst, y, strict=True)],
            }
            style: Figure = {"marker": {"color": colour(shade), "size": 8}, "error_y": bars}
            points.append(scatter(mode, x, y, "markers", **style))
    xaxis = logarithmic("GPUs", counts[0] / 1.2, counts[-1] * 1.2)
    return figure(points, xaxis, axis("of one GPU's speed, %, predicted", rangemode="tozero"))
