"""What waits for the GPU do to the gaps behind them. Called by idle, which has the rules."""

import numpy as np

from profiling.analysis.columns import Intervals, called
from profiling.timeline.trace import Trace

SLACK_NS = 20_000  # clocks of host and GPU differ by some us


def is_to_host(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """Which of these operations copy to the host."""
    name = trace.operations.name[rows]
    return called(trace.names, name, lambda text: "Device-to-Host" in text)


def called_by(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """The row of the call that launched each of these operations; -1: none, or unknown."""
    return np.where(rows >= 0, trace.operations.call[rows], -1)


def drained_by(
    trace: Trace,
    waits: Intervals,
    start_ns: np.ndarray,
    late_end_ns: np.ndarray,
    before: np.ndarray,
) -> np.ndarray:
    """Before which gaps the host had waited for all that it had launched.

    A wait ended after the launch of the operation before the gap, and not long before the gap.
    """
    if not len(waits.start_ns):
        return np.zeros(len(start_ns), bool)
    last = np.searchsorted(waits.end_ns, late_end_ns, side="right") - 1
    ended = np.where(last >= 0, waits.end_ns[last], np.iinfo(np.int64).min)
    previous = called_by(trace, before)
    launched = np.where(previous >= 0, trace.calls.start_ns[previous], start_ns)
    return (ended >= start_ns - SLACK_NS) & (ended >= launched)


def fetched_by(trace: Trace, waits: Intervals, rows: np.ndarray) -> np.ndarray:
    """Which of these operations are copies to the host that one of the waits then waits for."""
    if not len(waits.start_ns):
        return np.zeros(len(rows), bool)
    call = called_by(trace, rows)
    called_at = trace.calls.end_ns[call]
    following = np.searchsorted(waits.end_ns, called_at, side="left")
    begun = waits.start_ns[np.minimum(following, len(waits.start_ns) - 1)]
    soon = (following < len(waits.start_ns)) & (begun <= called_at + SLACK_NS)
    return (call >= 0) & soon & is_to_host(trace, rows)


def charge(
    waits: Intervals, busy: Intervals, gap_start_ns: np.ndarray, late_ns: np.ndarray
) -> np.ndarray:
    """How much of each gap's lateness the waits before it account for.

    A wait while the GPU was busy is a debt of its length; gaps pay it off, oldest first.
    """
    owed = busy.within(waits.start_ns, waits.end_ns)
    until = np.concatenate(([0], np.cumsum(owed)))
    # a wait that ends inside a gap, or just before it, began before the gap
    owed_so_far = until[np.searchsorted(waits.start_ns, gap_start_ns, side="right")]
    new = np.diff(np.concatenate(([0], owed_so_far)))
    balance = np.cumsum(new - late_ns)
    left = balance - np.minimum(np.minimum.accumulate(balance), 0)
    left_before = np.concatenate(([0], left[:-1]))
    return left_before + new - left
