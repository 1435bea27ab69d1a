"""Calls of one process group on all its ranks: where they differ, and which does not end.

Called by profiling.analysis.hang.analysis.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.hang.hang_records import Call, Stuck, Variant, Why
from profiling.timeline.flight_dump import Dump, GroupCalls, Operation

# collectives whose sizes may differ between ranks: the root alone has them, or each has a share
UNEVEN = frozenset({"gather", "scatter", "reduce", "all_gather_v", "reduce_scatter_v"})
NONE = -1


@dataclass(frozen=True)
class GroupOfRanks:
    """A process group and the dumps of its ranks. `members` is None where no dump lists them."""

    name: tuple[str, str]
    dumps: list[Dump]  # of its members
    members: tuple[int, ...] | None

    @property
    def display_name(self) -> str:
        name, description = self.name
        return f"{name} ({description})" if description not in ("", "undefined") else name

    @cached_property
    def calls(self) -> list[GroupCalls | None]:
        """Calls of this group in each dump; None where the rank has none."""
        return [dump.groups.get(self.name) for dump in self.dumps]

    @cached_property
    def entered_to(self) -> NDArray[np.int64]:
        """(dumps,) the last sequence number that each rank has entered; 0: none."""
        return np.array([int(c.sequence[-1]) if c else 0 for c in self.calls], np.int64)

    @cached_property
    def finished_to(self) -> NDArray[np.int64]:
        """(dumps,) the last sequence number that each rank has finished; 0: none.

        A collective that all ranks have entered and one has finished counts as finished on all,
        since one dump may be a little older than another.
        """
        finished = np.array([c.finished_to if c else 0 for c in self.calls], np.int64)
        return np.maximum(finished, min(int(finished.max()), int(self.entered_to.min())))

    def outdated_ranks(self, skew_ns: int) -> list[int]:
        """Ranks whose dumps are older than a call that they lack and another rank has finished.

        `skew_ns` is allowed for different clocks. Ranks that an error ended are not among them:
        their dumps are their last, and gloo also calls a collective finished when merely others
        follow it.
        """
        done = [(c.finished_to, at) for c in self.calls if c and (at := c.finished_at_ns)]
        last, entered_ns = max(done, default=(0, 0))
        return [
            dump.rank
            for dump, mine in zip(self.dumps, self.entered_to, strict=True)
            if mine < last and dump.dumped_ns + skew_ns < entered_ns
            if dump.note is None or dump.note.error is None
        ]

    @cached_property
    def sequences(self) -> NDArray[np.int64]:
        """All sequence numbers that any rank has, ascending."""
        return np.unique(np.concatenate([c.sequence for c in self.calls if c]))

    def first_unfinished(self) -> int | None:
        """First sequence number that some rank has not entered or not finished, or None."""
        front = int(self.entered_to.max())
        behind = self.entered_to[self.entered_to < front] + 1
        waiting = self.finished_to[self.finished_to < self.entered_to] + 1
        candidates = np.concatenate([behind, waiting])
        # nothing is known of calls that have fallen out of every rank's ring buffer
        candidates = np.maximum(candidates, self.sequences[0])
        return int(candidates.min()) if candidates.size else None

    def first_mismatch(self) -> int | None:
        """First sequence number at which two ranks called different things, or None."""
        kinds: dict[object, int] = {}
        rows = np.full((len(self.calls), self.sequences.size), NONE, np.int32)
        for row, calls in zip(rows, self.calls, strict=True):
            if calls:
                codes = [kinds.setdefault(comparable_part(o), len(kinds)) for o in calls.operation]
                row[np.searchsorted(self.sequences, calls.sequence)] = codes
        most = rows.max(axis=0)
        least = np.where(rows == NONE, np.iinfo(np.int32).max, rows).min(axis=0)
        at = np.flatnonzero(least < most)
        return int(self.sequences[at[0]]) if at.size else None

    def find_stuck(self) -> Stuck | None:
        """The collective that the group is stuck in; None where no rank waits.

        It is the first unfinished one, or an earlier mismatch, or any mismatch if all have entered.
        """
        unfinished, waits = self.first_unfinished(), self.finished_to < self.entered_to
        if unfinished is None or not waits.any():
            return None
        absent = [
            d.rank for d, last in zip(self.dumps, self.entered_to, strict=True) if last < unfinished
        ]
        # a root need not wait for all, so a rank may already wait in a later call
        inside = waits & (self.entered_to >= unfinished)
        known = {dump.rank for dump in self.dumps}
        no_dump = [rank for rank in self.members or () if rank not in known]
        why: Why = "absent" if absent else "no_dump" if no_dump else "entered"
        sequence, mismatch = unfinished, self.first_mismatch()
        if mismatch is not None and (mismatch <= unfinished or not absent):
            why, sequence = "mismatch", mismatch
        return Stuck(
            why,
            self.display_name,
            list(self.members) if self.members else None,
            sequence,
            self.variants(sequence),
            [dump.rank for dump, waits in zip(self.dumps, inside, strict=True) if waits],
            absent,
            no_dump,
            *self.longest_wait(),
        )

    def longest_wait(self) -> tuple[float | None, float | None, bool]:
        """(longest wait in s, shortest timeout in s, whether torch gave up) of ranks that wait."""
        waits, timeouts, given_up = [], [], False
        for dump, calls, finished in zip(self.dumps, self.calls, self.finished_to, strict=True):
            if calls and finished < calls.sequence[-1]:
                at = int(np.searchsorted(calls.sequence, finished, side="right"))
                waits.append(max(0, dump.dumped_ns - int(calls.entered_ns[at])) / 1e9)
                timeouts.append(int(calls.timeout_ms[at]) / 1e3)
                given_up |= bool(calls.timed_out[at:].any())
        return max(waits, default=None), min(timeouts, default=0) or None, given_up

    def variants(self, sequence: int) -> list[Variant]:
        """Different calls of the ranks at that sequence number, the most frequent first."""
        callers: dict[object, list[int]] = {}
        for index, calls in enumerate(self.calls):
            at = index_of(calls, sequence)
            if calls and at is not None:
                callers.setdefault(comparable_part(calls.operation[at]), []).append(index)
        most_first = sorted(callers.values(), key=len, reverse=True)
        return [
            Variant([self.dumps[i].rank for i in alike], self.call(alike[0], sequence))
            for alike in most_first
        ]

    def call(self, index: int, sequence: int) -> Call:
        """Record of the call with that sequence number, which dump number `index` has."""
        calls = self.calls[index]
        at = index_of(calls, sequence)
        assert calls and at is not None
        done = calls.operation[at]
        return Call(
            self.display_name,
            sequence,
            done.name,
            done.backend,
            [list(sizes) for sizes in done.input_sizes],
            [list(sizes) for sizes in done.output_sizes],
            list(done.dtypes),
            int(calls.entered_ns[at]),
            sequence <= calls.finished_to,
            list(calls.stack[at]),
        )


def index_of(calls: GroupCalls | None, sequence: int) -> int | None:
    """Index of that sequence number in `calls`, or None."""
    if calls is None:
        return None
    at = int(np.searchsorted(calls.sequence, sequence))
    return at if at < calls.sequence.size and calls.sequence[at] == sequence else None


def comparable_part(operation: Operation) -> object:
    """The part of a call that has to be equal on all ranks of a group."""
    if operation.name in UNEVEN or operation.name.startswith("all_to_all"):
        return operation.name, operation.dtypes
    return operation
