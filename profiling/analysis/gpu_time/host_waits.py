"""Charge waits for the GPU with the gaps that follow them. Called by idle, which has the rules.

`waits` are at least one: idle calls for no kind of wait that there is none of.
"""

from itertools import pairwise

import numpy as np

from profiling.analysis.columns import Intervals
from profiling.timeline.trace import KERNEL, Calls, Operations

SLACK_NS = 20_000  # clocks of host and GPU differ by some us
FEW_LAUNCHES = 20  # fewer may all be slow first launches, which load their kernels
SHORT_NS = 10_000  # a call that the profiler makes longer may return behind a shorter kernel
BLOCKING_SHARE = 0.95  # of the launches; a free GPU starts a kernel after its launch has returned


def find_drained(
    waits: Intervals, gap_start_ns: np.ndarray, late_until_ns: np.ndarray, launched_ns: np.ndarray
) -> np.ndarray:
    """(gaps,) mask of those before which the host had waited for all its launches.

    That is so if a wait ended after the launch of the operation before the gap (`launched_ns`), and
    not long before the gap.
    """
    last = np.searchsorted(waits.end_ns, late_until_ns, side="right") - 1
    ended = np.where(last >= 0, waits.end_ns[last], np.iinfo(np.int64).min)
    return (ended >= gap_start_ns - SLACK_NS) & (ended >= launched_ns)


def wait_begin_ns(
    waits: Intervals, gap_start_ns: np.ndarray, late_until_ns: np.ndarray
) -> np.ndarray:
    """(gaps,) ns at which the host began to wait in each gap, or the gap's begin if it was before.

    What the host did in a gap before its first wait is not that wait's fault.
    """
    first = np.searchsorted(waits.end_ns, gap_start_ns - SLACK_NS, side="left")
    begun = waits.start_ns[np.minimum(first, len(waits.start_ns) - 1)]
    wait_ns: np.ndarray = np.clip(begun, gap_start_ns, late_until_ns)
    return wait_ns


def find_awaited(waits: Intervals, returned_ns: np.ndarray) -> np.ndarray:
    """Mask of the times, when a launching call returned, after which a wait soon began."""
    following = np.searchsorted(waits.end_ns, returned_ns, side="left")
    begun = waits.start_ns[np.minimum(following, len(waits.start_ns) - 1)]
    return (following < len(waits.start_ns)) & (begun <= returned_ns + SLACK_NS)


def charge(
    waits: Intervals,
    busy: Intervals,
    gap_start_ns: np.ndarray,
    late_ns: np.ndarray,
    bounds_ns: np.ndarray,
) -> np.ndarray:
    """(gaps,) ns of each gap's lateness that the waits before it account for.

    A wait while the GPU was busy is a debt of its length. Gaps pay it off, oldest first, up to the
    end of the step after the wait's: a single wait could not have hidden what every step does.
    `bounds_ns` are the n + 1 boundaries of the n steps.
    """
    owed_ns = np.concatenate(([0], np.cumsum(busy.ns_within(waits.start_ns, waits.end_ns))))
    # a wait that ends inside a gap, or just before it, began before the gap
    before_ns = owed_ns[np.searchsorted(waits.start_ns, gap_start_ns, side="right")]
    gaps, of_waits = (
        [0, *np.searchsorted(start_ns, bounds_ns[1:-1], side="left").tolist(), len(start_ns)]
        for start_ns in (gap_start_ns, waits.start_ns)
    )
    owed_by = owed_ns[of_waits].tolist()
    paid, carried = np.zeros_like(late_ns), 0
    for (first, end), (owed, owed_then) in zip(pairwise(gaps), pairwise(owed_by), strict=True):
        if end > first:
            owed_so_far = before_ns[first:end] - owed + carried
            paid[first:end] = payments_ns(owed_so_far, late_ns[first:end])
            carried += owed_then - owed - int(paid[first:end].sum())
        carried = min(carried, owed_then - owed)
    return paid


def payments_ns(owed_so_far: np.ndarray, late_ns: np.ndarray) -> np.ndarray:
    """(gaps,) ns that each gap pays of the debts that exist when it begins.

    `owed_so_far` is the sum of all debts made before each gap, paid or not.
    """
    new = owed_so_far.copy()
    new[1:] -= owed_so_far[:-1]
    balance = np.cumsum(new - late_ns)
    left = balance - np.minimum(np.minimum.accumulate(balance), 0)
    paid: np.ndarray = new - left
    paid[1:] += left[:-1]
    return paid


def launches_block(operations: Operations, calls: Calls, rows: np.ndarray) -> bool:
    """Whether launches return only after their kernels have ended, as CUDA_LAUNCH_BLOCKING does.

    `rows` are the operations of the steps. Short kernels are no evidence, nor is a call that
    launches several.
    """
    rows = rows[(operations.kind[rows] == KERNEL) & (operations.call[rows] >= 0)]
    launches = operations.call[rows]
    telling = np.bincount(launches)[launches] == 1
    telling &= operations.end_ns[rows] - operations.start_ns[rows] >= SHORT_NS
    rows, launches = rows[telling], launches[telling]
    returned_late = calls.end_ns[launches] >= operations.end_ns[rows]
    enough = len(rows) >= FEW_LAUNCHES
    return bool(enough and np.mean(returned_late) >= BLOCKING_SHARE)
