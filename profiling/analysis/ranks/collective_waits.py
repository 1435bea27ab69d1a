"""Waits of each rank in each collective, and the rank that each wait is charged to.

Called by summary.

What a rank loses. A rank waits in a collective from its own start until the last rank has started;
the rest of the collective is the transfer. Kernels that compute meanwhile hide a part of both. The
hidden part is not free: a collective's kernel takes multiprocessors away from them, even while it
only waits. So a rank loses in a collective the time that no kernel hides, plus the time by which
the collective slows the kernels that hide it.

What is charged. Each collective is charged to the rank that is late for it. The others lose more
in it than the late rank does, and the smallest of these differences is how much sooner all of them
would go on if the late rank had come together with the next. That smallest difference is what the
late rank costs. For a set of ranks it is taken over the ranks outside of the set, in the
collectives for which a rank of the set is late. The transfer counts too: a late rank's earlier
collectives are transferred while it still computes, and while the others have nothing left to do.
This compares ranks with one another; `replay` computes what mending the set would gain where there
are many groups.

Several groups. A rank that belongs to several process groups passes a wait in one of them on to the
next: it arrives late there and others wait for it, through no fault of its own. So the late rank is
determined after a correction: from each rank's arrival is subtracted what it has waited in groups
of other members since the last collective of this group. As groups may wait at the same time, a set
costs in one step what it costs the one rank that loses most.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.columns import first_to_end
from profiling.analysis.ranks.clocks import Clocks, spreads
from profiling.analysis.ranks.collectives import SIMULTANEOUS
from profiling.analysis.ranks.matching import Matches
from profiling.analysis.ranks.reduce import ReducedRank


@dataclass(frozen=True, eq=False)
class Waits:
    """Waits and transfers: (collectives, ranks) float64 ns, nan where a rank takes no part."""

    matched: Matches
    start_ns: NDArray[np.float64]  # since the first step of the first rank, on its clock
    ready_ns: np.ndarray  # likewise, when the kernels that the collective follows had ended
    wait_ns: np.ndarray
    transfer_ns: np.ndarray
    exposed_wait_ns: NDArray[np.float64]  # the part of wait_ns that no kernel hides
    exposed_ns: NDArray[np.float64]  # the part of wait and transfer that no kernel hides
    slowed_ns: NDArray[np.float64]  # how much longer the kernels that hide the collective take
    last: np.ndarray  # (collectives,): column of the rank that came last
    spread_ns: np.ndarray  # (collectives,): from the first end to the last, ideally 0

    @cached_property
    def slowed_by_wait_ns(self) -> NDArray[np.float64]:
        """(collectives, ranks): the part of slowed_ns that falls to the wait, by its duration."""
        both_ns = np.maximum(self.wait_ns + self.transfer_ns, 1)
        slowed_ns: np.ndarray = self.slowed_ns * self.wait_ns / both_ns
        return slowed_ns

    @cached_property
    def lost_wait_ns(self) -> np.ndarray:
        """(collectives, ranks): time that the rank loses to its wait."""
        return self.exposed_wait_ns + self.slowed_by_wait_ns

    @cached_property
    def lost_ns(self) -> np.ndarray:
        """(collectives, ranks): time that the rank loses to wait and transfer."""
        return self.exposed_ns + self.slowed_ns

    @cached_property
    def inherited_ns(self) -> np.ndarray:
        """(collectives, ranks): how late the rank arrives because it waited in other groups.

        Groups are told apart by their members. With a single group there is nothing to inherit.
        """
        there = ~np.isnan(self.start_ns)
        group = np.unique(np.packbits(there, axis=1), axis=0, return_inverse=True)[1].ravel()
        inherited_ns = np.zeros(there.shape)
        if not group.any():
            return inherited_ns
        for number in range(there.shape[1]):
            rows = np.flatnonzero(there[:, number])
            rows = rows[np.argsort(self.start_ns[rows, number], kind="stable")]
            inherited_ns[rows, number] = waits_elsewhere(
                self.lost_wait_ns[rows, number], group[rows]
            )
        by_time = np.argsort(np.nanmin(self.start_ns, axis=1), kind="stable")
        by_time = by_time[np.argsort(group[by_time], kind="stable")]
        for rows in np.split(by_time, np.flatnonzero(np.diff(group[by_time])) + 1):
            place = np.ix_(rows, np.flatnonzero(there[rows[0]]))
            inherited_ns[place] = inherited_lateness(inherited_ns[place], self.lost_ns[place])
        return inherited_ns

    @cached_property
    def late(self) -> np.ndarray:
        """(collectives,): column of the rank that comes last once inherited lateness is removed."""
        arrival = np.where(np.isnan(self.start_ns), -np.inf, self.start_ns - self.inherited_ns)
        late: np.ndarray = arrival.argmax(axis=1)
        return late

    @cached_property
    def longer_ns(self) -> np.ndarray:
        """(collectives, ranks): time that each rank loses because the late rank comes late.

        That is its loss beyond the late rank's own, less the lateness that the late rank inherited
        beyond this rank; never negative, and inf where a rank takes no part.
        """
        row, late = np.arange(len(self.late)), self.late
        inherited = np.maximum(self.inherited_ns[row, late][:, None] - self.inherited_ns, 0)
        longer = self.lost_ns - self.lost_ns[row, late][:, None] - inherited
        return np.where(np.isnan(longer), np.inf, np.maximum(longer, 0))

    def cost_ns(self, ranks: Collection[int], iterations: np.ndarray) -> np.ndarray:
        """(iterations,): what `ranks`, as columns, cost the others in each step.

        In each collective for which one of `ranks` is late, every other member is taken to lose the
        smallest longer_ns among these members. The step's cost is the sum over its collectives, for
        the member that loses most. `ranks` are not all ranks.
        """
        rows, others = np.isin(self.late, list(ranks)), np.ones(self.start_ns.shape[1], bool)
        others[list(ranks)] = False
        longer = np.where(others, self.longer_ns, np.inf)
        least = longer.min(axis=1, initial=np.inf)
        least = np.where(rows & np.isfinite(least), least, 0.0)
        spent = np.where(np.isfinite(longer), least[:, None], 0.0)
        cost_ns: np.ndarray = self.sum_by_step(spent, iterations).max(axis=1, initial=0.0)
        return cost_ns

    @cached_property
    def alone_costs(self) -> tuple[np.ndarray, np.ndarray]:
        """(cost of each collective's late rank by itself, ranks that it costs that).

        The shapes are (collectives,) in ns and (collectives, ranks) bool.
        """
        late = np.arange(self.start_ns.shape[1]) == self.late[:, None]
        longer = np.where(late, np.inf, self.longer_ns)
        least = longer.min(axis=1, initial=np.inf)
        return np.where(np.isfinite(least), least, 0.0), np.isfinite(longer)

    def alone_ns(self, iterations: np.ndarray) -> np.ndarray:
        """(iterations, ranks): cost_ns of each rank by itself, computed for all at once."""
        least, losers = self.alone_costs
        costs_ns = np.zeros((len(iterations), losers.shape[1]))
        place = np.searchsorted(iterations, self.matched.iteration)
        rows = np.flatnonzero(np.isin(self.matched.iteration, iterations) & (least > 0))
        if len(rows):
            key = place[rows] * losers.shape[1] + self.late[rows]
            rows, key = rows[order := np.argsort(key, kind="stable")], key[order]
            first = np.flatnonzero(np.diff(key, prepend=-1))
            spent = np.where(losers[rows], least[rows, None], 0.0)
            costs_ns.flat[key[first]] = np.add.reduceat(spent, first, axis=0).max(axis=1)
        return costs_ns

    def in_turns_ns(self, iterations: np.ndarray, excluded: Collection[int] = ()) -> np.ndarray:
        """(iterations,): what all late ranks of a step cost together, each by itself.

        Groups that wait at the same time count once. The lateness of the `excluded` columns does
        not count.
        """
        least, losers = self.alone_costs
        least = np.where(np.isin(self.late, list(excluded)), 0.0, least)
        spent = np.where(losers, least[:, None], 0.0)
        cost_ns: np.ndarray = self.sum_by_step(spent, iterations).max(axis=1, initial=0.0)
        return cost_ns

    def doubt_ns(self, ranks: Collection[int], iterations: np.ndarray) -> float:
        """Error in ns that the clocks leave in the cost of `ranks`, summed over all steps.

        Groups run side by side, so it is the error for the one rank with the largest.
        """
        rows = np.isin(self.late, list(ranks)) & np.isin(self.matched.iteration, iterations)
        of_ranks = np.nan_to_num(self.spread_ns[rows]) @ self.matched.there[rows]
        return float(of_ranks.max(initial=0.0))

    def sum_by_step(self, values: np.ndarray, iterations: np.ndarray) -> np.ndarray:
        """Sum of `values` over the collectives of each iteration; nan counts as 0.

        Returns (iterations,) or (iterations, ranks), as `values` has one or two axes.
        """
        rows = np.flatnonzero(np.isin(self.matched.iteration, iterations))
        rows = rows[np.argsort(self.matched.iteration[rows], kind="stable")]
        sums = np.zeros((len(iterations), *values.shape[1:]))
        if len(rows):
            place = np.searchsorted(iterations, self.matched.iteration[rows])
            first = np.flatnonzero(np.diff(place, prepend=-1))
            known = np.nan_to_num(values[rows], copy=False)  # indexing has copied
            sums[place[first]] = np.add.reduceat(known, first, axis=0)
        return sums


def find_waits(ranks: Sequence[ReducedRank], matched: Matches, clocks: Clocks) -> Waits:
    """Measure wait, transfer and exposed time of the ranks whose clocks are known."""
    matched = matched.select_ranks(clocks.known)
    there = matched.there
    base = ranks[0].bounds_ns[0]  # times are counted from here, so that floats hold them exactly
    start, end, ready = (
        np.where(there, matched.values_of(ranks, column) - clocks.offset_ns - base, np.nan)
        for column in ("start_ns", "end_ns", "ready_ns")
    )
    last_start = np.where(there, start, -np.inf).max(axis=1, initial=-np.inf)
    came = np.minimum(np.maximum(last_start[:, None], start), end)
    exposed_wait, exposed, slowed = (np.full(there.shape, np.nan) for _ in range(3))
    for number, rank in enumerate(ranks):
        rows = there[:, number]
        times_ns = (column[rows, number] for column in (start, came, end))
        parts_ns = exposed_ns(rank, int(clocks.offset_ns[number] + base), *times_ns)
        exposed_wait[rows, number], exposed[rows, number] = parts_ns
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


def waits_elsewhere(waited_ns: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Time that a rank waited in other groups since the last collective of the same group.

    `waited_ns` and `group` are of the rank's collectives in order of time, as is the result.
    """
    before = np.cumsum(waited_ns) - waited_ns
    order = np.argsort(group, kind="stable")
    since = np.concatenate(([0.0], (before + waited_ns)[order][:-1]))
    since[np.diff(group[order], prepend=-1) != 0] = 0.0
    elsewhere_ns = np.empty(len(order))
    elsewhere_ns[order] = before[order] - since
    return elsewhere_ns


def inherited_lateness(more_ns: np.ndarray, lost_ns: np.ndarray) -> np.ndarray:
    """(collectives, members) ns of one group: how late each arrives by waits in other groups.

    `more_ns` is what it waited there since the group's last collective. A member that waits in this
    collective comes later to the next one, and so catches up with the late ones. So far as kernels
    hide that wait it loses nothing, and the late ones are still behind.
    """
    inherited_ns, late_ns = np.empty_like(more_ns), np.zeros(more_ns.shape[1])
    for row, (more, lost) in enumerate(zip(more_ns, lost_ns, strict=True)):
        late_ns = late_ns + more
        inherited_ns[row] = late_ns
        late_ns = np.minimum(late_ns + lost, late_ns.max())
        late_ns = late_ns - late_ns.min()
    return inherited_ns


def exposed_ns(rank: ReducedRank, clock_ns: int, *times_ns: np.ndarray) -> list[np.ndarray]:
    """[exposed wait, exposed time in all] of each collective of the rank, in ns.

    `times_ns` are three columns: when each collective began, when its last rank had come, and when
    it ended, all `clock_ns` less than on the clock of the rank's capture. Where collectives
    overlap, the time belongs to the one that ends first, so that nothing counts twice.
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
