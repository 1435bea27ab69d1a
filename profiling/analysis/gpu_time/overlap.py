"""Measure how much of communication and copies is hidden by kernels, and how much is exposed.

Called by summary. `exposed` is what the breakdown calls communication and copy: each moment of a
step counts once there, as computing if any kernel computes.
"""

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import union
from profiling.analysis.gpu_time.breakdown import COMMUNICATION
from profiling.analysis.gpu_time.slowed import alone_ns, launches_of, measure_slowdown
from profiling.analysis.records import Overlap, OverlapKind
from profiling.analysis.sum_records import CopySpeed
from profiling.shared.hardware import link_bytes_per_s
from profiling.timeline.trace import COPY, KERNEL, MEMSET, Device

WITH_HOST = ("Host-to-Device", "Device-to-Host")
COPY_NAME = ("[CUDA memcpy ", "]")  # around the direction


def overlap(analysis: Analysis) -> list[Overlap] | None:
    """A row for communication and one for copies, if there are any; None without GPU activity."""
    operations, activity = analysis.trace.operations, analysis.activity
    if operations is None or activity is None:
        return None
    rows = analysis.steps.rows_of(operations)
    start_ns, end_ns, kind = (
        column[rows] for column in (operations.start_ns, operations.end_ns, operations.kind)
    )
    talking = analysis.family[operations.name[rows]] == COMMUNICATION
    copying = ((kind == COPY) | (kind == MEMSET)) & ~talking
    period = (np.array([activity.begin_ns]), np.array([activity.end_ns]))
    computing_ns, kernels_ns, busy_ns = (
        int(of.ns_within(*period)[0])
        for of in (activity.computing, activity.talking, activity.busy)
    )
    kinds: tuple[tuple[OverlapKind, np.ndarray, int], ...] = (
        ("communication", talking, kernels_ns - computing_ns),
        ("copies", copying, busy_ns - kernels_ns),
    )
    overlaps = []
    for name, chosen, exposed_ns in kinds:
        ns = int(union(start_ns[chosen], end_ns[chosen]).ns_within(*period)[0])
        if ns:
            whole, hidden, exposed = (
                part / 1e6 / analysis.step_count for part in (ns, ns - exposed_ns, exposed_ns)
            )
            percent = 100 * (ns - exposed_ns) / ns
            slows = slowed_ms(analysis) if name == "communication" else None
            overlaps.append(Overlap(name, whole, hidden, exposed, percent, slows))
    return overlaps


def slowed_ms(analysis: Analysis) -> float:
    """Milliseconds a step by which communication lengthens the kernels that hide it."""
    owned = analysis.owned
    if owned is None:
        return 0.0
    talks = analysis.family[owned.name] == COMMUNICATION
    computing = np.flatnonzero(~talks & (owned.kind == KERNEL))
    talking = np.flatnonzero(talks & owned.kernels_and_graphs)
    launches = launches_of(owned, computing, owned.start_ns[talking], owned.end_ns[talking])
    slow = measure_slowdown(launches, alone_ns(launches))
    return float(slow.collective_ns.sum()) / 1e6 / analysis.step_count


def copy_speeds(analysis: Analysis, gpu: Device | None) -> list[CopySpeed] | None:
    """Copies by direction and host memory, the most exposed first; None without GPU activity."""
    owned, activity, names = analysis.owned, analysis.activity, analysis.trace.names
    if owned is None or activity is None:
        return None
    peak = link_bytes_per_s(gpu.name) if gpu else None
    rows = np.flatnonzero(owned.kind == COPY)
    took_ns = owned.duration_ns[rows]
    hidden_ns = [
        hiding.ns_within(owned.start_ns[rows], owned.end_ns[rows])
        for hiding in (activity.talking, activity.computing)  # the second for GPU to GPU
    ]
    talks = analysis.family[owned.name[rows]] == COMMUNICATION
    exposed_ns = took_ns - np.where(talks, hidden_ns[1], hidden_ns[0])
    size, pageable = (
        column[owned.row[rows]] for column in (owned.operations.bytes, owned.operations.pageable)
    )
    kinds, speeds = owned.name[rows].astype(np.int64) * 2 + pageable, []
    for kind in np.unique(kinds).tolist():
        mask = kinds == kind
        direction = names[kind // 2].removeprefix(COPY_NAME[0]).removesuffix(COPY_NAME[1])
        with_host = direction in WITH_HOST
        moved, ns = (
            None if np.any(size[mask] < 0) else int(size[mask].sum()),
            int(took_ns[mask].sum()),
        )
        rate = moved / ns if moved is not None and ns else None  # byte/ns, which is GB/s
        speeds.append(
            CopySpeed(
                direction,
                memory=("pageable" if kind % 2 else "pinned") if with_host else None,
                count=int(mask.sum()),
                bytes=moved,
                ms=ns / 1e6 / analysis.step_count,
                exposed_ms=int(exposed_ns[mask].sum()) / 1e6 / analysis.step_count,
                gb_per_s=rate,
                link_percent=1e11 * rate / peak if rate and peak and with_host else None,
            )
        )
    return sorted(speeds, key=lambda row: -row.exposed_ms)
