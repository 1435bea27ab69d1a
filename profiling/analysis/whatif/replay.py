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

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.whatif.waits import NEVER
from profiling.analysis.whatif.work import Work

ROUNDS = 4  # of the cycle; the last one counts
WARM_UP = 8  # part of the cycle, to begin with: one over this
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
    carried: NDArray[np.intp]  # where the runs are in the lists that the next round waits for


@dataclass(frozen=True)
class HostTimes:
    """Times of a schedule that hang on the host alone."""

    begun_ns: np.ndarray  # (operations,) stream by stream: begin by their calls alone
    add_ns: np.ndarray  # (waits,) to an awaited end, for the lateness of the host
    total_ns: float  # of all calls and the times between


@dataclass(frozen=True)
class GpuTimes:
    """Times of a schedule that hang on the GPU alone, as the levels of the module's docstring,
    counted on through streams."""

    level_ns: np.ndarray  # (operations,) stream by stream
    ahead_ns: np.ndarray  # (operations,) likewise: the operation's time less its level
    add_ns: np.ndarray  # (thirds,) to an awaited end, for the level of a run
    end_ns: list[float]  # level at the end of each run, in the lists
    before_ns: np.ndarray  # (streams,): level before the first operation
    total_ns: np.ndarray  # (streams,): of all operations


@dataclass(frozen=True)
class Levels:
    """Times of a schedule with one host and one GPU."""

    add_ns: list[float]  # to an awaited end, for the level of a run or the lateness of the host
    top_ns: list[float]  # highest level of a run if its calls are on time and nothing is before it
    ahead_ns: np.ndarray  # (operations,) stream by stream: level of each by its call alone
    host: HostTimes
    gpu: GpuTimes


@dataclass(frozen=True)
class Round:
    host_ns: float  # when the host has come to the end
    tail_ns: np.ndarray  # (streams,): end of the last operation
    ends_ns: list[float]  # of the runs, as all lists of the schedule
    # level of each run's stream before it, and how late the host is; empty if not asked for
    seeds_ns: list[float] = field(default_factory=list)
    late_ns: list[float] = field(default_factory=list)


def replayed_ends(work: Work) -> NDArray[np.float64]:
    """(operations,) when each ends, in ns from the window's begin, replayed once as captured."""
    schedule = schedule_of(work)
    levels = levels_of(host_times(work, schedule), gpu_times(work, schedule), schedule)
    begin_ns = float(work.host.start_ns[0] - work.host.think_ns[0])
    before = Round(begin_ns, work.earlier_ns, [NEVER] * len(schedule.stream))
    once = play(schedule, levels, before, with_all=True)
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
    ends[work.by_stream] += levels.gpu.level_ns
    return ends


def steady_ms(cycle: Work) -> float:
    """Milliseconds of a step of the cycle, replayed round and round."""
    schedule = schedule_of(cycle)
    return (
        steady_round_ms(host_times(cycle, schedule), gpu_times(cycle, schedule), schedule)
        / cycle.steps
    )


def steady_round_ms(host: HostTimes, gpu: GpuTimes, schedule: Schedule) -> float:
    """Milliseconds of the last of ROUNDS rounds, by the GPU or the host.

    Where a round ends as the last part alone does, all later ones would be like it.
    """
    levels = levels_of(host, gpu, schedule)
    count = len(schedule.stream)
    nothing = Round(0.0, np.full_like(gpu.before_ns, NEVER), [NEVER] * count)
    before = play(schedule, levels, nothing, first=count - count // WARM_UP)
    latest = play(schedule, levels, before)
    if not ends_alike(schedule, before, latest):
        latest = play(schedule, levels, nothing)
        for _ in range(ROUNDS - 1):
            before, latest = latest, play(schedule, levels, latest)
            if ends_alike(schedule, before, latest):
                break
    round_ns = latest.host_ns - before.host_ns
    if (gpu_ns := latest.tail_ns.max()) > NEVER and before.tail_ns.max() > NEVER:
        round_ns = max(round_ns, gpu_ns - before.tail_ns.max())
    return float(round_ns) / 1e6


def ends_alike(schedule: Schedule, one: Round, other: Round) -> bool:
    """Whether the rounds behind both will be alike."""
    state, same = relative_state(schedule, one), relative_state(schedule, other)
    return np.allclose(state, same, rtol=0, atol=STEADY_NS)


def relative_state(schedule: Schedule, latest: Round) -> NDArray[np.float64]:
    """Times that the next round depends on, from the host's end on."""
    ends_ns = [latest.ends_ns[place] for place in schedule.carried.tolist()]
    return np.concatenate((latest.tail_ns, ends_ns)) - latest.host_ns


def play(
    schedule: Schedule, levels: Levels, before: Round, *, first: int = 0, with_all: bool = False
) -> Round:
    """The round behind another, or what is left of it from the entry `first` on. `with_all` keeps
    what each run met."""
    late, count = before.host_ns, len(schedule.stream)
    ends = [NEVER] * count + before.ends_ns + [NEVER]
    seeds, lates = [], []
    gpu = levels.gpu
    reached = (before.tail_ns - gpu.before_ns).tolist()
    numbers = (schedule.stream, schedule.target, levels.add_ns, levels.top_ns, gpu.end_ns)
    left = (column[first:] if first else column for column in numbers)
    for place, stream, target, add, top, end in zip(range(first, count), *left, strict=True):
        if stream < 0:
            seed = ends[target] + add
            if seed > late:
                late = seed
        else:
            seed = reached[stream]
            if target < 2 * count and (third := ends[target] + add) > seed:
                seed = third
            level = top + late
            if seed > level:
                level = seed
            reached[stream] = level
            ends[place] = level + end
        if with_all:
            seeds.append(seed)
            lates.append(late)
    tail = np.array(reached) + gpu.before_ns + gpu.total_ns
    return Round(levels.host.total_ns + late, tail, ends[:count], seeds, lates)


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
    carried = np.unique(target[(target >= len(order)) & (target < 2 * len(order))]) - len(order)
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
        carried,
    )


def host_times(work: Work, schedule: Schedule) -> HostTimes:
    host, gpu, waiting = work.host, work.gpu, schedule.waiting
    returned = np.cumsum(host.think_ns + host.took_ns)
    begun = (returned - host.took_ns)[gpu.call] + gpu.host_lag_ns
    add = host.wait_lag_ns[waiting] - returned[waiting]
    return HostTimes(begun[work.by_stream], add, float(returned[-1]))


def gpu_times(work: Work, schedule: Schedule) -> GpuTimes:
    gpu, ordered, start = work.gpu, work.by_stream, schedule.start
    took = gpu.took_ns[ordered]
    lengths = took + gpu.stream_lag_ns[ordered]
    level = np.cumsum(lengths)
    add = (gpu.other_lag_ns + gpu.took_ns)[schedule.third] - level[schedule.third_row]
    end = np.zeros(len(schedule.stream))
    end[schedule.run_place] = level[np.append(start[1:], len(level)) - 1]
    before, total = np.zeros((2, len(work.earlier_ns)))
    stream = gpu.stream[ordered[schedule.streams]]
    before[stream] = (level - lengths)[schedule.streams]
    total[stream] = np.add.reduceat(lengths, schedule.streams)
    return GpuTimes(level, took - level, add, end.tolist(), before, total)


def levels_of(host: HostTimes, gpu: GpuTimes, schedule: Schedule) -> Levels:
    ahead = host.begun_ns + gpu.ahead_ns
    add, top = np.zeros((2, len(schedule.stream)))
    top[schedule.run_place] = np.maximum.reduceat(ahead, schedule.start)
    add[schedule.wait_place] = host.add_ns
    add[schedule.third_place] = gpu.add_ns
    return Levels(add.tolist(), top.tolist(), ahead, host, gpu)


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
