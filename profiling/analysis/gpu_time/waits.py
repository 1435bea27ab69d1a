"""What waits for the GPU do to the gaps behind them. Called by idle, which has the rules."""

import numpy as np

from profiling.analysis.columns import Intervals

SLACK_NS = 20_000  # clocks of host and GPU differ by some us


def find_drained(
    waits: Intervals, gap_start_ns: np.ndarray, late_until_ns: np.ndarray, launched_ns: np.ndarray
) -> np.ndarray:
    """Before which gaps the host had waited for all that it had launched.

    A wait ended after the launch of the operation before the gap (`launched_ns`), and not long
    before the gap.
    """
    if not len(waits.start_ns):
        return np.zeros(len(gap_start_ns), bool)
    last = np.searchsorted(waits.end_ns, late_until_ns, side="right") - 1
    ended = np.where(last >= 0, waits.end_ns[last], np.iinfo(np.int64).min)
    return (ended >= gap_start_ns - SLACK_NS) & (ended >= launched_ns)


def first_begun(
    waits: Intervals, gap_start_ns: np.ndarray, late_until_ns: np.ndarray
) -> np.ndarray:
    """Since when the host has waited in each gap, (gaps,) ns; the gap's begin where it did before.

    What the host did in a gap before its first wait is not that wait's fault.
    """
    if not len(waits.start_ns):
        return gap_start_ns
    first = np.searchsorted(waits.end_ns, gap_start_ns - SLACK_NS, side="left")
    begun = waits.start_ns[np.minimum(first, len(waits.start_ns) - 1)]
    return np.clip(begun, gap_start_ns, late_until_ns)


def find_awaited(waits: Intervals, returned_ns: np.ndarray) -> np.ndarray:
    """After which of these times, when a launching call returned, one of the waits soon began."""
    if not len(waits.start_ns):
        return np.zeros(len(returned_ns), bool)
    following = np.searchsorted(waits.end_ns, returned_ns, side="left")
    begun = waits.start_ns[np.minimum(following, len(waits.start_ns) - 1)]
    return (following < len(waits.start_ns)) & (begun <= returned_ns + SLACK_NS)


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
