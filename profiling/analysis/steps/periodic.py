"""Find steps in a capture that names none: launches that come again in the same order.

Called by find. The smallest period of the sequence of launches that explains it is the step. The
blocks of a model repeat too, within a step: so a period has to explain the sequence from its first
launch to its last, or to hold a copy between host and GPU, which is a batch or a result. Where a
capture begins and ends between the blocks of one step, nothing tells them apart from steps; the
report's health says so.
"""

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.columns import name_mask
from profiling.analysis.steps.steps import Steps
from profiling.timeline.trace import Trace

STEP_NAME = "repeated launches"
FEWEST_STEPS = 3
ALIKE = 0.9  # of a period's launches: a step may launch something that the next one does not
COVERED = 0.5  # of all launches, and of their time: the rest may be a warm-up
LIKELY = 0.4  # of the launches are equal at this distance, as estimated: worth looking at
MOST_TRIED = 200  # distances that are looked at, the shortest first
FEWEST_LAUNCHES = 3  # of a step


def periodic_steps(
    trace: Trace, process: int | None, device: int | None, thread: int | None
) -> Steps | None:
    """Steps of equal launches, or None where calls are not captured or nothing repeats."""
    operations, calls = trace.operations, trace.calls
    if operations is None or calls is None:
        return None
    mine = (operations.process == process) & (operations.device == device) & (operations.call >= 0)
    call = operations.call[mine]
    order = np.argsort(calls.start_ns[call], kind="stable")
    name, call = operations.name[mine][order], call[order]
    brings = name_mask(trace.names, name, lambda name: "Host" in name and "memcpy" in name)
    found = repetition(name, brings)
    if found is None:
        return None
    first, behind, period = found
    launched_ns = calls.start_ns[call]
    if launched_ns[behind - 1] - launched_ns[first] < COVERED * (launched_ns[-1] - launched_ns[0]):
        return None
    begun, ended = launched_ns[first:behind], calls.end_ns[call[first:behind]]
    quiet = begun - np.concatenate((begun[:1], np.maximum.accumulate(ended)[:-1]))
    whole = len(begun) // period * period
    # a step begins where the host launches nothing for longest: at its loader or its wait
    offset = int(np.argmax(np.median(quiet[:whole].reshape(-1, period), axis=0)))
    starts = begun[offset::period]
    count = (len(begun) - offset) // period
    if count < FEWEST_STEPS:
        return None
    last = ended[offset : offset + count * period].max()
    ends = np.append(starts[1:], last)[:count]
    return Steps(process, device, thread, STEP_NAME, None, starts[:count], ends.astype(np.int64))


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
        covers_enough = behind - first >= COVERED * len(name)
        if explains_all or (covers_enough and brings[first : first + period].any()):
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
