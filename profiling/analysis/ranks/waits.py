"""Who waits in each collective, and for whom. Called by summary.

A rank waits in a collective from its own begin until the last rank has come; what is left until its
end is the transfer. Where kernels compute meanwhile, that part is hidden and costs nothing.

What a set of ranks costs: in each collective whose last rank is one of them, the least exposed wait
of the other ranks. That is how much sooner all would go on, had the set come with the next.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from profiling.analysis.ranks.clocks import Clocks
from profiling.analysis.ranks.matching import Matched
from profiling.analysis.ranks.reduce import ReducedRank


@dataclass(frozen=True)
class Waits:
    """(collectives, ranks) float64 nanoseconds; nan where a rank has no part in one."""

    matched: Matched
    wait_ns: np.ndarray
    transfer_ns: np.ndarray
    exposed_wait_ns: np.ndarray
    exposed_ns: np.ndarray  # of both
    last: np.ndarray  # (collectives,): the rank that came last

    def cost_ns(self, ranks: Collection[int]) -> np.ndarray:
        """(collectives,): what these ranks cost, by their columns; not all of them."""
        others = np.ones(self.wait_ns.shape[1], bool)
        others[list(ranks)] = False
        least = np.nanmin(np.where(others, self.exposed_wait_ns, np.inf), axis=1, initial=np.inf)
        late = np.isin(self.last, list(ranks))
        return np.where(late & np.isfinite(least), least, 0.0)

    def of_steps(self, values: np.ndarray, iterations: np.ndarray) -> np.ndarray:
        """The sum over the collectives of each iteration: (iterations,) or (iterations, ranks)."""
        place = np.searchsorted(iterations, self.matched.iteration)
        inside = np.isin(self.matched.iteration, iterations)
        found = np.zeros((len(iterations), *values.shape[1:]))
        np.add.at(found, place[inside], np.nan_to_num(values[inside]))
        return found


def waits(ranks: Sequence[ReducedRank], matched: Matched, clocks: Clocks) -> Waits:
    there = matched.there & clocks.known
    base = ranks[0].bounds_ns[0]  # so that floats hold them
    start, end = (
        np.where(there, matched.of(ranks, column) - clocks.offset_ns - base, np.nan)
        for column in ("start_ns", "end_ns")
    )
    last_start = np.where(there, start, -np.inf).max(axis=1, initial=-np.inf)
    came = np.minimum(np.maximum(last_start[:, None], start), end)
    exposed_wait, exposed = (
        exposed_ns(ranks, there, start, until, clocks, base) for until in (came, end)
    )
    last = np.where(there, start, -np.inf).argmax(axis=1)
    return Waits(matched, came - start, end - came, exposed_wait, exposed, last)


def exposed_ns(
    ranks: Sequence[ReducedRank],
    there: np.ndarray,
    start: np.ndarray,
    until: np.ndarray,
    clocks: Clocks,
    base: int,
) -> np.ndarray:
    """How much of [start, until) no kernel of the rank hides."""
    found = np.full(there.shape, np.nan)
    for number, rank in enumerate(ranks):
        rows = there[:, number]
        shift = clocks.offset_ns[number] + base
        begin, end = (column[rows, number].astype(np.int64) + shift for column in (start, until))
        found[rows, number] = (end - begin) - rank.computing.within(begin, end)
    return found
