"""How the clocks of several captures differ. Called by summary.

Captures are aligned on the ends of collectives that no rank leaves before all have come: the offset
of a clock is the median difference of its ends to those of the first clock. What is left between
the first and the last end of a collective bounds what can be said of times over ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiling.analysis.ranks.collectives import SIMULTANEOUS
from profiling.analysis.ranks.matching import Matches
from profiling.analysis.ranks.reduce import ReducedRank


@dataclass(frozen=True)
class Clocks:
    offset_ns: np.ndarray  # (ranks,) int64, to be taken off the rank's times
    known: np.ndarray  # (ranks,) bool; one that shares no collective with most is not
    aligned_on: str | None  # in words; None: nothing aligns them
    uncertainty_ns: float | None  # the median distance of the first end of a collective to the last


def align(ranks: Sequence[ReducedRank], matched: Matches) -> Clocks:
    """On the clock of the first rank, if it shares collectives with the rank that shares most."""
    clock = np.unique([rank.clock for rank in ranks], return_inverse=True)[1]
    # since the first step of the clock, so that floats hold them
    begin_ns = np.array([rank.bounds_ns[0] for rank in ranks])
    for each in np.unique(clock):
        begin_ns[clock == each] = begin_ns[clock == each].min()
    chosen = np.isin(matched.kind, SIMULTANEOUS)
    there = matched.there[chosen]
    ends_ns = (matched.values_of(ranks, "end_ns")[chosen] - begin_ns).astype(float)
    most = np.count_nonzero(matched.there, axis=0).argmax()
    offset_ns, known = np.zeros(len(ranks)), clock == clock[most]
    while len(joining := clocks_that_share(there, known, clock)):
        both = there & known
        count = np.count_nonzero(both, axis=1)
        common = np.where(both, ends_ns - offset_ns, 0).sum(axis=1) / np.maximum(count, 1)
        for each in joining:
            mine = np.flatnonzero(clock == each)
            behind = ends_ns[:, mine] - common[:, None]
            offset_ns[mine] = np.median(behind[there[:, mine] & (count > 0)[:, None]])
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
    """The clocks, not known yet, of ranks that share a collective with a known one."""
    reached = np.any(there & known, axis=1)
    shares = ~known & np.any(there & reached[:, None], axis=0)
    return np.unique(clock[shares])


def spreads(ends_ns: np.ndarray, there: np.ndarray) -> np.ndarray:
    """From the first end to the last of each collective; nan where not several ranks have it."""
    several = np.count_nonzero(there, axis=1) > 1
    first = np.where(there, ends_ns, np.inf).min(axis=1, initial=np.inf)
    last = np.where(there, ends_ns, -np.inf).max(axis=1, initial=-np.inf)
    return np.subtract(last, first, out=np.full(len(several), np.nan), where=several)


def alignment_text(clocks: int, collectives: int) -> str | None:
    if clocks == 1:
        return "the one clock of the capture"
    return f"the ends of {collectives:,} collectives" if collectives else None
