"""The charts of a memory snapshot: what lay there at the peak by kind, and how it came to that."""

from html import escape

from profiling.analysis.memory.memory_records import Curve, KindBytes, Step
from profiling.report.charts import ABOVE, NAMES, axis, bars, colour, figure, fixed, scatter
from profiling.report.document import Figure

GIB, MIB = 1 << 30, 1 << 20
SHADES = {
    "weights": "gemm",
    "gradients": "attention",
    "moments": "optimizer",
    "activations": "norm",
    "workspace": "embedding",
    "library": "communication",
    "unknown": "other",
}
MOST_MARKS = 60  # steps; more lines would hide the curve


def unit_of(most: int) -> tuple[str, int]:
    """(name, bytes) of the unit in which a chart of that height is read."""
    return ("GiB", GIB) if most >= GIB else ("MiB", MIB)


def by_kind(sides: list[tuple[str, list[KindBytes]]]) -> Figure | None:
    """A bar for each side, of its kinds."""
    most = max((sum(row.bytes for row in kinds) for _, kinds in sides), default=0)
    if not most:
        return None
    unit, size = unit_of(most)
    places = [escape(name) for name, _ in sides]
    data = []
    for kind, shade in SHADES.items():
        lengths = [sum(row.bytes for row in kinds if row.kind == kind) / size for _, kinds in sides]
        if any(lengths):
            hover = f"{kind}: %{{x:.2f}} {unit}<extra></extra>"
            data.append(bars(places, lengths, colour(shade), name=kind, hovertemplate=hover))
    names = NAMES if len(sides) > 1 else NAMES | {"showticklabels": False}
    return figure(
        data, fixed(unit), names, barmode="stack", legend=ABOVE | {"traceorder": "normal"}
    )


def timeline(curve: Curve | None, steps: list[Step]) -> Figure | None:
    """Allocated and reserved bytes over time, with a line at the end of each step."""
    if curve is None or len(curve.event) < 2:
        return None
    unit, size = unit_of(max(curve.reserved_bytes))
    x: list[float] = curve.ms if curve.ms else list(map(float, curve.event))
    step_x = [step.ms if curve.ms else float(step.event) for step in steps]
    hover = f"%{{y:.3f}} {unit}"
    held = [round(value / size, 4) for value in curve.reserved_bytes]
    used = [round(value / size, 4) for value in curve.allocated_bytes]
    data = [
        scatter("reserved", x, held, line=line("muted", 1.5), hovertemplate=hover),
        scatter("allocated", x, used, line=line("accent", 2), hovertemplate=hover),
    ]
    if 0 < len(steps) <= MOST_MARKS:
        height = max(held)
        marks_x = [value for at in step_x for value in (at, at, None)]
        marks_y = [value for _ in steps for value in (0.0, height, None)]
        marks: Figure = {"color": colour("step"), "width": 1, "dash": "dot"}
        data.append(scatter("end of a step", marks_x, marks_y, line=marks, hoverinfo="skip"))
    xaxis = axis("ms since the history begins" if curve.ms else "events of the allocator")
    return figure(data, xaxis, fixed(unit, rangemode="tozero"), hovermode="x unified")


def line(shade: str, width: float) -> Figure:
    return {"color": colour(shade), "width": width, "shape": "hv"}
