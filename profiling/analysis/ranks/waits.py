"""Who waits in each collective, and for whom. Called by summary.

A rank waits in a collective from its own begin until the last rank has come; what is left until its
end is the transfer. Where kernels compute meanwhile, that part is hidden, and costs by how much it
slows these kernels down: a collective's kernel takes multiprocessors from them, also while it only
waits. So a collective takes a rank what nothing hides, and what it slows.

What a set of ranks costs: in each collective for which one of them is late, what it takes the
others longer than the late one: the least of the others. That is how much sooner all would go on,
had the set come with the next. The transfer counts too: a late rank's earlier collectives are
transferred while it still computes, and while the others have nothing left to do. So ranks are held
against one another; what is gained by mending the set, `replay` tells where there are many groups.

A rank that is in several groups of ranks hands on what it waited in one to the other: it is late
there, and others wait for it, but not by its own doing. So a rank's arrival is taken less what it
has waited, since the last collective of the group, in groups of other members; and what a set costs
in a step is what it costs the one rank that it costs most.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiling.analysis.columns import first_to_end
from profiling.analysis.ranks.clocks import Clocks, spreads
from profiling.analysis.ranks.collectives import SIMULTANEOUS
from profiling.analysis.ranks.matching import Matched
from profiling.analysis.ranks.reduce import ReducedRank


@dataclass(frozen=True, eq=False)
class Waits:
    """(collectives, ranks) float64 nanoseconds; nan where a rank has no part in one."""

    matched: Matched
    start_ns: np.ndarray  # since the first step of the first rank, on its clock
    ready_ns: np.ndarray  # likewise, when the kernels that it follows had ended
    wait_ns: np.ndarray
    transfer_ns: np.ndarray
    exposed_wait_ns: np.ndarray
    exposed_ns: np.ndarray  # of both
    slowed_ns: np.ndarray  # by how much the kernels that hide it take longer
    last: np.ndarray  # (collectives,): the rank that came last
    spread_ns: np.ndarray  # (collectives,): from the first end to the last, which should be one

    @cached_property
    def slowed_by_wait_ns(self) -> np.ndarray:
        """(collectives, ranks): of slowed_ns the wait's share of the time."""
        return self.slowed_ns * self.wait_ns / np.maximum(self.wait_ns + self.transfer_ns, 1)

    @cached_property
    def lost_wait_ns(self) -> np.ndarray:
        """(collectives, ranks): what the rank is later by its wait."""
        return self.exposed_wait_ns + self.slowed_by_wait_ns

    @cached_property
    def lost_ns(self) -> np.ndarray:
        """(collectives, ranks): what it is later by wait and transfer."""
        return self.exposed_ns + self.slowed_ns

    @cached_property
    def inherited_ns(self) -> np.ndarray:
        """(collectives, ranks): of each arrival's lateness, what waits in other groups made."""
        there = ~np.isnan(self.start_ns)
        group = np.unique(np.packbits(there, axis=1), axis=0, return_inverse=True)[1].ravel()
        found = np.zeros(there.shape)
        if not group.any():
            return found
        for number in range(there.shape[1]):
            rows = np.flatnonzero(there[:, number])
            rows = rows[np.argsort(self.start_ns[rows, number], kind="stable")]
            found[rows, number] = elsewhere(self.lost_wait_ns[rows, number], group[rows])
        by_time = np.argsort(np.nanmin(self.start_ns, axis=1), kind="stable")
        by_time = by_time[np.argsort(group[by_time], kind="stable")]
        for rows in np.split(by_time, np.flatnonzero(np.diff(group[by_time])) + 1):
            place = np.ix_(rows, np.flatnonzero(there[rows[0]]))
            found[place] = handed_on(found[place], self.lost_ns[place])
        return found

    @cached_property
    def late(self) -> np.ndarray:
        """(collectives,): the rank that is waited for by its own doing."""
        arrival = np.where(np.isnan(self.start_ns), -np.inf, self.start_ns - self.inherited_ns)
        return arrival.argmax(axis=1)

    @cached_property
    def longer_ns(self) -> np.ndarray:
        """(collectives, ranks): what each spends in it beyond the late one, by whose own doing;
        inf where a rank has no part in one."""
        row, late = np.arange(len(self.late)), self.late
        inherited = np.maximum(self.inherited_ns[row, late][:, None] - self.inherited_ns, 0)
        longer = self.lost_ns - self.lost_ns[row, late][:, None] - inherited
        return np.where(np.isnan(longer), np.inf, np.maximum(longer, 0))

    def cost_ns(self, ranks: Collection[int], iterations: np.ndarray) -> np.ndarray:
        """(iterations,): what these, by their columns, cost in the steps; not all of them."""
        rows, others = np.isin(self.late, list(ranks)), np.ones(self.start_ns.shape[1], bool)
        others[list(ranks)] = False
        longer = np.where(others, self.longer_ns, np.inf)
        least = longer.min(axis=1, initial=np.inf)
        least = np.where(rows & np.isfinite(least), least, 0.0)
        spent = np.where(np.isfinite(longer), least[:, None], 0.0)
        return self.of_steps(spent, iterations).max(axis=1, initial=0.0)

    @cached_property
    def alone(self) -> tuple[np.ndarray, np.ndarray]:
        """((collectives,): what the late rank of each costs alone, (collectives, ranks): whom)"""
        late = np.arange(self.start_ns.shape[1]) == self.late[:, None]
        longer = np.where(late, np.inf, self.longer_ns)
        least = longer.min(axis=1, initial=np.inf)
        return np.where(np.isfinite(least), least, 0.0), np.isfinite(longer)

    def alone_ns(self, iterations: np.ndarray) -> np.ndarray:
        """(iterations, ranks): cost_ns of each rank by itself."""
        least, whom = self.alone
        found = np.zeros((len(iterations), whom.shape[1]))
        place = np.searchsorted(iterations, self.matched.iteration)
        rows = np.flatnonzero(np.isin(self.matched.iteration, iterations) & (least > 0))
        if len(rows):
            key = place[rows] * whom.shape[1] + self.late[rows]
            rows, key = rows[order := np.argsort(key, kind="stable")], key[order]
            first = np.flatnonzero(np.diff(key, prepend=-1))
            spent = np.where(whom[rows], least[rows, None], 0.0)
            found.flat[key[first]] = np.add.reduceat(spent, first, axis=0).max(axis=1)
        return found

    def in_turns_ns(self, iterations: np.ndarray, aside: Collection[int] = ()) -> np.ndarray:
        """(iterations,): what ranks cost one after the other; groups that wait at one time count
        once. `aside`: whose lateness does not count."""
        least, whom = self.alone
        least = np.where(np.isin(self.late, list(aside)), 0.0, least)
        spent = np.where(whom, least[:, None], 0.0)
        return self.of_steps(spent, iterations).max(axis=1, initial=0.0)

    def doubt_ns(self, ranks: Collection[int], iterations: np.ndarray) -> float:
        """How wrong the clocks may be about what these cost, all steps together: to the one rank
        about which they say least, for groups run side by side."""
        rows = np.isin(self.late, list(ranks)) & np.isin(self.matched.iteration, iterations)
        of_ranks = np.nan_to_num(self.spread_ns[rows]) @ self.matched.there[rows]
        return float(of_ranks.max(initial=0.0))

    def of_steps(self, values: np.ndarray, iterations: np.ndarray) -> np.ndarray:
        """The sum over the collectives of each iteration: (iterations,) or (iterations, ranks)."""
        rows = np.flatnonzero(np.isin(self.matched.iteration, iterations))
        rows = rows[np.argsort(self.matched.iteration[rows], kind="stable")]
        found = np.zeros((len(iterations), *values.shape[1:]))
        if len(rows):
            place = np.searchsorted(iterations, self.matched.iteration[rows])
            first = np.flatnonzero(np.diff(place, prepend=-1))
            known = np.nan_to_num(values[rows], copy=False)  # indexing has copied
            found[place[first]] = np.add.reduceat(known, first, axis=0)
        return found


def waits(ranks: Sequence[ReducedRank], matched: Matched, clocks: Clocks) -> Waits:
    """Of the ranks whose clocks are known."""
    matched = matched.among(clocks.known)
    there = matched.there
    base = ranks[0].bounds_ns[0]  # so that floats hold them
    start, end, ready = (
        np.where(there, matched.of(ranks, column) - clocks.offset_ns - base, np.nan)
        for column in ("start_ns", "end_ns", "ready_ns")
    )
    last_start = np.where(there, start, -np.inf).max(axis=1, initial=-np.inf)
    came = np.minimum(np.maximum(last_start[:, None], start), end)
    exposed_wait, exposed, slowed = (np.full(there.shape, np.nan) for _ in range(3))
    for number, rank in enumerate(ranks):
        rows = there[:, number]
        times_ns = (column[rows, number] for column in (start, came, end))
        found = exposed_ns(rank, int(clocks.offset_ns[number] + base), *times_ns)
        exposed_wait[rows, number], exposed[rows, number] = found
        slowed[rows, number] = rank.slowed_ns[matched.row[rows, number]]
    last = np.where(there, start, -np.inf).argmax(axis=1)
    return Waits(
        matched,
        start,
        ready,
        came - start,
        end - came,
        exposed_wait,
        exposed,
        slowed,
        last,
        np.where(np.isin(matched.kind, SIMULTANEOUS), spreads(end, there), np.nan),
    )


def elsewhere(waited_ns: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Of collectives of one rank, by time: what it waited in others since the last of the group."""
    before = np.cumsum(waited_ns) - waited_ns
    order = np.argsort(group, kind="stable")
    since = np.concatenate(([0.0], (before + waited_ns)[order][:-1]))
    since[np.diff(group[order], prepend=-1) != 0] = 0.0
    found = np.empty(len(order))
    found[order] = before[order] - since
    return found


def handed_on(more_ns: np.ndarray, lost_ns: np.ndarray) -> np.ndarray:
    """(collectives, members) of one group: how late each is by waits in other groups.

    `more_ns`: what it waited there since the last collective. Who waits in this one comes later to
    the next, as the late do; so far as kernels hide the wait, the late are still behind.
    """
    found, now = np.empty_like(more_ns), np.zeros(more_ns.shape[1])
    for row, (more, lost) in enumerate(zip(more_ns, lost_ns, strict=True)):
        now = now + more
        found[row] = now
        now = np.minimum(now + lost, now.max())
        now = now - now.min()
    return found


def exposed_ns(rank: ReducedRank, clock_ns: int, *times_ns: np.ndarray) -> list[np.ndarray]:
    """Of each collective of the rank [what of its wait, what of all of it] no kernel hides.

    `times_ns`: when each began, the last rank had come, it ended; `clock_ns` less than its capture
    says. Of collectives that run at one time the first to end owns it: nothing counts twice.
    """
    start, came, end = (times.astype(np.int64) for times in times_ns)
    edges = np.unique(np.concatenate((start, came, end)))
    begin, until = edges[:-1], edges[1:]
    owner = first_to_end(start, end, begin)
    begin, until, owner = (column[owner >= 0] for column in (begin, until, owner))
    alone = until - begin - rank.computing.ns_within(begin + clock_ns, until + clock_ns)
    waits = until <= came[owner]
    return [
        np.bincount(owner[chosen], alone[chosen], minlength=len(start))
        for chosen in (waits, slice(None))
    ]
