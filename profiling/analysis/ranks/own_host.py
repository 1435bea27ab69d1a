"""Time that a rank's host takes for a step by itself, and what that leaves to gain.

Called by reduce and costs.

While a GPU waits for a late rank, its own host runs ahead, and what that host needs is hidden. So
the waits tell how late a rank is, but not what mending it would gain: two hosts that are equally
slow take turns for long stretches, in which one rank waits in all collectives and would be no
faster without the waits. Each step takes at least as long as the slowest of the other hosts, which
bounds the gain.

Waits for the GPU, for another process and for room in a full queue of launches are no work of the
host. Capturing lengthens that work on all ranks alike. A wait for another host that no call shows
(gloo's collectives, by a futex) is told from work by the other ranks' pauses (host_meetings).
"""

from dataclasses import dataclass

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import Intervals, union
from profiling.analysis.gpu_time.attribution import OwnedOperations
from profiling.analysis.gpu_time.host_activity import LONG_NS, host_activity, times_named
from profiling.analysis.statistics import ratio_over_processes
from profiling.shared.host_work import FOREIGN_WAITS
from profiling.timeline.trace import Calls

# Hosts with the same work differ by no more than a few times what the steps of one differ, nor by
# more than this share: 0 to 25 % on 39 of 40 pairs of ranks without a fault (docs/truth.md).
EQUAL_HOSTS = 0.25
TIMES_NOISE = 3.0
MOSTLY = 0.5  # of a held-up launch the GPU is busy; of the operations the launch is known


@dataclass(frozen=True)
class Pauses:
    """Long times without a call, each in the step in which it ends, on the capture's clock."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    step: np.ndarray
    launches: np.ndarray  # number in the step before the pause ends
    own_ns: np.ndarray  # the part of it that is no known wait


NO_PAUSES = Pauses(*(np.empty(0, np.int64) for _ in range(5)))


@dataclass(frozen=True)
class OwnHost:
    """Time of the host's own work in each step, and how often it waits for the GPU."""

    step_ns: np.ndarray  # (steps,)
    waits: float  # per step
    pauses: Pauses = NO_PAUSES  # in which it may wait for another host


def own_host(analysis: Analysis) -> OwnHost | None:
    """The host of the steps; None where its calls were not captured."""
    trace, owned = analysis.trace, analysis.owned
    calls, known = trace.calls, waits_and_quiet(analysis)
    if calls is None or owned is None or known is None or owned.steps.thread is None:
        return None
    steps, (for_gpu, quiet) = owned.steps, known
    edges_ns = np.append(steps.start_ns, steps.end_ns[-1])
    for_gpu = for_gpu.clip(int(edges_ns[0]), int(edges_ns[-1]))
    waits = for_gpu.union(held_up_launches(calls, owned))
    waits = waits.union(times_named(trace, steps, FOREIGN_WAITS, trace.os_calls))
    waited_ns = waits.ns_within(edges_ns[:-1], edges_ns[1:])
    pauses = pauses_in_steps(quiet, waits, edges_ns, launch_times(calls, owned))
    return OwnHost(np.diff(edges_ns) - waited_ns, len(for_gpu.start_ns) / len(waited_ns), pauses)


def waits_and_quiet(analysis: Analysis) -> tuple[Intervals, Intervals] | None:
    """Times in which the host waited for the GPU, and long ones without a call; None: unknown.

    A GPU that waits for a late rank has few gaps. Those may lie behind launches from before the
    capture, so that they have no cause, while nearly all launches are known.
    """
    if gaps := analysis.gaps:
        return gaps.data_waits.union(gaps.waits), gaps.quiet
    calls, owned, activity = analysis.trace.calls, analysis.owned, analysis.activity
    if calls is None or owned is None or activity is None or np.mean(owned.call >= 0) < MOSTLY:
        return None
    host = host_activity(analysis.trace, calls, owned, activity.begin_ns, activity.end_ns)
    return host.data_waits.union(host.other_waits), host.quiet


def launch_times(calls: Calls, owned: OwnedOperations) -> np.ndarray:
    """Begin of each call that launched something, in ns, ascending."""
    launches = np.unique(owned.call[owned.call >= 0])
    return np.sort(calls.start_ns[launches])


def pauses_in_steps(
    quiet: Intervals, waits: Intervals, edges_ns: np.ndarray, launch_ns: np.ndarray
) -> Pauses:
    """Pauses that end in the steps between `edges_ns`."""
    inside = (quiet.end_ns > edges_ns[0]) & (quiet.end_ns <= edges_ns[-1])
    start_ns, end_ns = quiet.start_ns[inside], quiet.end_ns[inside]
    step = np.searchsorted(edges_ns, end_ns, side="left") - 1
    before = np.searchsorted(launch_ns, end_ns) - np.searchsorted(launch_ns, edges_ns[step])
    own_ns = end_ns - start_ns - waits.ns_within(start_ns, end_ns)
    return Pauses(start_ns, end_ns, step, before, own_ns)


def held_up_launches(calls: Calls, owned: OwnedOperations) -> Intervals:
    """Launches that take long while the GPU works: the queue is full.

    While the GPU is idle, there is room, so that a long launch is the host's own.
    """
    launches = owned.call[owned.call >= 0]
    launches = launches[calls.end_ns[launches] - calls.start_ns[launches] > LONG_NS]
    start_ns, end_ns = calls.start_ns[launches], calls.end_ns[launches]
    busy_ns = union(owned.start_ns, owned.end_ns).ns_within(start_ns, end_ns)
    held_up = busy_ns >= MOSTLY * (end_ns - start_ns)
    return union(start_ns[held_up], end_ns[held_up])


def chance_ms(host_ms: np.ndarray) -> float:
    """Time in ms per step by which a host with the same work may take longer than this one."""
    mean_ms = float(host_ms.mean())
    noise_ms = float(host_ms.std(ddof=1)) if len(host_ms) > 1 else mean_ms
    return min(EQUAL_HOSTS * mean_ms, TIMES_NOISE * noise_ms)


def surely_slower(mine_ns: np.ndarray, theirs_ns: np.ndarray) -> bool:
    """Whether the host takes longer than another one, beyond the noise of the steps of both."""
    if min(len(mine_ns), len(theirs_ns)) < 2 or min(mine_ns.min(), theirs_ns.min()) <= 0:
        return bool(mine_ns.mean() > theirs_ns.mean())
    return ratio_over_processes(theirs_ns, mine_ns).low > 1
