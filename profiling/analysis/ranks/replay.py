"""How much sooner all ranks would go on, were some of them mended. Called by costs.

The collectives are replayed in the order of their times. In each, the late ranks come no later than
the last of the others. What a rank does between collectives takes as long as it did, so that it
begins the next as much sooner as it went on; one that had to wait in its stream for the collective
before begins when that ends, or when the kernels that it follows have ended. A rank goes on sooner
by as much as the collective ends sooner, but by no more than nothing hid of it. Where kernels hid
all, it goes on sooner by what the wait slowed them.

So what ranks hand on from one group to another is nobody else's, and where another rank would have
been waited for instead, only what is left counts.

A rank that is never the last is freed of its jitter too, which mending would not do. By how much
that is too much the other ranks tell: as much as more would be gained, were one of them never last
either. What it is in most iterations is left out: who is always late has no jitter.
"""

from collections.abc import Collection

import numpy as np

from profiling.analysis.ranks.waits import Waits

QUEUED_NS = 20_000  # within which a collective begins that only waited for the one before
FEW = 16  # ranks; among more of them the jitter of one is hardly ever what others wait for


class Replay:
    """Of each rank, (ranks,): how much sooner its kernels run at the time that is reached."""

    def __init__(self, waits: Waits, late: Collection[int]):
        self.waits, ranks = waits, waits.start_ns.shape[1]
        self.late = np.isin(np.arange(ranks), list(late))
        self.end_ns = waits.start_ns + waits.wait_ns + waits.transfer_ns
        self.sooner_ns = np.zeros(ranks)
        # when kernels had ended before what nothing hid last, and how much sooner that is
        self.computed_ns, self.computed_sooner_ns = np.full(ranks, -np.inf), np.zeros(ranks)
        # of the last collective: its end, and how much sooner that is
        self.ended_ns, self.ended_sooner_ns = np.full(ranks, -np.inf), np.zeros(ranks)
        # (collectives, ranks): when each begins now, and could as far as its kernels go
        self.begins_ns, self.ready_ns = np.full((2, *waits.start_ns.shape), np.nan)

    def begin(self, row: int, rank: int) -> None:
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
        waits, members = self.waits, np.flatnonzero(self.waits.matched.there[row])
        begins_ns, late = self.begins_ns[row, members], self.late[members]
        earlier_ns = np.zeros(len(members))  # that the late have computed, by themselves
        if late.any() and not late.all():
            last_ns = begins_ns[~late].max()
            earlier_ns[late] = np.maximum(self.ready_ns[row, members[late]] - last_ns, 0)
            begins_ns = np.where(late, np.minimum(begins_ns, last_ns), begins_ns)
        ends_sooner_ns = max(waits.start_ns[row, members].max() - begins_ns.max(), 0.0)
        exposed_ns, slowed_ns = (
            waits.exposed_ns[row, members],
            waits.slowed_by_wait_ns[row, members],
        )
        end_ns, sooner_ns = self.end_ns[row, members], self.sooner_ns[members] + earlier_ns
        bare_ns = end_ns - exposed_ns  # since when nothing hides it
        goes_on = (exposed_ns > 0) & (bare_ns <= self.ended_ns[members] + QUEUED_NS)
        self.computed_ns[members] = np.where(goes_on, self.computed_ns[members], bare_ns)
        before_ns = np.where(goes_on, self.computed_sooner_ns[members] + earlier_ns, sooner_ns)
        self.computed_sooner_ns[members] = before_ns = before_ns + slowed_ns
        self.sooner_ns[members] = np.where(
            exposed_ns > 0,
            np.minimum(end_ns - self.computed_ns[members] + before_ns, ends_sooner_ns),
            np.minimum(sooner_ns + slowed_ns, np.maximum(sooner_ns, ends_sooner_ns)),
        )
        self.ended_ns[members], self.ended_sooner_ns[members] = end_ns, ends_sooner_ns


def sooner_ns(waits: Waits, late: Collection[int], iterations: np.ndarray) -> np.ndarray:
    """(iterations,): were the late never the last; by the median of the others that meet them.

    `late`: columns, not all. Less than 0 where what was won before turns out to be lost.
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
) -> np.ndarray:
    """(iterations,): what of sooner_ns mending would not gain; `late_ns`: sooner_ns of the late.

    Nothing in several groups of ranks, where one hands it on to another, nor with two ranks.
    """
    ranks = waits.start_ns.shape[1]
    others = np.setdiff1d(np.arange(ranks), list(late))
    if not 1 < len(others) < FEW or not np.all(waits.matched.there):
        return np.zeros(len(iterations))
    more_ns = [sooner_ns(waits, [*late, one], iterations) - late_ns for one in others]
    return len(late) * np.mean([ns - np.median(ns) for ns in more_ns], axis=0)


def ordered_events(replay: Replay, rows: np.ndarray) -> list[tuple[int, int | None]]:
    """(collective, the rank that begins it, or None: it ends), by time."""
    start_ns = replay.waits.start_ns[rows]
    collective, rank = np.nonzero(~np.isnan(start_ns))
    last_ns = np.nanmax(start_ns, axis=1, initial=-np.inf)
    end_ns = np.maximum(np.nanmin(replay.end_ns[rows], axis=1, initial=np.inf), last_ns)
    order = np.argsort(np.concatenate((start_ns[collective, rank], end_ns)), kind="stable")
    begins = [(int(rows[i]), int(j)) for i, j in zip(collective, rank, strict=True)]
    events: list[tuple[int, int | None]] = [*begins, *((int(row), None) for row in rows)]
    return [events[number] for number in order.tolist()]


def connected_ranks(there: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """(ranks,) bool: those that share collectives with these, or with others that do."""
    while True:
        more = ranks | there[np.any(there & ranks, axis=1)].any(axis=0)
        if np.array_equal(more, ranks):
            return ranks
        ranks = more
