"""Pick the typical steps of a program: no warm-up, no stalls, none that capturing disturbed.

Called by profiling.analysis.verdict.diagnosis: one slow step in a short window decides a mean.
"""

from dataclasses import dataclass

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.idle import Gaps
from profiling.analysis.gpu_time.profiler_cost import LEAST, LIKELY, MOST
from profiling.analysis.gpu_work.families import ms_by_family
from profiling.shared.causes import CAUSES
from profiling.timeline.trace import KERNEL

NEAR = 0.25  # of the median: a step that differs by more is far from it
FEW = 0.1  # of the steps: at most this share may be left out


@dataclass(frozen=True)
class TypicalStep:
    """The mean of the typical steps."""

    of_steps: int  # number of typical steps
    ms: float
    parts_ms: dict[str, float]  # by causes.PARTS; adds up to it
    family_ms: dict[str, float]  # kernel time a step
    added_ms: list[dict[str, float]] | None  # by CAUSES: added by capturing, least, likely, most

    @property
    def idle_ms(self) -> float:
        busy = ("compute", "communication", "copy")
        return sum(ms for name, ms in self.parts_ms.items() if name not in busy)


def typical_step(analysis: Analysis) -> TypicalStep | None:
    """The mean of the typical steps, or None where no GPU activity was captured."""
    parts_ns = parts_of_steps(analysis)
    if parts_ns is None:
        return None
    chosen = typical_steps(analysis.bounds_ns)
    ms = np.diff(analysis.bounds_ns)[chosen].mean() / 1e6
    parts_ms = {name: float(ns[chosen].mean()) / 1e6 for name, ns in parts_ns.items()}
    return TypicalStep(
        int(chosen.sum()), float(ms), parts_ms, family_ms(analysis, chosen), added_ms(analysis)
    )


def added_ms(analysis: Analysis) -> list[dict[str, float]] | None:
    """Milliseconds that capturing added to the idle causes of a typical step: least, likely, most.

    None where it is not known by cause.
    """
    cost, chosen = analysis.profiler_cost, typical_steps(analysis.bounds_ns)
    if cost is None or cost.cause_ns is None:
        return None
    means = {cause: ns[:, chosen].mean(axis=1) / 1e6 for cause, ns in cost.cause_ns.items()}
    return [
        {cause: float(ms[scenario]) for cause, ms in means.items()}
        for scenario in (LEAST, LIKELY, MOST)
    ]


def parts_of_steps(analysis: Analysis) -> dict[str, np.ndarray] | None:
    """Part of causes.PARTS -> (steps,) nanoseconds; the parts add up to the step.

    None where no GPU activity was captured.
    """
    if analysis.split_ns is None:
        return None
    if analysis.gaps is None:
        return dict(analysis.split_ns)
    busy_ns = {name: ns for name, ns in analysis.split_ns.items() if name != "idle"}
    return busy_ns | causes_of_steps(analysis.gaps, analysis.bounds_ns)


def causes_of_steps(gaps: Gaps, bounds_ns: np.ndarray) -> dict[str, np.ndarray]:
    """Cause of CAUSES -> (steps,) idle nanoseconds."""
    first = np.searchsorted(gaps.start_ns, bounds_ns[:-1], side="left")
    edges = np.append(first, len(gaps.start_ns))  # gaps of a step lie between two edges
    until = (np.concatenate(([0], np.cumsum(ns))) for ns in gaps.cause_ns)
    return {cause: np.diff(ns[edges]) for cause, ns in zip(CAUSES, until, strict=True)}


def family_ms(analysis: Analysis, chosen: np.ndarray) -> dict[str, float]:
    """Kernel time of each family in ms per step, over kernels that began in the chosen steps."""
    operations, bounds_ns = analysis.trace.operations, analysis.bounds_ns
    if operations is None:
        return {}
    rows = analysis.steps.rows_of(operations)
    rows = rows[operations.kind[rows] == KERNEL]
    step = np.searchsorted(bounds_ns, operations.start_ns[rows], side="right") - 1
    rows = rows[(step >= 0) & np.append(chosen, False)[step]]
    took_ns = operations.end_ns[rows] - operations.start_ns[rows]
    return ms_by_family(analysis.family[operations.name[rows]], took_ns, int(chosen.sum()))


def typical_steps(bounds_ns: np.ndarray) -> np.ndarray:
    """(steps,) mask of the typical steps: all but the few that are far from the median.

    If many steps are far from it, that is how the program runs, and only the first step is left
    out, if it is one of them.
    """
    length_ns = np.diff(bounds_ns)
    median = np.median(length_ns)
    far = abs(length_ns - median) > NEAR * median
    if np.count_nonzero(far) > max(1, FEW * len(far)):
        far[1:] = False
    return ~far if len(far) > 2 else np.ones(len(far), bool)
