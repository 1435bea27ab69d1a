"""Measure how far ahead of the GPU the host was. Called by summary.

A launch waits from the end of its call until the first of its operations begins; one that began
before its call had returned has not waited. A CUDA graph is one launch, on the stream on which it
begins.
"""

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import ascending, distinct
from profiling.analysis.records import LaunchQueue

PERCENTILES = (5, 50, 95)


def launch_queue(analysis: Analysis) -> LaunchQueue | None:
    """The launch queue in the steps, or None where no operation's launch is known."""
    owned, calls = analysis.owned, analysis.trace.calls
    if owned is None or calls is None or not np.any(owned.call >= 0):
        return None
    stream = owned.operations.stream[owned.row]
    busiest = busiest_stream(stream, owned.duration_ns)
    first = first_of_calls(owned.call, len(calls.start_ns))
    launched_ns, begun_ns = owned.returned_ns[first], owned.start_ns[first]
    waited_ns = np.maximum(begun_ns - launched_ns, 0)
    short_us, median_us, long_us = (np.percentile(waited_ns, PERCENTILES) / 1e3).tolist()
    waiting = (stream[first] == busiest) & (waited_ns > 0)
    launched_ns, begun_ns = (
        np.clip(times[waiting], analysis.begin_ns, analysis.end_ns)
        for times in (launched_ns, begun_ns)
    )
    wall_ns = max(1, analysis.end_ns - analysis.begin_ns)
    return LaunchQueue(
        stream=busiest,
        # Little's law: the mean number that wait is their total waiting time over the wall time
        mean_length=int((begun_ns - launched_ns).sum()) / wall_ns,
        max_length=most_at_once(launched_ns, begun_ns),
        short_us=short_us,
        median_us=median_us,
        long_us=long_us,
    )


def busiest_stream(stream: np.ndarray, duration_ns: np.ndarray) -> int:
    """The stream whose operations took longest in total."""
    streams = distinct(stream)
    return int(max(streams, key=lambda each: int(duration_ns[stream == each].sum())))


def first_of_calls(call: np.ndarray, calls: int) -> np.ndarray:
    """The rows that are the first of their call, ascending; -1 in `call` is an unknown call.

    `calls` is the number of calls.
    """
    row, rows = np.full(calls + 1, -1), np.arange(len(call))
    row[call[::-1]] = rows[::-1]  # reversed, so that the first row is written last
    return np.flatnonzero((call >= 0) & (row[call] == rows))


def most_at_once(begin_ns: np.ndarray, end_ns: np.ndarray) -> int:
    """The largest number of intervals that are open at the same time."""
    begun = ascending(begin_ns)
    ended = np.searchsorted(ascending(end_ns), begun, side="right")
    return int((np.arange(1, len(begun) + 1) - ended).max(initial=0))
