"""The slices of a step in the bar on a page's first screen: words, times and colours.

Called by profiling.report.single.document and step_charts.
"""

from dataclasses import dataclass
from html import escape

from profiling.analysis.records import Report
from profiling.report.palette import SERIES
from profiling.shared.causes import Part

*OWN, SHARED = SERIES  # one for each of the longest phases or operators, and one for the others
ROUNDING = 0.001  # of the step


@dataclass(frozen=True)
class Slice:
    title: str  # as plotly reads it: names from captures are escaped
    ms: float
    colour: str  # its name in the palette
    hatch: str = ""


def of_parts(parts: list[tuple[Part, float]]) -> list[Slice]:
    return [Slice(part.title, ms, part.name, part.colours.hatch) for part, ms in parts]


def of_cpu(report: Report) -> tuple[list[Slice], str]:
    """(slices that add up to the mean step of a run without a GPU, how its moments are counted).

    They are its phases, without these its operators; none where neither is known, or where they are
    longer than the step because threads run side by side.
    """
    steps = report.window.steps
    if phases := {row.name: row.host_ms / steps for row in report.phases}:
        counted = "in its phase, else as outside the phases"
        return with_rest(report, phases, "phases", "outside the phases"), counted
    operators = {row.name: row.self_ns / 1e6 / steps for row in report.operators or []}
    if not operators or report.capture.kind == "jax":  # XLA's events do not cover what it computes
        return [], ""
    counted = "for the innermost operator that runs, else as no operator"
    return with_rest(report, operators, "operators", "no operator"), counted


def with_rest(report: Report, ms: dict[str, float], what: str, rest: str) -> list[Slice]:
    step_ms = report.window.step_ms.mean
    rest_ms = step_ms - sum(ms.values())
    if not step_ms or rest_ms < -ROUNDING * step_ms:
        return []
    shades = colours_of(ms)
    others = [name for name, shade in shades.items() if shade == SHARED]
    slices = [Slice(escape(name), ms[name], shades[name]) for name in ms if name not in others]
    others_ms = sum(ms[name] for name in others)
    slices.append(Slice(f"{len(others)} other {what}", others_ms, SHARED))
    return [*slices, Slice(rest, max(0.0, rest_ms), "muted", "|")]


def colours_of(ms: dict[str, float]) -> dict[str, str]:
    """Name of the colour of each phase or operator: of OWN for the longest, SHARED for others."""
    longest = sorted(ms, key=lambda name: -ms[name])[: len(OWN)]
    named = [name for name in longest if name in OWN]  # a phase `optimizer` has its own name's
    unused = iter([shade for shade in OWN if shade not in named])
    shades = {name: name if name in named else next(unused) for name in ms if name in longest}
    return dict.fromkeys(ms, SHARED) | shades
