"""Kernel times without collectives, lent by other ranks where a rank has none. Called by summary.

A rank that waits all through backward never runs its kernels there without a collective beside
them, so its own capture does not show how long they take alone. But all ranks run one program: on
GPUs of the same name, a kind of launches is taken to last as long as the median of the ranks that
did run it alone. Each of these contributes one value, the median of its own launches, however many
they are. So a single slow GPU does not decide, and a rank has to keep only one number per kind.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from profiling.analysis.gpu_time.slowed import measure_slowdown, medians
from profiling.analysis.ranks.reduce import Kind, ReducedRank


def lend_times(ranks: Sequence[ReducedRank]) -> list[ReducedRank]:
    """Complete the ranks' slowed times with those launches that only other ranks ran alone."""
    numbers: dict[tuple[str | None, Kind], int] = {}
    keys = [[(rank.gpu, kind) for kind in rank.alone.kinds] for rank in ranks]
    of_ranks = [
        np.array([numbers.setdefault(key, len(numbers)) for key in of_rank], np.int64)
        for of_rank in keys
    ]
    alone_ns = np.concatenate([rank.alone.ns for rank in ranks])
    is_known = ~np.isnan(alone_ns)
    median_ns = medians(
        alone_ns[is_known], np.concatenate(of_ranks)[is_known], len(numbers), least=1
    )
    return [
        complete_times(rank, median_ns[kind]) for rank, kind in zip(ranks, of_ranks, strict=True)
    ]


def complete_times(rank: ReducedRank, alone_ns: np.ndarray) -> ReducedRank:
    """Apply `alone_ns`, a time for each kind of `rank.alone.kinds`; nan where no rank has one."""
    kinds, unmeasured = rank.alone.kinds, rank.alone.unmeasured
    slow = measure_slowdown(unmeasured, alone_ns)
    kernels = dict(rank.kernels)
    of_kinds = np.bincount(unmeasured.kind, slow.kernel_ns, len(kinds))
    for number in np.flatnonzero(of_kinds).tolist():
        work = kernels[kinds[number].kernel]
        kernels[kinds[number].kernel] = replace(work, ns=int(work.ns - of_kinds[number]))
    phase_ns = {}
    for phase, ns in rank.phase_ns.items():
        in_phase = np.array([kind.phase == phase for kind in kinds], bool)[unmeasured.kind]
        phase_ns[phase] = ns - np.bincount(
            rank.alone.step[in_phase], slow.kernel_ns[in_phase], rank.steps
        )
    slowed_ns = rank.slowed_ns + slow.collective_ns
    return replace(rank, slowed_ns=slowed_ns, phase_ns=phase_ns, kernels=kernels)
