"""Replay of the collectives to find how much sooner all ranks would go on if some were mended.

Called by costs.

The method. All collectives are replayed in the order of their times, with a single change: in each
of them the late ranks start no later than the last of the others. Whatever a rank does between two
collectives takes as long as it did. From that follow four rules:

1. A rank starts a collective as much sooner as it went on sooner after the one before.
2. A collective that was only queued in its stream behind the one before starts when that one ends,
   or when the kernels that it follows have ended, whichever is later.
3. A collective ends as much sooner as its last rank starts sooner.
4. A rank goes on as much sooner as the collective ends sooner, but by no more than the part of the
   collective that no kernel hid. Where kernels hid all of it, the rank goes on sooner by the time
   by which the wait slowed these kernels.

So lateness that ranks pass on from one group to another is charged to no other rank, and where
another rank would have been waited for instead, only the remaining gain counts.

Jitter. The replay never lets a late rank be the last, and so frees it of its random jitter too,
which mending would not. The other ranks show how much that is: it is what would be gained in
addition if one of them were never the last either. Of that additional gain its median over the
iterations is subtracted first, because lateness that is always there is no jitter.
"""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.ranks.collective_waits import Waits

QUEUED_NS = 20_000  # a collective that only waited for the one before begins within this of its end
FEW = 16  # ranks; among more of them the jitter of one is hardly ever what others wait for


class Replay:
    """State of the replay at the time that it has reached; all of (ranks,) unless noted.

    `sooner_ns` is how much sooner each rank's kernels run than they did.
    """

    def __init__(self, waits: Waits, late: Collection[int]):
        self.waits, ranks = waits, waits.start_ns.shape[1]
        self.late = np.isin(np.arange(ranks), list(late))
        self.end_ns = waits.start_ns + waits.wait_ns + waits.transfer_ns
        self.sooner_ns = np.zeros(ranks)
        # end of the kernels before the last exposed stretch of collectives, and how much sooner
        # that is now
        self.computed_ns, self.computed_sooner_ns = np.full(ranks, -np.inf), np.zeros(ranks)
        # end of the last collective, and how much sooner that is now
        self.ended_ns, self.ended_sooner_ns = np.full(ranks, -np.inf), np.zeros(ranks)
        # (collectives, ranks): when each begins now, and when the kernels that it follows let it
        self.begins_ns, self.ready_ns = np.full((2, *waits.start_ns.shape), np.nan)

    def begin(self, row: int, rank: int) -> None:
        """Set when `rank` begins collective `row` now: rules 1 and 2."""
        start_ns, ready_ns = self.waits.start_ns[row, rank], self.waits.ready_ns[row, rank]
        begins_ns = start_ns - self.sooner_ns[rank]
        if abs(start_ns - self.ended_ns[rank]) < QUEUED_NS:
            before = ready_ns <= self.computed_ns[rank] + QUEUED_NS
            ready_ns -= (self.computed_sooner_ns if before else self.sooner_ns)[rank]
            begins_ns = max(ready_ns, start_ns - self.ended_sooner_ns[rank])
        else:
            ready_ns = begins_ns
        self.begins_ns[row, rank], self.ready_ns[row, rank] = begins_ns, ready_ns

    def end(self, row: int) -> None:
        """End collective `row`, and move its members ahead by what they gain: rules 3 and 4."""
        waits, members = self.waits, np.flatnonzero(self.waits.matched.there[row])
        begins_ns, late = self.begins_ns[row, members], self.late[members]
        earlier_ns = np.zeros(len(members))
        if late.any() and not late.all():
            # A late rank whose kernels were ready only after the last of the others had begun is
            # taken to be ready then, so its own kernels run that much sooner.
            last_ns = begins_ns[~late].max()
            earlier_ns[late] = np.maximum(self.ready_ns[row, members[late]] - last_ns, 0)
            begins_ns = np.where(late, np.minimum(begins_ns, last_ns), begins_ns)
        ends_sooner_ns = max(waits.start_ns[row, members].max() - begins_ns.max(), 0.0)
        exposed_ns = waits.exposed_ns[row, members]
        slowed_ns = waits.slowed_by_wait_ns[row, members]
        end_ns, sooner_ns = self.end_ns[row, members], self.sooner_ns[members] + earlier_ns
        bare_ns = end_ns - exposed_ns  # time from which no kernel hides the collective
        # Collectives that follow each other at once and are exposed form one stretch, which the
        # rank's kernels had ended before.
        goes_on = (exposed_ns > 0) & (bare_ns <= self.ended_ns[members] + QUEUED_NS)
        self.computed_ns[members] = np.where(goes_on, self.computed_ns[members], bare_ns)
        before_ns = np.where(goes_on, self.computed_sooner_ns[members] + earlier_ns, sooner_ns)
        self.computed_sooner_ns[members] = before_ns = before_ns + slowed_ns
        # After an exposed collective the rank goes on when both that and its kernels have ended;
        # after a hidden one it has gained only the time by which the wait slowed its kernels.
        self.sooner_ns[members] = np.where(
            exposed_ns > 0,
            np.minimum(end_ns - self.computed_ns[members] + before_ns, ends_sooner_ns),
            np.minimum(sooner_ns + slowed_ns, np.maximum(sooner_ns, ends_sooner_ns)),
        )
        self.ended_ns[members], self.ended_sooner_ns[members] = end_ns, ends_sooner_ns


def sooner_ns(waits: Waits, late: Collection[int], iterations: np.ndarray) -> NDArray[np.float64]:
    """(iterations,) ns that each step would be shorter if the `late` ranks were never the last.

    It is the median over the other ranks that depend on them. `late` are columns, and not all. A
    value is negative where a gain of an earlier step turns out to be lost again.
    """
    replay, matched = Replay(waits, late), waits.matched
    others = ~replay.late & connected_ranks(matched.there, replay.late)
    gained_ns, place = np.zeros(len(iterations)), np.searchsorted(iterations, matched.iteration)
    for row, rank in ordered_events(replay, np.flatnonzero(np.isin(matched.iteration, iterations))):
        if rank is not None:
            replay.begin(row, rank)
        else:
            replay.end(row)
            gained_ns[place[row] :] = np.median(replay.sooner_ns[others]) if others.any() else 0.0
    return np.diff(gained_ns, prepend=0.0)


def own_jitter_ns(
    waits: Waits, late: Collection[int], iterations: np.ndarray, late_ns: np.ndarray
) -> NDArray[np.float64]:
    """(iterations,) ns of `late_ns`, the sooner_ns of `late`, that mending would not gain.

    See the module on jitter. It is 0 for several groups of ranks, where one passes jitter on to
    another, for two ranks, and for FEW other ranks or more.
    """
    ranks = waits.start_ns.shape[1]
    others = np.setdiff1d(np.arange(ranks), list(late))
    if not 1 < len(others) < FEW or not np.all(waits.matched.there):
        return np.zeros(len(iterations))
    more_ns = [sooner_ns(waits, [*late, one], iterations) - late_ns for one in others]
    jitter_ns: np.ndarray = len(late) * np.mean([ns - np.median(ns) for ns in more_ns], axis=0)
    return jitter_ns


def ordered_events(replay: Replay, rows: np.ndarray) -> list[tuple[int, int | None]]:
    """Events in order of time: (collective, rank that begins it, or None when it ends)."""
    start_ns = replay.waits.start_ns[rows]
    collective, rank = np.nonzero(~np.isnan(start_ns))
    last_ns = np.nanmax(start_ns, axis=1, initial=-np.inf)
    end_ns = np.maximum(np.nanmin(replay.end_ns[rows], axis=1, initial=np.inf), last_ns)
    # one that begins as another ends, as copies on one stream do, begins behind that
    first_ns = np.nanmin(start_ns, axis=1, initial=np.inf)
    order = np.lexsort(
        (
            np.concatenate((first_ns[collective], first_ns)),
            np.concatenate((start_ns[collective, rank], end_ns)),
        )
    )
    begins = [(int(rows[i]), int(j)) for i, j in zip(collective, rank, strict=True)]
    events: list[tuple[int, int | None]] = [*begins, *((int(row), None) for row in rows)]
    return [events[number] for number in order.tolist()]


def connected_ranks(there: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """(ranks,) bool: `ranks` and all that share collectives with them, directly or indirectly."""
    while True:
        more = ranks | there[np.any(there & ranks, axis=1)].any(axis=0)
        if np.array_equal(more, ranks):
            return ranks
        ranks = more
