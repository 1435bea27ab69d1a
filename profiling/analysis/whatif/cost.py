"""Take off a Work what the profiler added to the host's time.

It notes events, and the host as a whole is slower while it is captured. The median launch of a
kernel is the thermometer of the second: all of the host's short times are divided by how much
longer than usual it takes. Stalls, the making of batches, in which nothing is noted, and calls that
allocate are not.
"""

from dataclasses import replace

import numpy as np

from profiling.analysis.columns import name_mask
from profiling.analysis.gpu_time.losses import LAUNCH
from profiling.analysis.whatif.constants import (
    ENOUGH_LAUNCHES,
    EVENT_NS,
    LEAST_LAG_NS,
    LEAST_LEFT,
    PAUSE_NS,
    USUAL_LAUNCH_US,
)
from profiling.analysis.whatif.work import ALLOCATION, LAUNCHING, Work


def without_events(work: Work) -> Work:
    """The work without the time of noted events, and without that in which the profiler held up
    the host. The times before and in a call pay in proportion."""
    host, lag_ns = work.host, work.gpu.host_lag_ns
    think_ns = np.maximum(host.think_ns, 0)
    total_ns = think_ns + host.took_ns
    left_ns = np.maximum(total_ns - EVENT_NS * host.events - host.held_ns, LEAST_LEFT * total_ns)
    share = np.divide(left_ns, total_ns, out=np.ones_like(total_ns), where=total_ns > 0)
    shorter_ns = np.minimum(lag_ns, np.maximum(lag_ns - EVENT_NS / 2, LEAST_LAG_NS))
    return replace(
        work,
        host=replace(
            host,
            think_ns=np.where(host.think_ns > 0, host.think_ns * share, host.think_ns),
            took_ns=host.took_ns * share,
        ),
        gpu=replace(work.gpu, host_lag_ns=np.where(lag_ns > 0, shorter_ns, lag_ns)),
    )


def scale_host(work: Work, factor: float, pauses: float = 1.0) -> Work:
    """The work on a host whose short times take `factor` times as long, but not its allocations,
    and whose pauses of up to PAUSE_NS `pauses` times."""
    host = work.host
    without_data = host.data_ns <= 0
    longer = np.where(without_data & (host.think_ns <= PAUSE_NS), pauses, 1.0)
    longer = np.where(without_data & ~host.is_stall, factor, longer)
    in_call = np.where(host.kind == ALLOCATION, 1.0, longer)
    return replace(
        work,
        host=replace(
            host,
            think_ns=np.where(host.think_ns > 0, host.think_ns * longer, host.think_ns),
            took_ns=host.took_ns * in_call,
        ),
    )


def without_host(work: Work) -> Work:
    """The work on a host whose calls, and all that is between them, take no time."""
    nothing = np.zeros_like(work.host.took_ns)
    return replace(work, host=replace(work.host, think_ns=nothing, took_ns=nothing))


def scale_gpu(work: Work, factor: float) -> Work:
    """The work on a GPU whose operations take `factor` times as long."""
    return replace(work, gpu=replace(work.gpu, took_ns=work.gpu.took_ns * factor))


def launch_us(cycle: Work) -> float | None:
    """Median launch of a kernel that did not wait, in us; None where there are too few.

    Launches of CUDA graphs take longer on a fast host, too.
    """
    host = cycle.host
    launches = (host.kind == LAUNCHING) & (host.awaited < 0)
    launches &= name_mask(cycle.names, host.name, LAUNCH.fullmatch)
    took_ns = host.took_ns[launches]
    return float(np.median(took_ns)) / 1e3 if len(took_ns) >= ENOUGH_LAUNCHES else None


def host_slowdown(median_us: float | None) -> float:
    return 1.0 if median_us is None else max(1.0, median_us / USUAL_LAUNCH_US)
