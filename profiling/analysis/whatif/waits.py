"""Find what each call and each operation of a capture waited for. Called by work.

An operation begins at the latest of: its call plus a lag, the end of the operation before it on its
stream plus a lag, and, where neither explains when it began, the end of an operation on another
stream plus a lag. Whichever was the latest keeps its captured lag, so that an unchanged replay
gives the capture back. The others get the short lags that the capture's free operations have.

A call ends when it has done its own work, or a lag behind the end of an operation that it waits
for: its own last one where it returned behind that (blocking copies, and launches if all of them
block, as with CUDA_LAUNCH_BLOCKING); for a call that waits or allocates, the one launched before it
that ended last before it returned. So does a long launch while very many operations are queued: the
queue was full.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiling.analysis.whatif.constants import (
    BEHIND_NS,
    ENOUGH_LAGS,
    FULL_QUEUE,
    HELD_UP_NS,
    LATE_NS,
    LEAST_BLOCK_NS,
    LEAST_WAIT_NS,
    MOST_HOST_LAG_NS,
    MOST_STREAM_LAG_NS,
    NO_WAIT_NS,
    OWN_NS,
    RETURN_NS,
    SLACK_NS,
    USUAL_HOST_LAG_NS,
    USUAL_STREAM_LAG_NS,
)

NEVER = -np.inf
MOST_LOOKED_AT = 256  # operations that are asked for each wait, the last to end first


@dataclass(frozen=True)
class Timeline:
    """Begins and ends of calls and operations, in float64 ns from the begin of the first step.

    Operations are in the order of their launch.
    """

    call_start_ns: np.ndarray
    call_end_ns: np.ndarray
    first: np.ndarray  # (calls + 1,): the first operation of each call
    start_ns: np.ndarray
    end_ns: np.ndarray
    call: np.ndarray  # that launched the operation
    stream: np.ndarray  # from 0 on
    by_stream: np.ndarray  # (operations,): all of one stream, then all of the next
    earlier_ns: np.ndarray  # (streams,): end of what ran before the first; NEVER: nothing is known

    @cached_property
    def begun_ns(self) -> np.ndarray:
        """(operations,): begin of the call."""
        begun: np.ndarray = self.call_start_ns[self.call]
        return begun

    @cached_property
    def is_first(self) -> np.ndarray:
        """(operations,): whether it is the first that its call launched."""
        first: np.ndarray = np.diff(self.call, prepend=-1) != 0
        return first

    @cached_property
    def previous_ns(self) -> np.ndarray:
        """(operations,): end of the one before it on its stream."""
        ordered = self.end_ns[self.by_stream]
        previous = np.concatenate(([NEVER], ordered[:-1]))
        stream = self.stream[self.by_stream]
        fresh = np.flatnonzero(np.diff(stream, prepend=-1))
        previous[fresh] = self.earlier_ns[stream[fresh]]
        placed = np.empty_like(previous)
        placed[self.by_stream] = previous
        return placed

    @cached_property
    def by_end(self) -> np.ndarray:
        return np.argsort(self.end_ns, kind="stable")

    @cached_property
    def ends_ns(self) -> np.ndarray:
        """(operations,): all ends, ascending."""
        ends: np.ndarray = self.end_ns[self.by_end]
        return ends


@dataclass(frozen=True)
class Lags:
    """Lags of each operation behind what it waits for, in ns."""

    host_ns: np.ndarray  # behind the begin of its call
    stream_ns: np.ndarray  # behind the end of the one before it on its stream
    other: np.ndarray  # a third operation; -1: none
    other_ns: np.ndarray  # behind the end of `other`


def operation_lags(timeline: Timeline, is_kernel: np.ndarray) -> Lags:
    begun, previous = timeline.begun_ns, timeline.previous_ns
    host, stream = timeline.start_ns - begun, timeline.start_ns - previous
    free = timeline.is_first & (previous < begun) & is_kernel & (host < MOST_HOST_LAG_NS)
    queued = previous > timeline.call_end_ns[timeline.call] + RETURN_NS
    queued &= (stream >= 0) & (stream < MOST_STREAM_LAG_NS)
    usual = short_lag(host[free], USUAL_HOST_LAG_NS)
    short_host = np.minimum(usual, host)
    short_stream = np.minimum(short_lag(stream[queued], USUAL_STREAM_LAG_NS), stream)
    other, other_lag = third_operations(timeline, np.maximum(begun + short_host, previous))
    by_stream = (previous >= begun + usual) | ~timeline.is_first
    host = np.where(by_stream | (other >= 0), short_host, host)
    stream = np.where(by_stream & (other < 0), stream, short_stream)
    stream[previous == NEVER] = 0
    return Lags(host, stream, other, other_lag)


def short_lag(lag_ns: np.ndarray, usual_ns: int) -> int:
    return int(np.quantile(lag_ns, 0.25)) if len(lag_ns) >= ENOUGH_LAGS else usual_ns


def third_operations(timeline: Timeline, ready_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(operation on another stream that each one waited for or -1, lag behind its end).

    `ready_ns` is when the call and the stream let it begin.
    """
    other, lag = np.full(len(ready_ns), -1), np.zeros(len(ready_ns))
    if len(timeline.earlier_ns) < 2:
        return other, lag
    late = np.flatnonzero((timeline.start_ns - ready_ns > LATE_NS) & timeline.is_first)
    start, stream, ready = timeline.start_ns[late], timeline.stream[late], ready_ns[late]
    place = np.searchsorted(timeline.ends_ns, start + BEHIND_NS, side="right") - 1

    def ends_search(row: np.ndarray, operation: np.ndarray) -> np.ndarray:
        fits = (operation < late[row]) & (timeline.stream[operation] != stream[row])
        done: np.ndarray = fits | (timeline.end_ns[operation] <= ready[row])
        return done

    found = search_back(timeline.by_end, place, ends_search)
    found = np.where(timeline.end_ns[found] > ready, found, -1)
    rows = np.flatnonzero(found >= 0)
    other[late[rows]] = found[rows]
    lag[late[rows]] = start[rows] - timeline.end_ns[found[rows]]
    return other, lag


def awaited_operations(
    timeline: Timeline,
    launches: np.ndarray,
    waits: np.ndarray,
    allocates: np.ndarray,
    *,
    launches_block: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(operation that each call waited for or -1, lag behind its end, the call's own time) in ns.

    The three masks say what kind of call each is. All launches of a process block or none does: a
    slow one may return behind a short kernel without having waited for it.
    """
    start, end, first = timeline.call_start_ns, timeline.call_end_ns, timeline.first
    took = end - start
    awaited, lag = np.full(len(start), -1), np.zeros(len(start))
    own = np.flatnonzero(
        (first[1:] > first[:-1]) & (took > LEAST_BLOCK_NS) & (launches_block | ~launches)
    )
    last = first[own + 1] - 1
    blocked = end[own] >= timeline.end_ns[last] - SLACK_NS
    own, last = own[blocked], last[blocked]
    awaited[own], lag[own] = last, end[own] - timeline.end_ns[last]

    queued = first[:-1] - np.searchsorted(np.sort(timeline.start_ns), start)
    candidate = (waits | allocates) & (took > LEAST_WAIT_NS)
    candidate |= launches & (took > HELD_UP_NS) & (queued >= FULL_QUEUE)
    candidate &= (awaited < 0) & (first[:-1] > 0)
    rows = np.flatnonzero(candidate)
    place = np.searchsorted(timeline.ends_ns, end[rows] + SLACK_NS, side="right") - 1
    found = search_back(timeline.by_end, place, lambda row, k: k < first[rows[row]])
    rows, found = rows[found >= 0], found[found >= 0]
    waited = timeline.end_ns[found] > start[rows] - SLACK_NS
    awaited[rows[waited]] = found[waited]
    lag[rows[waited]] = end[rows[waited]] - timeline.end_ns[found[waited]]
    # it found the GPU done, which a faster host may not
    rows, found = rows[~waited & waits[rows]], found[~waited & waits[rows]]
    latest = first[rows] - 1
    awaited[rows] = np.where(timeline.end_ns[latest] <= end[rows], latest, found)
    lag[rows] = np.minimum(took[rows], NO_WAIT_NS)
    held = (awaited >= 0) & (timeline.end_ns[awaited] > start)
    return awaited, lag, np.where(held, np.minimum(took, OWN_NS), took)


def search_back(
    by_end: np.ndarray, place: np.ndarray, accepts: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """(places,) the operation that ended last up to each place in `by_end` and is accepted, or -1.

    `accepts` is asked with numbers of places and with the operations there. At most MOST_LOOKED_AT
    operations are tried for each place, so that a file with an impossible order ends, too.
    """
    found, row = np.full(len(place), -1), np.arange(len(place))
    for _ in range(MOST_LOOKED_AT):
        row = row[place[row] >= 0]
        if not len(row):
            break
        operation = by_end[place[row]]
        good = accepts(row, operation)
        found[row[good]] = operation[good]
        row = row[~good]
        place[row] -= 1
    return found
