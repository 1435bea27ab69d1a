"""What kernels take beside no collective, for ranks that do not tell. Called by summary.

A rank that waits all through backward runs none of its kernels there alone. All ranks run one
program: on GPUs of the same name a kind of launches takes the median of the ranks that tell. Each
of these has one say, the median of its own launches, however many it ran alone; so a single slow
GPU does not decide, and a rank has to keep but one number of a kind.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from profiling.analysis.gpu_time.slowed import measure_slowdown, medians
from profiling.analysis.ranks.reduce import Kind, ReducedRank


def lent(ranks: Sequence[ReducedRank]) -> list[ReducedRank]:
    """The ranks, with what was slowed of launches that the others can tell of."""
    numbers: dict[tuple[str | None, Kind], int] = {}
    keys = [[(rank.gpu, kind) for kind in rank.alone.kinds] for rank in ranks]
    of_ranks = [
        np.array([numbers.setdefault(key, len(numbers)) for key in of_rank], np.int64)
        for of_rank in keys
    ]
    alone_ns = np.concatenate([rank.alone.ns for rank in ranks])
    told = ~np.isnan(alone_ns)
    lent_ns = medians(alone_ns[told], np.concatenate(of_ranks)[told], len(numbers), least=1)
    return [with_lent(rank, lent_ns[kind]) for rank, kind in zip(ranks, of_ranks, strict=True)]


def with_lent(rank: ReducedRank, alone_ns: np.ndarray) -> ReducedRank:
    """`alone_ns`: of each of its kinds; nan where no rank tells."""
    kinds, untold = rank.alone.kinds, rank.alone.untold
    slow = measure_slowdown(untold, alone_ns)
    kernels = dict(rank.kernels)
    of_kinds = np.bincount(untold.kind, slow.kernel_ns, len(kinds))
    for number in np.flatnonzero(of_kinds).tolist():
        work = kernels[kinds[number].kernel]
        kernels[kinds[number].kernel] = replace(work, ns=int(work.ns - of_kinds[number]))
    phase_ns = {}
    for phase, ns in rank.phase_ns.items():
        of = np.array([kind.phase == phase for kind in kinds], bool)[untold.kind]
        phase_ns[phase] = ns - np.bincount(rank.alone.step[of], slow.kernel_ns[of], rank.steps)
    slowed_ns = rank.slowed_ns + slow.collective_ns
    return replace(rank, slowed_ns=slowed_ns, phase_ns=phase_ns, kernels=kernels)
