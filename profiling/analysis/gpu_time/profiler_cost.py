"""Estimate what capturing added to each step. Called by analysis.

An event costs what profiling.shared.profiler_costs says, as an interval, times the host's pace. Two
things tell that: the gap between events that follow each other at once, and the median launch of a
kernel. Overhead that the tool recorded counts as it is. Not all of it lengthens a step, because a
GPU that is busy hides what the host does. So the capture is replayed without these costs:

- The host is earlier by all costs since the capture began. Work that was launched late begins
  earlier by as much, but not before the work ahead of it has ended, which may be earlier, too.
- A host that waits for the GPU goes on when the GPU is done: it is no earlier than the GPU.
- The nodes of a CUDA graph, where they are recorded one by one, cost in the call that launches it.
- Time in which the host made a batch, allocated or copied keeps its length, but for the events in
  it: what it waits for is outside the program.

What a gap becomes shorter by is taken off `launch` first, where most events are, then off
`synchronization` and `cpu` (the parts that are `lengthened`), then off the others.
"""

import re
from dataclasses import dataclass

import numpy as np

from profiling.analysis.columns import (
    Intervals,
    concatenate_columns,
    distinct,
    is_one_of,
    name_mask,
    union,
)
from profiling.analysis.gpu_time.attribution import OwnedOperations
from profiling.analysis.gpu_time.breakdown import Activity
from profiling.analysis.gpu_time.host_activity import TO_HOST, copies
from profiling.analysis.gpu_time.idle import Gaps
from profiling.analysis.gpu_time.losses import GRAPH_LAUNCH, SUFFIX
from profiling.analysis.steps.steps import Steps
from profiling.shared.causes import CAUSES, PART
from profiling.shared.profiler_costs import (
    BACK_TO_BACK_US,
    COSTS,
    DRIVER_LAUNCH_US,
    GRAPH_NODES,
    LAUNCH_US,
    NOT_OF_THE_PROFILER,
    EventCost,
)
from profiling.timeline.trace import GRAPH, Calls, Ranges, Trace

LEAST, LIKELY, MOST = range(3)  # rows of an estimate
ENOUGH = 100  # gaps between events that follow each other, or launches, to tell the host's pace
LARGEST_RATIO = 4.5  # of hosts seen, 4.3 by both; a larger one is the program's own time
FASTEST_PACE, SLOWEST_PACE = 0.5, 3.0  # beyond which costs do not follow gaps: docs/truth.md
UNKNOWN_PACE = (FASTEST_PACE, 1.0, 2.0)  # least, likely, most; of 46 captures 3 were slower
# in the order of trust; not cuLaunchKernel and not HIP's, which take another time on the same host
TIMED_LAUNCHES = (
    (re.compile(rf"cudaLaunchKernel(ExC)?{SUFFIX}"), LAUNCH_US),
    (re.compile("cuLaunchKernelEx"), DRIVER_LAUNCH_US),
)
LENGTHENED = tuple(cause for cause in CAUSES if PART[cause].lengthened)
FIXED = ("data", "allocation", "staging")  # the host's, too, but only as long as their own events


@dataclass(frozen=True)
class ProfilerCost:
    """Time that capturing added to the steps: (3, steps) nanoseconds; least, likely and most."""

    step_ns: np.ndarray
    cause_ns: dict[str, np.ndarray] | None  # the same by idle cause; None without the causes


@dataclass(frozen=True)
class HostCosts:
    """Costs on the threads that drive the GPU: events of one kind and what each costs."""

    times_ns: list[np.ndarray]  # of the events of each kind, ascending
    each_ns: list[np.ndarray]  # (3,) of one of them
    held_up: Intervals  # overhead that the tool recorded

    def until(self, time_ns: np.ndarray) -> np.ndarray:
        """(3, times) nanoseconds that all events before each time cost."""
        total = np.tile(self.held_up.ns_before(time_ns).astype(float), (3, 1))
        for times_ns, each_ns in zip(self.times_ns, self.each_ns, strict=True):
            total += each_ns[:, None] * np.searchsorted(times_ns, time_ns, side="left")
        return total


def profiler_cost(
    trace: Trace,
    steps: Steps,
    owned: OwnedOperations | None,
    activity: Activity | None,
    gaps: Gaps | None,
    bounds_ns: np.ndarray,
) -> ProfilerCost | None:
    """The cost; None without events of the host, or where a GPU's idle time has no causes."""
    if all(table is None for table in (trace.calls, trace.operators, trace.ranges)):
        return None
    if owned is None or activity is None:
        costs = host_costs(trace, steps, {steps.thread})
        return ProfilerCost(np.diff(costs.until(bounds_ns)), None)
    if gaps is None:
        return None
    # XLA has threads for copies to the host, and the thread of the steps waits for them
    driving = owned.kernels_and_graphs | copies(trace.names, owned.operations, owned.row, TO_HOST)
    threads = set(distinct(owned.thread[driving]).tolist()) | {steps.thread}
    costs = host_costs(trace, steps, threads)
    cause_ns = taken_off(costs, gaps, activity.busy, bounds_ns)
    return ProfilerCost(np.sum(list(cause_ns.values()), axis=0), cause_ns)


def host_costs(trace: Trace, steps: Steps, threads: set[int | None]) -> HostCosts:
    wanted = [thread for thread in threads if thread is not None]
    costs, found = costs_of(trace), pace(trace, wanted)
    paces = UNKNOWN_PACE if found is None else (found,) * 3
    us = [(cost.least_us, cost.likely_us, cost.most_us) for cost in costs]
    return HostCosts(
        [event_times(trace, cost.event, steps, wanted) for cost in costs],
        [1e3 * np.array(each) * paces for each in us],
        recorded_overhead(trace, wanted),
    )


def costs_of(trace: Trace) -> list[EventCost]:
    """The rows of the table that apply to the capture."""
    settings = {None, *trace.settings}
    mine = [cost for cost in COSTS if cost.tool == trace.kind and cost.setting in settings]
    table = {GRAPH_NODES: "operations"}
    return [c for c in mine if getattr(trace, table.get(c.event, c.event)) is not None]


def host_events_ns(
    trace: Trace, steps: Steps, threads: list[int], time_ns: np.ndarray
) -> np.ndarray:
    """Nanoseconds that it took to record the threads' `host_events` before each time, likely."""
    total_ns = np.zeros(len(time_ns))
    for cost in costs_of(trace):
        if cost.event == "host_events":
            times_ns = event_times(trace, cost.event, steps, threads)
            total_ns += 1e3 * cost.likely_us * np.searchsorted(times_ns, time_ns)
    return total_ns


def event_times(trace: Trace, event: str, steps: Steps, threads: list[int]) -> np.ndarray:
    """Times of the events that the threads recorded, ascending."""
    if event == GRAPH_NODES:
        return graph_node_times(trace, threads)
    table = getattr(trace, event)
    if event == "allocations":  # of which the thread is not known
        return np.asarray(table.time_ns[table.process == steps.process])
    return np.asarray(table.start_ns[is_one_of(table.thread, threads)])


def graph_node_times(trace: Trace, threads: list[int]) -> np.ndarray:
    """Times at which the threads launched the nodes of CUDA graphs that were recorded, ascending.

    The nodes of a launch are spread over its call, which takes longer the more of them there are.
    """
    calls, operations = trace.calls, trace.operations
    if calls is None or operations is None:
        return np.empty(0, np.int64)
    launches = name_mask(trace.names, calls.name, GRAPH_LAUNCH.fullmatch)
    launches &= is_one_of(calls.thread, threads)
    call = operations.call[(operations.call >= 0) & (operations.kind != GRAPH)]
    call = np.sort(call[launches[call]])
    count = np.bincount(call, minlength=len(calls.name))[call]
    number = np.arange(len(call)) - np.searchsorted(call, call)  # from 0 on, in its launch
    took_ns = calls.end_ns[call] - calls.start_ns[call]
    return np.sort(calls.start_ns[call] + took_ns * number // np.maximum(count, 1))


def pace(trace: Trace, threads: list[int]) -> float | None:
    """Time that this host takes, over that of the hosts on which the table was measured.

    The program's own work and waits make gaps and launches longer, never shorter: the smaller ratio
    counts. None where nothing tells it.
    """
    ratios = gap_ratio(trace, threads), launch_ratio(trace, threads)
    likely = [ratio for ratio in ratios if ratio is not None and ratio <= LARGEST_RATIO]
    return min(max(min(likely), FASTEST_PACE), SLOWEST_PACE) if likely else None


def gap_ratio(trace: Trace, threads: list[int]) -> float | None:
    """The gap between events that follow each other at once, over the table's."""
    for (tool, event), usual_us in BACK_TO_BACK_US.items():
        table = getattr(trace, event)
        if tool != trace.kind or table is None:
            continue
        usual_us += sum(
            cost.likely_us for cost in costs_of(trace) if cost.setting and cost.event == event
        )
        if (gap_ns := back_to_back_ns(table, threads)) is not None:
            return gap_ns / 1e3 / usual_us
    return None


def launch_ratio(trace: Trace, threads: list[int]) -> float | None:
    """The median launch of a kernel, over the table's; None where there are too few."""
    if (calls := trace.calls) is None:
        return None
    mine = is_one_of(calls.thread, threads)
    for timed, usual_us in TIMED_LAUNCHES:
        launches = mine & name_mask(trace.names, calls.name, timed.fullmatch)
        took_ns = (calls.end_ns - calls.start_ns)[launches]
        if len(took_ns) >= ENOUGH:
            return float(np.median(took_ns)) / 1e3 / usual_us
    return None


def back_to_back_ns(table: Calls | Ranges, threads: list[int]) -> float | None:
    """The gap between events that follow each other at once: the 5 % quantile of all gaps.

    None where there are too few.
    """
    gaps_ns = []
    for thread in threads:
        rows = table.thread == thread
        between = table.start_ns[rows][1:] - table.end_ns[rows][:-1]
        gaps_ns.append(between[between >= 0])  # below 0: one inside the other
    gap_ns = concatenate_columns(gaps_ns)
    return float(np.quantile(gap_ns, 0.05)) if len(gap_ns) >= ENOUGH else None


def recorded_overhead(trace: Trace, threads: list[int]) -> Intervals:
    """The times in which the profiler held up one of the threads, as the tool recorded them.

    torch.profiler does not say which thread it was: one that was in a call then.
    """
    table = trace.overhead
    if table is None:
        return union(np.empty(0), np.empty(0))
    foreign = re.compile(NOT_OF_THE_PROFILER).fullmatch
    own = table.rows(~name_mask(trace.names, table.name, foreign))
    known = is_one_of(own.thread, threads)
    held_up = union(own.start_ns[known], own.end_ns[known])
    unknown = ~known & (own.process < 0)
    if trace.calls is None or not unknown.any():
        return held_up
    calling = is_one_of(trace.calls.thread, threads)
    calls = union(trace.calls.start_ns[calling], trace.calls.end_ns[calling])
    somewhere = union(own.start_ns[unknown], own.end_ns[unknown])
    begin, end = int(own.start_ns.min()), int(own.end_ns.max())
    return held_up.union(somewhere.intersection(calls, begin, end))


def taken_off(
    costs: HostCosts, gaps: Gaps, busy: Intervals, bounds_ns: np.ndarray
) -> dict[str, np.ndarray]:
    """Cause -> (3, steps) nanoseconds by which the gaps of each step would be shorter."""
    rows = np.flatnonzero(gaps.late_until_ns > gaps.start_ns)
    start_ns, until_ns = gaps.start_ns[rows], gaps.late_until_ns[rows]
    waits = gaps.data_waits.union(gaps.waits)
    parts = {cause: gaps.cause_ns[CAUSES.index(cause), rows] for cause in (*LENGTHENED, *FIXED)}
    late_ns, fixed_ns = sum_of(parts, (*LENGTHENED, *FIXED)), sum_of(parts, FIXED)
    cost_ns, waited_ns = costs.until(until_ns), costs.until(waits.end_ns)
    own_ns = cost_ns - costs.until(start_ns)
    busy_ns = busy.ns_within(waits.start_ns, waits.end_ns)
    idle_ns = np.maximum(waits.start_ns - last_busy(busy, waits.end_ns), 0)
    step = np.searchsorted(bounds_ns, start_ns, side="right") - 1
    count = len(bounds_ns) - 1
    shorter = {cause: np.zeros((3, count)) for cause in CAUSES}
    for scenario in (LEAST, LIKELY, MOST):
        most_ns = late_ns - np.maximum(fixed_ns - own_ns[scenario], 0)
        left = replay(
            Late(until_ns, most_ns, late_ns, cost_ns[scenario]),
            Waits(waits.end_ns, waited_ns[scenario], busy_ns, idle_ns),
        )
        for cause, part_ns in parts.items():
            paid = np.minimum(part_ns, left)
            shorter[cause][scenario] = np.bincount(step, paid, count)[:count]
            left -= paid
    return shorter


def sum_of(parts: dict[str, np.ndarray], causes: tuple[str, ...]) -> np.ndarray:
    """The sum of these parts of each gap, as float64."""
    return np.asarray(sum(parts[cause] for cause in causes), np.float64)


def last_busy(busy: Intervals, time_ns: np.ndarray) -> np.ndarray:
    """The last time up to each one at which the GPU was busy; the time itself without any."""
    if not len(busy.start_ns):
        return time_ns
    last = np.searchsorted(busy.start_ns, time_ns, side="right") - 1
    return np.where(last < 0, time_ns, np.minimum(busy.end_ns[last], time_ns))


@dataclass(frozen=True)
class Late:
    """Gaps before which the host launched late, in their order; nanoseconds."""

    until_ns: np.ndarray  # when the launch returned
    most_ns: np.ndarray  # by which a gap can become shorter
    late_ns: np.ndarray  # of the gap that is the host's fault
    cost_ns: np.ndarray  # of all events until then


@dataclass(frozen=True)
class Waits:
    """Calls that wait for the GPU, in their order; nanoseconds."""

    end_ns: np.ndarray
    cost_ns: np.ndarray  # of all events until then
    busy_ns: np.ndarray  # during the call
    idle_ns: np.ndarray  # that the GPU had been idle when it began


def replay(late: Late, waits: Waits) -> np.ndarray:
    """(gaps,) nanoseconds by which each gap would be shorter without the costs."""
    fixed = np.flatnonzero(late.most_ns < late.late_ns)
    until = np.searchsorted(late.until_ns, waits.end_ns, side="right")
    # a wait, or a gap that cannot vanish: there the host's lead changes, in between it only grows
    place = np.concatenate((fixed, until))
    order = np.argsort(place, kind="stable")
    is_wait = (order >= len(fixed)).tolist()
    cost_ns = np.concatenate((late.cost_ns[fixed], waits.cost_ns))[order].tolist()
    most_ns = np.concatenate((late.most_ns[fixed], waits.busy_ns))[order].tolist()
    idle_ns = np.concatenate((np.zeros(len(fixed)), waits.idle_ns))[order].tolist()
    grown_ns = np.concatenate(([0.0], np.cumsum(late.most_ns)))
    shorter = np.zeros(len(late.until_ns))
    gpu = caught_up = 0.0  # the GPU's lead over the capture; costs that are no lead of the host's
    start = 0
    for row, stop in enumerate([*place[order].tolist(), len(shorter)]):
        if stop > start:
            grown = grown_ns[start + 1 : stop + 1] - grown_ns[start]
            host = np.maximum(late.cost_ns[start:stop] - caught_up, gpu)
            lead = grown + np.minimum(np.minimum.accumulate(host - grown), gpu)
            shorter[start], shorter[start + 1 : stop] = lead[0] - gpu, lead[1:] - lead[:-1]
            gpu, start = float(lead[-1]), stop
        if row == len(is_wait):
            break
        cost, most = cost_ns[row], most_ns[row]
        if is_wait[row]:
            caught_up = cost - min(cost - caught_up + most, gpu + idle_ns[row])
            continue
        gained = min(most, max(0.0, cost - caught_up - gpu))
        gpu += gained
        if gained == most:
            caught_up = max(caught_up, cost - gpu)
        shorter[start], start = gained, start + 1
    return shorter
