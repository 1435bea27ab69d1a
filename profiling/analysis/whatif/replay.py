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
class Runs:
    """Runs of operations on a stream, and the calls that wait, for a loop over both.

    Levels are those of the module's docstring, counted on from stream to stream.
    """

    order: list[int]  # numbers of runs; behind them those of waits
    stream: list[int]
    # run at whose end lies what a run, then a wait, waits for; counted on for the round before; -1
    target: list[int]
    add_ns: list[float]  # to that end, for the level of the run or the lateness of the host
    top_ns: list[float]  # highest level of a run if its calls are on time and nothing is before it
    end_level_ns: list[float]
    start: np.ndarray  # (runs,): the first operation, stream by stream
    ahead_ns: np.ndarray  # (operations,) stream by stream: level of each by its call alone
    level_ns: np.ndarray  # (operations,) stream by stream
    before_ns: np.ndarray  # (streams,): level before the first operation
    stream_ns: np.ndarray  # (streams,): levels of all operations
    host_ns: float  # the host's own time


@dataclass(frozen=True)
class Round:
    host_ns: float  # when the host has come to the end
    tail_ns: np.ndarray  # (streams,): end of the last operation
    ends_ns: list[float]  # of the runs
    seeds_ns: list[float]  # level of each run's stream before it
    late_ns: list[float]  # of the host at each run


def replayed_ends(work: Work) -> NDArray[np.float64]:
    """(operations,) when each ends, in ns from the window's begin, replayed once as captured."""
    runs = runs_of(work)
    begin_ns = work.host.start_ns[0] - work.host.think_ns[0]
    once = play(runs, begin_ns, work.earlier_ns, [NEVER] * len(runs.stream))
    length = np.diff(runs.start, append=len(runs.ahead_ns))
    level = runs.ahead_ns + np.repeat(once.late_ns, length)
    level[runs.start] = np.maximum(level[runs.start], once.seeds_ns)
    ends = np.empty(len(level))
    streams = np.cumsum(np.bincount(work.gpu.stream, minlength=len(work.earlier_ns)))
    for of_stream, levels in zip(
        np.split(work.by_stream, streams[:-1]), np.split(level, streams[:-1]), strict=True
    ):
        ends[of_stream] = np.maximum.accumulate(levels)
    ends[work.by_stream] += runs.level_ns
    return ends


def steady_ms(cycle: Work) -> float:
    """Milliseconds of a step, replayed ROUNDS times: of the last round, by the GPU or the host."""
    runs = runs_of(cycle)
    latest = play(runs, 0.0, cycle.earlier_ns, [NEVER] * len(runs.stream))
    step_ns, state = 0.0, relative_state(latest)
    for _ in range(ROUNDS - 1):
        before = latest
        latest = play(runs, before.host_ns, before.tail_ns, before.ends_ns)
        step_ns = latest.host_ns - before.host_ns
        if (gpu_ns := latest.tail_ns.max()) > NEVER and before.tail_ns.max() > NEVER:
            step_ns = max(step_ns, gpu_ns - before.tail_ns.max())
        previous, state = state, relative_state(latest)
        if np.allclose(state, previous, rtol=0, atol=STEADY_NS):
            break  # and so are all rounds from here on
    return float(step_ns) / 1e6 / cycle.steps


def relative_state(latest: Round) -> NDArray[np.float64]:
    """What the next round depends on, from the host's end on."""
    return np.concatenate((latest.tail_ns, latest.ends_ns)) - latest.host_ns


def play(runs: Runs, begin_ns: float, tail_ns: np.ndarray, before_ns: list[float]) -> Round:
    """One round. The host begins at `begin_ns`, the last operation of each stream ended at
    `tail_ns`, and the runs of the round before at `before_ns`."""
    count, late_ns = len(runs.stream), begin_ns
    ends = [NEVER] * count + before_ns
    seeds, late = [NEVER] * count, [0.0] * count
    level_of = (tail_ns - runs.before_ns).tolist()
    stream, top, end_level = runs.stream, runs.top_ns, runs.end_level_ns
    for number in runs.order:
        target = runs.target[number]
        after = NEVER if target < 0 else ends[target] + runs.add_ns[number]
        if number >= count:
            late_ns = max(late_ns, after)
            continue
        seeds[number] = seed = max(level_of[stream[number]], after)
        late[number] = late_ns
        level_of[stream[number]] = level = max(seed, top[number] + late_ns)
        ends[number] = level + end_level[number]
    tail = np.array(level_of) + runs.before_ns + runs.stream_ns
    return Round(runs.host_ns + late_ns, tail, ends[:count], seeds, late)


def runs_of(work: Work) -> Runs:
    host, gpu, ordered = work.host, work.gpu, work.by_stream
    place = np.empty_like(ordered)
    place[ordered] = np.arange(len(ordered))
    waiting, third = np.flatnonzero(host.awaited >= 0), np.flatnonzero(gpu.other >= 0)
    awaited, other = host.awaited[waiting], gpu.other[third]
    start = run_starts(work, place, waiting, np.concatenate((awaited, other)))
    lengths = (gpu.took_ns + gpu.stream_lag_ns)[ordered]
    level = np.cumsum(lengths)
    returned = np.cumsum(host.think_ns + host.took_ns)
    ready = (returned - host.took_ns)[gpu.call] + gpu.host_lag_ns + gpu.took_ns
    ahead = ready[ordered] - level
    run_of_third = np.searchsorted(start, place[third])
    target = np.full(len(start) + len(waiting), -1)
    add = np.zeros(len(target))
    for rows, operation, is_later, lag_ns in (
        (
            run_of_third,
            other,
            other >= third,
            (gpu.other_lag_ns + gpu.took_ns)[third] - level[place[third]],
        ),
        (
            np.arange(len(start), len(target)),
            awaited,
            awaited >= work.first[waiting + 1],
            host.wait_lag_ns[waiting] - returned[waiting],
        ),
    ):
        run = np.searchsorted(start, place[operation], side="right") - 1
        target[rows], add[rows] = run + len(start) * is_later, lag_ns
    keys = np.concatenate((2 * ordered[start], 2 * work.first[waiting + 1] - 1))
    stream = gpu.stream[ordered]
    before, total = np.zeros(len(work.earlier_ns)), np.zeros(len(work.earlier_ns))
    begins = np.flatnonzero(np.diff(stream, prepend=-1))
    before[stream[begins]] = (level - lengths)[begins]
    total[stream[begins]] = np.add.reduceat(lengths, begins)
    return Runs(
        np.argsort(keys, kind="stable").tolist(),
        stream[start].tolist(),
        target.tolist(),
        add.tolist(),
        np.maximum.reduceat(ahead, start).tolist(),
        level[np.append(start[1:], len(level)) - 1].tolist(),
        start,
        ahead,
        level,
        before,
        total,
        float(returned[-1]),
    )


def run_starts(
    work: Work, place: np.ndarray, waiting: np.ndarray, targets: np.ndarray
) -> NDArray[np.intp]:
    """Where runs begin, stream by stream; `targets` are the operations that are waited for."""
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
