"""Find steps in a capture that names none: launches that come again in the same order.

Called by find. The smallest period of the sequence of launches that explains it is the step. The
blocks of a model repeat too, within a step: so a period has to explain the sequence from its first
launch to its last, or to hold a copy between host and GPU, which is a batch or a result. Where a
capture begins and ends between the blocks of one step, nothing tells them apart from steps; the
report's health says so.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.columns import name_mask
from profiling.analysis.steps.steps import Steps
from profiling.timeline.trace import Ranges, Trace

STEP_NAME = "repeated launches"
FEWEST_STEPS = 3
ALIKE = 0.9  # of a period's launches: a step may launch something that the next one does not
COVERED = 0.5  # of all launches, and of their time: the rest may be a warm-up
UNUSUAL = 1.5  # medians: a longer step may hold something between two steps
UNBROKEN = 0.3  # of all launches without a step that differs, such as one that logs
LIKELY = 0.4  # of the launches are equal at this distance, as estimated: worth looking at
MOST_TRIED = 200  # distances that are looked at, the shortest first
FEWEST_LAUNCHES = 3  # of a step
MOST_RANGES = 8  # long ranges that are looked into, outermost first


def periodic_steps(
    trace: Trace, process: int | None, device: int | None, thread: int | None
) -> Steps | None:
    """Steps of equal launches, or None where calls are not captured or nothing repeats."""
    operations, calls = trace.operations, trace.calls
    if operations is None or calls is None:
        return None
    mine = (operations.process == process) & (operations.device == device)
    rows = np.flatnonzero(mine & (operations.call >= 0))
    rows = rows[np.argsort(calls.start_ns[operations.call[rows]], kind="stable")]
    name, call = operations.name[rows], operations.call[rows]
    begun, ended = calls.start_ns[call], calls.end_ns[call]
    brings = name_mask(trace.names, name, lambda name: "Host" in name and "memcpy" in name)
    for part in parts(trace.ranges, process, begun):
        if found := repetition(name[part], brings[part]):
            first = first_launches(name[part], begun[part], ended[part], *found)
            starts = begun[part][first[:-1]]
            ends = np.append(starts[1:], ended[part][first[-1:] - 1])[: len(starts)]
            if covers_enough(operations.start_ns[rows][part], first, operations.start_ns[mine]):
                return Steps(process, device, thread, STEP_NAME, None, starts, ends)
    return None


def parts(ranges: Ranges | None, process: int | None, begun: np.ndarray) -> Iterator[slice]:
    """Yield the parts of the launches in which steps may lie: all, and those of a long range.

    A program may mark only the loop that it measures. `begun` are the times of the launches.
    """
    yield slice(0, len(begun))
    if ranges is None or not len(begun):
        return
    length_ns = ranges.end_ns - ranges.start_ns
    long = (ranges.process == process) & (length_ns >= COVERED * (begun[-1] - begun[0]))
    for row in np.flatnonzero(long)[:MOST_RANGES].tolist():
        first, behind = np.searchsorted(begun, (ranges.start_ns[row], ranges.end_ns[row]))
        yield slice(int(first), int(behind))


def first_launches(
    name: np.ndarray, begun: np.ndarray, ended: np.ndarray, first: int, behind: int, period: int
) -> NDArray[np.intp]:
    """(steps + 1,) row of the first launch of each step, and the row behind the last step.

    The launches [first, behind) repeat with this period. A step begins where the host launches
    nothing for longest, at its loader or its wait, and wherever the same launches begin again: so a
    step that also logs is one, too.
    """
    quiet = begun[first + 1 : behind] - np.maximum.accumulate(ended[first:behind])[:-1]
    whole = len(quiet) // period * period
    offset = int(np.argmax(np.median(quiet[:whole].reshape(-1, period), axis=0))) + 1
    step = name[first + offset : first + offset + period]
    again, length = np.flatnonzero(name == step[0]), 1
    cyclic = np.concatenate((step, step))
    once = np.flatnonzero(step == step[0])
    while length < period and len(once) > 1:
        once = once[cyclic[once + length] == step[length]]
        again = again[again + length < len(name)]
        again = again[name[again + length] == step[length]]
        length += 1
    last = int(again[-1]) + period if len(again) else 0
    return np.append(again, last) if last <= len(name) else again


def covers_enough(ran_ns: np.ndarray, first: NDArray[np.intp], all_ns: np.ndarray) -> bool:
    """Whether there are enough steps of about equal length, by number and by time on the GPU.

    `ran_ns` has the start of each launch's operation, `all_ns` those of all on the GPU.
    """
    took_ns = np.diff(ran_ns[first[:-1]])
    if len(took_ns) < FEWEST_STEPS - 1:
        return False
    median = np.median(took_ns)
    usual = took_ns <= UNUSUAL * median
    covered_ns = took_ns[usual].sum() + median  # of the last one, only its begin is known
    return bool(covered_ns >= COVERED * (all_ns.max() - all_ns.min()))


def repetition(name: NDArray[np.int32], brings: NDArray[np.bool_]) -> tuple[int, int, int] | None:
    """(first launch, the one behind the last, period) of the part that repeats, or None.

    `brings` is a mask of the copies between host and GPU.
    """
    if np.count_nonzero(name[1:] == name[:-1]) >= ALIKE * (len(name) - 1):
        return None  # one kernel again and again has every period
    for period in likely_periods(name):
        same = name[:-period] == name[period:]
        first, behind = longest_run(same, period)
        behind += period
        if (behind - first) // period < FEWEST_STEPS:
            continue
        explains_all = first == 0 and behind == len(name)
        much = behind - first >= UNBROKEN * len(name)
        if explains_all or (much and brings[first : first + period].any()):
            return first, behind, period
    return None


def likely_periods(name: NDArray[np.int32]) -> list[int]:
    """Distances at which many launches are equal, ascending.

    Each name becomes a random number of length 1, so that the product of two is 1 where they are
    equal and 0 on average where they differ; the sum of products at all distances is a convolution.
    """
    most = len(name) // FEWEST_STEPS
    if most < FEWEST_LAUNCHES:
        return []
    turns = np.random.default_rng(0).random(int(name.max()) + 1)
    signal = np.exp(2j * np.pi * turns[name])
    size = 1 << (2 * len(name) - 1).bit_length()
    spectrum = np.fft.fft(signal, size)
    equal = np.fft.ifft(spectrum * spectrum.conj()).real[: most + 1] / len(name)
    equal[:FEWEST_LAUNCHES] = 0
    peak = np.zeros(len(equal), bool)
    peak[1:-1] = (equal[1:-1] >= equal[:-2]) & (equal[1:-1] >= equal[2:])
    peak[-1] = True
    chosen: list[int] = np.flatnonzero(peak & (equal >= LIKELY))[:MOST_TRIED].tolist()
    return chosen


def longest_run(same: NDArray[np.bool_], period: int) -> tuple[int, int]:
    """(first, behind) of the longest run in which each period has ALIKE of `same`.

    The run begins and ends with launches that are the same.
    """
    until = np.concatenate(([0], np.cumsum(same)))
    width = min(period, len(same))
    alike = (until[width:] - until[:-width] >= ALIKE * width).astype(np.int8)
    edges = np.flatnonzero(np.diff(alike, prepend=0, append=0))
    if not len(edges):
        return 0, 0
    longest = int(np.argmax(edges[1::2] - edges[::2]))
    first, behind = int(edges[2 * longest]), int(edges[2 * longest + 1]) - 1 + width
    inside = np.flatnonzero(same[first:behind])
    return first + int(inside[0]), first + int(inside[-1]) + 1
