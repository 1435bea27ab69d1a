"""Take off the typical step what capturing added to it. Called by verdict.diagnosis."""

from profiling.analysis.gpu_time.profiler_cost import FIXED, LIKELY
from profiling.analysis.records import Health, Report, TypicalStep
from profiling.shared.causes import PART

WORTH_TELLING = 0.02  # of a step


def judged_ms(step: TypicalStep, off: dict[str, float]) -> float:
    """Milliseconds of the typical step without what capturing added."""
    return max(step.ms - sum(off.values()), 1e-9)


def added_by_capturing(report: Report, step: TypicalStep) -> dict[str, float]:
    """Part of the step -> ms that capturing added to it, never more than it has.

    Estimated, or if the manifest has the measured time, the estimates scaled to it. What is then
    left is taken off the parts that a profiler lengthens, in proportion. Where a loader's workers
    set the pace, a step is no longer, but without its events the host would wait longer for them.
    """
    if report.idle is None:
        return {}
    estimated = step.added_ms[LIKELY] if step.added_ms else {}
    measured = measured_added_ms(report.health, step)
    guessed = measured is None or (not measured and is_paced(estimated))
    off = estimated if guessed else scaled_to(measured or 0.0, step)
    # what no sentence says changes no figure
    return off if explained_ms(off) >= WORTH_TELLING * step.ms else {}


def is_paced(off: dict[str, float]) -> bool:
    """Whether a loader's workers set the pace, as gpu_time.typical.added_ms tells."""
    return off.get("data", 0.0) < 0


def explained_ms(off: dict[str, float]) -> float:
    """Milliseconds of idle time that recording explains, also where a wait would be longer."""
    return sum(ms for ms in off.values() if ms > 0)


def measured_added_ms(health: Health, step: TypicalStep) -> float | None:
    """Milliseconds by which capturing made the typical step longer; None: nobody measured it.

    The measured figure is of medians, and the mean of the typical steps may be shorter. A manifest
    lacks it where the program was killed behind the window; what the mean step is longer is known.
    """
    if health.free_step_ms is None:
        return None
    longer_ms, measured = max(0.0, step.ms - health.free_step_ms), health.measured_added_ms
    return longer_ms if measured is None else min(measured, longer_ms)


def scaled_to(added_ms: float, step: TypicalStep) -> dict[str, float]:
    """The estimates of parts, scaled to what capturing added in all, and what is left of it.

    No part loses more than its events cost at most; what is left slowed the host as a whole. The
    host's other parts lose what even the parts that a profiler lengthens cannot have been.
    """
    _, likely, most = (
        {name: max(0.0, ms) for name, ms in row.items()} for row in step.added_ms or [{}, {}, {}]
    )
    scale = added_ms / (sum(likely.values()) or 1.0)
    off = {
        name: min(ms, scale * likely.get(name, 0.0), most.get(name, 0.0))
        for name, ms in step.parts_ms.items()
    }
    lengthened = [name for name in off if PART[name].lengthened]
    for parts in (lengthened, [name for name in off if name in FIXED]):
        rest = {name: step.parts_ms[name] - off[name] for name in parts}
        share = min(1.0, (added_ms - sum(off.values())) / (sum(rest.values()) or 1.0))
        off |= {name: off[name] + share * ms for name, ms in rest.items()}
    return off


def overhead_sentence(health: Health, off: dict[str, float]) -> str:
    taken_off = explained_ms(off)
    if is_paced(off):
        return (
            f"Recording its events may explain {taken_off:.2f} ms of idle time in each step. "
            "Without it the host would wait so much longer for the loader's workers: it counts as "
            "data loading."
        )
    if health.free_step_ms is None:
        return (
            f"Recording its events may explain {taken_off:.2f} ms of idle time in each step, which "
            "is not counted as the program's."
        )
    longer = "Capturing made a step longer"
    if health.overhead_percent is not None:
        longer = f"Capturing made a step {health.overhead_percent:.0f} % longer"
    return (
        f"{longer} ({health.free_step_ms:.2f} ms without it): {taken_off:.2f} ms of the idle time "
        "is not counted as the program's."
    )
