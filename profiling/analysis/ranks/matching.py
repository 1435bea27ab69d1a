"""Matching of the collectives of one rank with those of the others. Called by clocks and summary.

The method. Collectives are split into lanes, in each of which all ranks run the same collectives in
the same order. A lane is a process group where the captures name groups; otherwise it is the N-th
communication stream of each rank.

1. Where sequence numbers were recorded, the collectives of a lane with the same number are one.
2. Otherwise they are matched by their place: the N-th collective of a lane in one step is the same
   on all ranks. In the first step places are counted from the end of the step, because a rank may
   have begun to record in the middle of that step's collectives.
3. A match is only accepted if all ranks that use the lane have the same kinds and sizes in the same
   order, within the step or under the number; only in the first step may a rank have fewer. Where
   they differ, the lane stays unmatched in that step, and its collectives count as unmatched.
4. Collectives before the first step that all ranks have are matched by their place counted back
   from that step. Among them are those that were launched before a capture began (`cut_off`),
   which some ranks have and others do not, and whose sizes are not known. They serve to align the
   clocks; no step has them.

A lane is matched only by facts that all its ranks recorded: one rank without numbers, or without
sizes, makes the lane do without them. Where only some captures name groups, `untold_groups` infers
the groups of the others; if that fails, all ranks are matched by streams.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from profiling.analysis.ranks.rank_records import MatchedBy
from profiling.analysis.ranks.reduce import ReducedRank
from profiling.analysis.ranks.untold_groups import fill_in_groups, names_groups

NOT_THERE = -1
BEFORE = np.iinfo(np.int64).min  # the `step` of collectives before the first step that all have


@dataclass(frozen=True, eq=False)
class Matches:
    """The matched collectives: a row for each collective, a column for each rank."""

    row: np.ndarray  # (collectives, ranks): index in the rank's own Collectives, or NOT_THERE
    iteration: np.ndarray  # (collectives,)
    kind: np.ndarray  # (collectives,) str
    unmatched: int  # number of collectives, over all ranks, that were found on no other rank
    cut_off: int  # number of collectives, over all ranks, that were launched before the capture
    by: MatchedBy | None  # the weakest of the facts that steps were matched by; None: no match

    def values_of(self, ranks: Sequence[ReducedRank], column: str) -> np.ndarray:
        """(collectives, ranks) int64 values of one column of Collectives; 0 where NOT_THERE."""
        values = np.zeros(self.row.shape, np.int64)
        for number, rank in enumerate(ranks):
            there = self.there[:, number]
            values[there, number] = getattr(rank.collectives, column)[self.row[there, number]]
        return values

    def select_ranks(self, known: np.ndarray) -> "Matches":
        """Keep the collectives that at least two of the `known` ranks, (ranks,) bool, have."""
        row = np.where(known, self.row, NOT_THERE)
        kept = np.count_nonzero(row != NOT_THERE, axis=1) > 1
        return replace(self, row=row[kept], iteration=self.iteration[kept], kind=self.kind[kept])

    @cached_property
    def there(self) -> np.ndarray:
        """(collectives, ranks) bool: whether the rank takes part in the collective."""
        there: np.ndarray = self.row != NOT_THERE
        return there


@dataclass(frozen=True)
class CollectiveTable:
    """The collectives of all ranks in one table, rank after rank, each rank's in order of time."""

    kinds: list[str]
    rank: np.ndarray
    row: np.ndarray  # index in the rank's own Collectives
    lane: np.ndarray  # one number for equal lanes of all ranks
    iteration: np.ndarray
    step: np.ndarray  # the iteration, or -1 - sequence number where that is known
    kind: np.ndarray  # index in `kinds`
    bytes: np.ndarray
    cut_off: np.ndarray


def match(ranks: Sequence[ReducedRank]) -> Matches:
    """Match all collectives that at least two ranks have; the module explains the method."""
    table = list_collectives(ranks)
    # A group is one lane in one step (or under one sequence number). The place of a collective is
    # its index within the group on its own rank, so group and place together identify it.
    group = row_numbers(table.lane, table.step)
    place = places_in_group(table.rank, group)
    first_step = table.step == min((int(rank.iterations[0]) for rank in ranks), default=0)
    from_end = first_step | (table.step == BEFORE)
    backwards = places_in_group(table.rank[::-1], group[::-1])[::-1]
    key = row_numbers(group, np.where(from_end, backwards, place))
    kept = np.isin(group, unequal_groups(table, group, key, from_end), invert=True)
    shared = kept & (np.bincount(key, minlength=1)[key] > 1)
    numbers, first, which = np.unique(key[shared], return_index=True, return_inverse=True)
    row = np.full((len(numbers), len(ranks)), NOT_THERE)
    row[which, table.rank[shared]] = table.row[shared]
    example = np.flatnonzero(shared)[first]
    kind = np.array(table.kinds, str)[table.kind[example]] if len(example) else np.empty(0, str)
    return Matches(
        row,
        table.iteration[example],
        kind,
        int(np.count_nonzero(~shared & ~table.cut_off)),
        int(np.count_nonzero(table.cut_off)),
        weakest_fact(table, shared & (table.step != BEFORE)),
    )


def weakest_fact(table: CollectiveTable, rows: np.ndarray) -> MatchedBy | None:
    """The weakest of the facts that matched the collectives in `rows`, (rows,) bool."""
    if not rows.any():
        return None
    unnumbered = rows & (table.step >= 0)
    if not unnumbered.any():
        return "number"
    return "order" if np.any(table.bytes[unnumbered] < 0) else "size"


def list_collectives(ranks: Sequence[ReducedRank]) -> CollectiveTable:
    """Put the collectives of all ranks into one table, with the facts that all their lanes have."""
    lanes, kinds = dict[str, int](), dict[str, int]()

    def renumber(names: list[str], column: np.ndarray, known: dict[str, int]) -> np.ndarray:
        numbers = [known.setdefault(name, len(known)) for name in names]
        return np.take(np.array(numbers, np.int64), column)

    ranks = fill_in_groups(ranks)
    communicating = [rank.collectives for rank in ranks if len(rank.collectives.start_ns)]
    all_known = (
        all(collectives.has_groups_or_numbers for collectives in communicating)
        and len(set(map(names_groups, communicating))) < 2
    )
    first = max((int(rank.iterations[0]) for rank in ranks), default=0)
    parts = []
    for number, rank in enumerate(ranks):
        collectives = rank.collectives
        count = len(collectives.start_ns)
        if count:
            iteration, unknown = rank.iterations[collectives.step], np.full(count, -1)
            iteration = np.where(collectives.cut_off, first - 1, iteration)
            lane, sequence, size = (
                (collectives.lane, collectives.sequence, collectives.bytes)
                if all_known
                else (collectives.stream, unknown, unknown)
            )
            lane, kind = (
                renumber(collectives.names, lane, lanes),
                renumber(collectives.names, collectives.kind, kinds),
            )
            which = np.full(count, number), np.arange(count)
            parts.append((*which, lane, iteration, sequence, kind, size, collectives.cut_off))
    if not parts:
        return CollectiveTable(list(kinds), *(np.empty(0, np.int64),) * 7, np.empty(0, bool))
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    owner, row, lane, iteration, sequence, kind, size, cut_off = columns
    sequence, size = (blank_incomplete_lanes(lane, column, cut_off) for column in (sequence, size))
    before = np.where(iteration < first, BEFORE, iteration)
    step = np.where(sequence >= 0, -1 - sequence, before)
    with_cut_off = np.isin(row_numbers(lane, step), np.unique(row_numbers(lane, step)[cut_off]))
    size = np.where(with_cut_off, -1, size)
    return CollectiveTable(list(kinds), owner, row, lane, iteration, step, kind, size, cut_off)


def blank_incomplete_lanes(lane: np.ndarray, column: np.ndarray, cut_off: np.ndarray) -> np.ndarray:
    """Set `column` to -1 throughout each lane in which some collective has no value (-1).

    Those that were cut off say nothing of their lane.
    """
    incomplete = np.unique(lane[(column < 0) & ~cut_off])
    return np.where(np.isin(lane, incomplete), -1, column)


def row_numbers(*columns: np.ndarray) -> np.ndarray:
    """(rows,) numbers from 0 up, the same for rows that are equal in all columns."""
    if not len(columns[0]):
        return np.empty(0, np.int64)
    order = np.lexsort(columns)
    changes = np.any([np.diff(column[order]) != 0 for column in columns], axis=0)
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.concatenate(([0], np.cumsum(changes)))
    return numbers


def places_in_group(rank: np.ndarray, group: np.ndarray) -> np.ndarray:
    """(rows,) index of each row within its group on its rank; rows are in order of time."""
    both = row_numbers(group, rank)
    order = np.argsort(both, kind="stable")
    count = np.bincount(both) if len(both) else np.empty(0, np.int64)
    index = np.empty(len(both), np.int64)
    index[order] = np.arange(len(both)) - np.repeat(np.cumsum(count) - count, count)
    return index


def unequal_groups(
    table: CollectiveTable, group: np.ndarray, key: np.ndarray, may_lack: np.ndarray
) -> np.ndarray:
    """Groups in which the ranks do not all have the same collectives.

    `key` numbers the collectives that would be matched. `may_lack` marks the rows of groups in
    which a rank may have fewer than the others.
    """
    if not len(key):
        return key
    ranks_of_group = np.zeros(group.max() + 1, np.int64)
    np.add.at(ranks_of_group, group[places_in_group(table.rank, group) == 0], 1)
    fewer = ~may_lack & (np.bincount(key)[key] < ranks_of_group[group])
    first = np.unique(key, return_index=True)[1][key]
    other = (table.kind != table.kind[first]) | (table.bytes != table.bytes[first])
    return np.unique(group[fewer | other])
