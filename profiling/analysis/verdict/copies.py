"""Which copies keep the GPU from computing: direction, memory, speed. Called by diagnosis."""

from collections.abc import Iterator

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.hardware import link_bytes_per_s
from profiling.timeline.trace import COPY, Device

DIRECTION = {"Host-to-Device": "to the GPU", "Device-to-Host": "to the host"}
WORTH_TELLING = 0.1  # of the time in which only copies run


def sentences(analysis: Analysis, gpu: Device | None) -> Iterator[str]:
    """A line for each kind of copy that matters, the longest first."""
    owned, activity, names = analysis.owned, analysis.activity, analysis.trace.names
    if owned is None or activity is None:
        return
    rows = np.flatnonzero(owned.kind == COPY)
    hidden_ns = activity.talking.within(owned.start_ns[rows], owned.end_ns[rows])
    alone_ns = owned.duration_ns[rows] - hidden_ns
    pageable = owned.operations.pageable[owned.row[rows]]
    kinds = owned.name[rows] * 2 + pageable
    found = {kind: int(alone_ns[kinds == kind].sum()) for kind in np.unique(kinds).tolist()}
    peak = link_bytes_per_s(gpu.name) if gpu else None
    for kind, ns in sorted(found.items(), key=lambda item: -item[1]):
        if ns < WORTH_TELLING * sum(found.values()):
            continue
        of = rows[kinds == kind]
        moved = int(owned.operations.bytes[owned.row[of]].clip(0).sum())
        took_ns = int(owned.duration_ns[of].sum())
        direction = names[kind // 2].removeprefix("[CUDA memcpy ").removesuffix("]")
        crosses = direction in DIRECTION
        memory = (" (pageable memory)" if kind % 2 else " (pinned memory)") if crosses else ""
        of_peak = ""
        if crosses and peak:
            of_peak = (
                f", {100e9 * moved / max(1, took_ns) / peak:.0f} % of the link's {peak / 1e9:.0f}"
            )
        yield (
            f"{ns / 1e6 / analysis.step_count:.2f} ms a step: {len(of)} copies "
            f"{DIRECTION.get(direction, direction)}{memory}, {moved / 1e6:,.1f} MB in all, at "
            f"{moved / max(1, took_ns):.1f} GB/s{of_peak}."
        )
