"""Replay of a Work: when each operation ends, and how long a step takes round and round.

The host goes through its calls: it thinks, is in the call, and returns from one that waits no
sooner than a lag behind the end of what it waits for. An operation begins at the latest of what it
waits for (waits.Lags).

Nothing goes through the operations one by one. Without waits the host's times are sums, and the
ends on a stream are a running maximum: end[k] = max(ready[k], end[k-1] + lag[k]) + took[k], and
with level = cumsum(lag + took) that is end[k] - level[k] = max over j <= k of (ready[j] + took[j] -
level[j]). So operations are taken in runs, which are cut where the host has waited, where one waits
for another stream, and behind one that is waited for. Of each run the maximum is known beforehand;
a loop over runs and waits, in the order of launches, adds how late the host is by then.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.whatif.waits import NEVER
from profiling.analysis.whatif.work import Work

ROUNDS = 4  # of the cycle; the last one counts
STEADY_NS = 0.01  # rounds that differ by less are the same


@dataclass(frozen=True)
class Schedule:
    """Runs of operations, and the calls that wait, in the order of their launch.

    The lists have an entry for each of both. All works in which the same wait for the same, however
    long it takes, have the same schedule.
    """

    stream: list[int]  # of a run; -1: a wait
    # the run at whose end lies what a run or a wait waits for; counted on for the round before, and
    # behind both for nothing
    target: list[int]
    start: NDArray[np.intp]  # (runs,) stream by stream: the first operation
    run_place: NDArray[np.intp]  # (runs,) stream by stream: where each is in the lists
    waiting: NDArray[np.intp]  # the calls that wait
    wait_place: NDArray[np.intp]  # where they are in the lists
    third: NDArray[np.intp]  # the operations that wait for another stream
    third_row: NDArray[np.intp]  # they, stream by stream
    third_place: NDArray[np.intp]  # where the runs that begin with them are in the lists
    streams: NDArray[np.intp]  # (streams,) stream by stream: the first operation


@dataclass(frozen=True)
class Levels:
    """Times of a schedule, as the levels of the module's docstring, counted on through streams."""

    add_ns: list[float]  # to an awaited end, for the level of a run or the lateness of the host
    top_ns: list[float]  # highest level of a run if its calls are on time and nothing is before it
    end_ns: list[float]  # level at the end of each run
    ahead_ns: np.ndarray  # (operations,) stream by stream: level of each by its call alone
    level_ns: np.ndarray  # (operations,) stream by stream
    before_ns: np.ndarray  # (streams,): level before the first operation
    total_ns: np.ndarray  # (streams,): of all operations
    host_ns: float  # the host's own time


@dataclass(frozen=True)
class Round:
    host_ns: float  # when the host has come to the end
    tail_ns: np.ndarray  # (streams,): end of the last operation
    ends_ns: list[float]  # of the runs, as all lists of the schedule
    seeds_ns: list[float]  # level of each run's stream before it
    late_ns: list[float]  # of the host at each run


def replayed_ends(work: Work) -> NDArray[np.float64]:
    """(operations,) when each ends, in ns from the window's begin, replayed once as captured."""
    schedule = schedule_of(work)
    levels = levels_of(work, schedule)
    begin_ns = float(work.host.start_ns[0] - work.host.think_ns[0])
    nothing = [NEVER] * len(schedule.stream)
    once = play(schedule, levels, begin_ns, work.earlier_ns, nothing)
    length = np.diff(schedule.start, append=len(levels.ahead_ns))
    reached = levels.ahead_ns + np.repeat(np.array(once.late_ns)[schedule.run_place], length)
    seeds = np.array(once.seeds_ns)[schedule.run_place]
    reached[schedule.start] = np.maximum(reached[schedule.start], seeds)
    ends = np.empty(len(reached))
    for rows, of_stream in zip(
        np.split(work.by_stream, schedule.streams[1:]),
        np.split(reached, schedule.streams[1:]),
        strict=True,
    ):
        ends[rows] = np.maximum.accumulate(of_stream)
    ends[work.by_stream] += levels.level_ns
    return ends


def steady_ms(cycle: Work, schedule: Schedule) -> float:
    """Milliseconds of a step, replayed ROUNDS times: of the last round, by the GPU or the host."""
    levels = levels_of(cycle, schedule)
    nothing = [NEVER] * len(schedule.stream)
    latest = play(schedule, levels, 0.0, np.full_like(levels.before_ns, NEVER), nothing)
    step_ns, state = 0.0, relative_state(latest)
    for _ in range(ROUNDS - 1):
        before = latest
        latest = play(schedule, levels, before.host_ns, before.tail_ns, before.ends_ns)
        step_ns = latest.host_ns - before.host_ns
        if (gpu_ns := latest.tail_ns.max()) > NEVER and before.tail_ns.max() > NEVER:
            step_ns = max(step_ns, gpu_ns - before.tail_ns.max())
        previous, state = state, relative_state(latest)
        if np.allclose(state, previous, rtol=0, atol=STEADY_NS):
            break  # and so are all rounds from here on
    return float(step_ns) / 1e6 / cycle.steps


def relative_state(latest: Round) -> NDArray[np.float64]:
    """Times that the next round depends on, from the host's end on."""
    return np.concatenate((latest.tail_ns, latest.ends_ns)) - latest.host_ns


def play(
    schedule: Schedule,
    levels: Levels,
    begin_ns: float,
    tail_ns: np.ndarray,
    before_ns: list[float],
) -> Round:
    """One round. The host begins at `begin_ns`, the last operation of each stream ended at
    `tail_ns`, and the runs of the round before at `before_ns`."""
    late, count = begin_ns, len(schedule.stream)
    ends = [NEVER] * count + before_ns + [NEVER]
    seeds, lates = [], []
    reached = (tail_ns - levels.before_ns).tolist()
    numbers = (schedule.stream, schedule.target, levels.add_ns, levels.top_ns, levels.end_ns)
    for place, (stream, target, add, top, end) in enumerate(zip(*numbers, strict=True)):
        seed = ends[target] + add
        if stream < 0:
            late = seed if seed > late else late
        else:
            seed = reached[stream] if reached[stream] > seed else seed
            level = top + late if top + late > seed else seed
            reached[stream] = level
            ends[place] = level + end
        seeds.append(seed)
        lates.append(late)
    tail = np.array(reached) + levels.before_ns + levels.total_ns
    return Round(levels.host_ns + late, tail, ends[:count], seeds, lates)


def schedule_of(work: Work) -> Schedule:
    awaited, other, ordered = work.host.awaited, work.gpu.other, work.by_stream
    place = np.empty_like(ordered)
    place[ordered] = np.arange(len(ordered))
    waiting, third = np.flatnonzero(awaited >= 0), np.flatnonzero(other >= 0)
    start = run_starts(work, place, waiting, np.concatenate((awaited[waiting], other[third])))
    launch = np.concatenate((2 * ordered[start], 2 * work.first[waiting + 1] - 1))
    order = np.argsort(launch, kind="stable")
    where = np.empty_like(order)
    where[order] = np.arange(len(order))
    run_place, wait_place = np.split(where, [len(start)])
    third_place = run_place[np.searchsorted(start, place[third])]
    target = np.full(len(order), 2 * len(order))
    for rows, operation, next_launch in (
        (third_place, other[third], third),
        (wait_place, awaited[waiting], work.first[waiting + 1]),
    ):
        run = np.searchsorted(start, place[operation], side="right") - 1
        target[rows] = run_place[run] + len(order) * (operation >= next_launch)
    stream = np.full(len(order), -1)
    stream[run_place] = work.gpu.stream[ordered[start]]
    streams = np.flatnonzero(np.diff(work.gpu.stream[ordered], prepend=-1))
    return Schedule(
        stream.tolist(),
        target.tolist(),
        start,
        run_place,
        waiting,
        wait_place,
        third,
        place[third],
        third_place,
        streams,
    )


def levels_of(work: Work, schedule: Schedule) -> Levels:
    host, gpu, ordered = work.host, work.gpu, work.by_stream
    lengths = (gpu.took_ns + gpu.stream_lag_ns)[ordered]
    level = np.cumsum(lengths)
    returned = np.cumsum(host.think_ns + host.took_ns)
    ready = (returned - host.took_ns)[gpu.call] + gpu.host_lag_ns + gpu.took_ns
    ahead = ready[ordered] - level
    start, third, waiting = schedule.start, schedule.third, schedule.waiting
    add, top, end = np.zeros((3, len(schedule.stream)))
    top[schedule.run_place] = np.maximum.reduceat(ahead, start)
    end[schedule.run_place] = level[np.append(start[1:], len(level)) - 1]
    add[schedule.wait_place] = host.wait_lag_ns[waiting] - returned[waiting]
    add[schedule.third_place] = (gpu.other_lag_ns + gpu.took_ns)[third]
    add[schedule.third_place] -= level[schedule.third_row]
    before, total = np.zeros((2, len(work.earlier_ns)))
    stream = gpu.stream[ordered[schedule.streams]]
    before[stream] = (level - lengths)[schedule.streams]
    total[stream] = np.add.reduceat(lengths, schedule.streams)
    return Levels(
        add.tolist(), top.tolist(), end.tolist(), ahead, level, before, total, float(returned[-1])
    )


def run_starts(
    work: Work, place: np.ndarray, waiting: np.ndarray, targets: np.ndarray
) -> NDArray[np.intp]:
    """(runs,) first operation of each, stream by stream; `targets` are those that are awaited."""
    gpu, ordered = work.gpu, work.by_stream
    cut = np.zeros(len(ordered) + 1, bool)
    cut[0] = True
    stream = gpu.stream[ordered]
    cut[1:-1] = stream[1:] != stream[:-1]
    cut[place[gpu.other >= 0]] = True
    cut[place[targets] + 1] = True
    waited = np.bincount(work.first[waiting + 1], minlength=len(ordered) + 1)
    waited = np.cumsum(waited)[ordered]  # calls that had waited when each operation was launched
    cut[1:-1] |= waited[1:] != waited[:-1]
    return np.flatnonzero(cut[:-1])
