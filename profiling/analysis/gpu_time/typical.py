"""Pick the typical steps of a program: no warm-up, no stalls, none that capturing disturbed.

Called by profiling.analysis.summary: one slow step in a short window decides a mean.
"""

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import distinct
from profiling.analysis.gpu_time.host_activity import waits_for_workers
from profiling.analysis.gpu_time.idle import Gaps
from profiling.analysis.gpu_time.profiler_cost import LEAST, LIKELY, MOST
from profiling.analysis.gpu_work.families import ms_by_family
from profiling.analysis.records import TypicalStep
from profiling.shared.causes import CAUSES
from profiling.timeline.trace import KERNEL

NEAR = 0.25  # of the median: a step that differs by more is far from it
FEW = 0.1  # of the steps: at most this share may be left out


def typical_step(analysis: Analysis) -> TypicalStep | None:
    """The mean of the typical steps, or None where no GPU activity was captured."""
    parts_ns = parts_of_steps(analysis)
    if parts_ns is None:
        return None
    chosen = are_typical(np.diff(analysis.bounds_ns))
    ms = np.diff(analysis.bounds_ns)[chosen].mean() / 1e6
    parts_ms = {name: float(ns[chosen].mean()) / 1e6 for name, ns in parts_ns.items()}
    rows, step = kernels_of_steps(analysis, chosen)
    return TypicalStep(
        of_steps=int(chosen.sum()),
        ms=float(ms),
        parts_ms=parts_ms,
        family_ms=family_ms(analysis, rows, int(chosen.sum())),
        kernel_noise=kernel_sd_ns(analysis, rows, step) / 1e6 / float(ms) if ms else 0.0,
        added_ms=added_ms(analysis, chosen),
    )


def added_ms(analysis: Analysis, chosen: np.ndarray) -> list[dict[str, float]] | None:
    """Milliseconds that capturing added to the idle causes of the chosen steps, in their mean.

    The least, the likely and the most; None where it is not known by cause. Where a loader's
    workers set the pace, a step takes as long without a profiler: the host waits for them instead,
    so `data` has what the others have, below 0.
    """
    cost = analysis.profiler_cost
    if cost is None or cost.cause_ns is None:
        return None
    means = {cause: ns[:, chosen].mean(axis=1) / 1e6 for cause, ns in cost.cause_ns.items()}
    if waits_for_workers(analysis.trace, analysis.steps):
        means["data"] = 0.0 - np.sum([ms for cause, ms in means.items() if cause != "data"], axis=0)
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


def kernels_of_steps(analysis: Analysis, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows of the kernels that began in the chosen steps, the step of each)."""
    operations, bounds_ns = analysis.trace.operations, analysis.bounds_ns
    if operations is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    rows = analysis.steps.rows_of(operations)
    rows = rows[operations.kind[rows] == KERNEL]
    step = np.searchsorted(bounds_ns, operations.start_ns[rows], side="right") - 1
    inside = (step >= 0) & np.append(chosen, False)[step]
    return rows[inside], step[inside]


def family_ms(analysis: Analysis, rows: np.ndarray, steps: int) -> dict[str, float]:
    """Kernel time of each family in ms per step, over the kernels at `rows`."""
    operations = analysis.trace.operations
    if operations is None:
        return {}
    took_ns = operations.end_ns[rows] - operations.start_ns[rows]
    return ms_by_family(analysis.family[operations.name[rows]], took_ns, steps)


def kernel_sd_ns(analysis: Analysis, rows: np.ndarray, step: np.ndarray) -> float:
    """Standard deviation of a step's kernel time in ns, pooled over the kernels at `rows`.

    A kernel does equal work in all steps, so its time of a step varies by chance; many kernels tell
    by how much even where there are two steps. 0 with fewer than two.
    """
    operations = analysis.trace.operations
    if operations is None or len(distinct(step)) < 2:
        return 0.0
    (names, name), (steps, place) = numbered(operations.name[rows]), numbered(step)
    took_ns = operations.end_ns[rows] - operations.start_ns[rows]
    of_step_ns = np.bincount(place * names + name, took_ns, steps * names).reshape(-1, names)
    return float(np.sqrt(of_step_ns.var(axis=0, ddof=1).sum()))


def numbered(column: np.ndarray) -> tuple[int, np.ndarray]:
    """(number of distinct values, place of each row's value among them); values are small."""
    used = np.bincount(column) > 0
    return int(used.sum()), (np.cumsum(used) - 1)[column]


def are_typical(length: np.ndarray) -> np.ndarray:
    """(steps,) mask of the typical step times: all but the few that are far from the median.

    If many steps are far from it, that is how the program runs, and only the first step is left
    out, if it is one of them.
    """
    median = np.median(length)
    far = abs(length - median) > NEAR * median
    if np.count_nonzero(far) > max(1, FEW * len(far)):
        far[1:] = False
    return ~far if len(far) > 2 else np.ones(len(far), bool)
