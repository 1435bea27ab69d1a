"""Other answers to what a change buys: the gains that our report ranks, and nsys-ai's estimate.

Neither has an interval, nor says what limits the step behind the change.
"""

from dataclasses import dataclass
from pathlib import Path

from profiling.analysis.records import Report
from profiling.analysis.whatif.checked import Interval, Predicted
from validation.peers import output_of

LEAST_GAIN = 0.01  # a shorter prediction is "nothing", as in whatif
# what nsys-ai's first estimate is for: "CUDA graphs / async data loading / remove explicit syncs"
OF_IDLE_GAPS = ("launch", "data", "synchronization")


@dataclass(frozen=True)
class Gaps:
    """A row that `skill run gpu_idle_gaps` prints, as far as it is read."""

    device_idle_ms: float | None = None  # in the row that sums up


@dataclass(frozen=True)
class Estimate:
    """A row that `skill run speedup_estimator` prints, as far as it is read."""

    speedup: float = 1.0


def of_ratio(step_ms: float, ratio: float) -> Predicted:
    after = step_ms * ratio
    return Predicted(
        "shorter" if ratio < 1 - LEAST_GAIN else "nothing",
        Interval(after, after, after),
        Interval(ratio, ratio, ratio),
        None,
    )


def most_to_gain(report: Report, verdict: str, free_ms: float | None) -> Predicted | None:
    """The step without all that the report says this class could give back: X of Y ms per step.

    It is Y - X, or with a known free step that step less the same share. None: it ranks nothing.
    """
    step, ranked = report.typical, report.bottleneck.ranked
    if not step or not ranked:
        return None
    gain_ms = sum(gain.recoverable_ms_per_step for gain in ranked if gain.verdict == verdict)
    return of_ratio(free_ms or step.ms, 1 - gain_ms / step.ms)


def nsys_ai_estimate(
    nsys_ai: str, capture: Path, step_ms: float, steps: int, verdict: str
) -> Predicted | None:
    """The step by its speedup_estimator, given the captured step and the idle time that it finds.

    None: it has no estimate for such a change, or failed.
    """
    if verdict not in OF_IDLE_GAPS:
        return None
    skill, words = [nsys_ai, "skill", "run"], [str(capture), "--format", "json"]
    kept = f"{capture}.{{}}.json"
    found = output_of([*skill, "gpu_idle_gaps", *words], Path(kept.format("gaps")), list[Gaps])
    idle = [row.device_idle_ms for row in found or [] if row.device_idle_ms is not None]
    if not idle:
        return None
    given = ["-p", f"iteration_ms={step_ms}", "-p", f"idle_ms={idle[-1] / steps}"]
    estimates = output_of(
        [*skill, "speedup_estimator", *words, *given], Path(kept.format("speedup")), list[Estimate]
    )
    return of_ratio(step_ms, 1 / estimates[0].speedup) if estimates else None
