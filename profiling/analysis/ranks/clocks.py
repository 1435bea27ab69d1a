"""Offsets between the clocks of several captures. Called by summary.

Captures are aligned on the ends of those collectives that no rank leaves before all ranks have
entered. The offset of a clock is the median difference of its ends from the ends on the clocks that
are aligned already. The distance that is left between the first and the last end of a collective
bounds the precision of every time that is compared between ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiling.analysis.ranks.collectives import SIMULTANEOUS
from profiling.analysis.ranks.matching import Matches
from profiling.analysis.ranks.reduce import ReducedRank


@dataclass(frozen=True)
class Clocks:
    offset_ns: np.ndarray  # (ranks,) int64, to be subtracted from the rank's times
    known: np.ndarray  # (ranks,) bool; False where no shared collective ties a clock to the others
    aligned_on: str | None  # a phrase; None: nothing aligns them
    uncertainty_ns: float | None  # median time from the first end of a collective to the last


def align(ranks: Sequence[ReducedRank], matched: Matches) -> Clocks:
    """Align all clocks with the first rank's, starting from the rank with most shared collectives.

    A clock is joined to the aligned ones as soon as one of its ranks shares a collective with them;
    clocks that are never reached stay unknown, which may include the first rank's.
    """
    clock = np.unique([rank.clock for rank in ranks], return_inverse=True)[1]
    # times are counted from each clock's first step, so that floats hold them exactly
    begin_ns = np.array([rank.bounds_ns[0] for rank in ranks])
    for number in np.unique(clock):
        begin_ns[clock == number] = begin_ns[clock == number].min()
    chosen = np.isin(matched.kind, SIMULTANEOUS)
    there = matched.there[chosen]
    ends_ns = (matched.values_of(ranks, "end_ns")[chosen] - begin_ns).astype(float)
    most = np.count_nonzero(matched.there, axis=0).argmax()
    offset_ns, known = np.zeros(len(ranks)), clock == clock[most]
    while len(joining := clocks_that_share(there, known, clock)):
        both = there & known
        count = np.count_nonzero(both, axis=1)
        common = np.where(both, ends_ns - offset_ns, 0).sum(axis=1) / np.maximum(count, 1)
        for number in joining:
            mine = np.flatnonzero(clock == number)
            late_ns = ends_ns[:, mine] - common[:, None]
            offset_ns[mine] = np.median(late_ns[there[:, mine] & (count > 0)[:, None]])
        known = known | np.isin(clock, joining)
    offset_ns[known] -= offset_ns[0]
    spread = spreads(ends_ns - offset_ns, there & known)
    spread = spread[~np.isnan(spread)]
    return Clocks(
        offset_ns.astype(np.int64) + begin_ns - begin_ns[0],
        known,
        alignment_text(len(np.unique(clock)), len(spread)),
        float(np.median(spread)) if len(spread) else None,
    )


def clocks_that_share(there: np.ndarray, known: np.ndarray, clock: np.ndarray) -> np.ndarray:
    """Clocks that are not known yet, of ranks that share a collective with a known rank."""
    reached = np.any(there & known, axis=1)
    shares = ~known & np.any(there & reached[:, None], axis=0)
    return np.unique(clock[shares])


def spreads(ends_ns: np.ndarray, there: np.ndarray) -> np.ndarray:
    """(collectives,) ns from the first end to the last; nan where fewer than two ranks have it."""
    several = np.count_nonzero(there, axis=1) > 1
    first = np.where(there, ends_ns, np.inf).min(axis=1, initial=np.inf)
    last = np.where(there, ends_ns, -np.inf).max(axis=1, initial=-np.inf)
    spread = np.full(len(several), np.nan)
    np.subtract(last, first, out=spread, where=several)
    return spread


def alignment_text(clocks: int, collectives: int) -> str | None:
    if clocks == 1:
        return "the capture's single clock"
    return f"the ends of {collectives:,} collectives" if collectives else None
