"""Which collective of one rank is which of another's. Called by clocks and summary.

Collectives of one lane (a process group, else the N-th stream of each rank) are the same where they
bear the same number. Where numbers were not recorded they are the same if they are the N-th of one
step, and if in that step all ranks that use the lane have the same kinds and sizes in the same
order. Where that is not so, the lane stays unmatched in that step, and is counted. Ranks of one
lane are matched by what all of them tell, numbers and sizes. Where only some captures name groups,
`untold_groups` finds those of the others; if that fails, all are matched by streams. In the first
step they are counted from its end: a rank may have begun to record amid the collectives before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiling.analysis.ranks.reduce import ReducedRank
from profiling.analysis.ranks.untold_groups import fill_in_groups, names_groups

NOT_THERE = -1


@dataclass(frozen=True, eq=False)
class Matches:
    """A row for each collective, a column for each rank."""

    row: np.ndarray  # (collectives, ranks): of the rank's collectives; NOT_THERE
    iteration: np.ndarray  # (collectives,)
    kind: np.ndarray  # (collectives,) str
    unmatched: int  # collectives of all ranks that were found on no other

    def values_of(self, ranks: Sequence[ReducedRank], column: str) -> np.ndarray:
        """(collectives, ranks) int64 of a column of Collectives; 0 where it is NOT_THERE."""
        found = np.zeros(self.row.shape, np.int64)
        for number, rank in enumerate(ranks):
            there = self.there[:, number]
            found[there, number] = getattr(rank.collectives, column)[self.row[there, number]]
        return found

    def select_ranks(self, known: np.ndarray) -> "Matches":
        """What at least two of these ranks have, (ranks,) bool."""
        row = np.where(known, self.row, NOT_THERE)
        kept = np.count_nonzero(row != NOT_THERE, axis=1) > 1
        return Matches(row[kept], self.iteration[kept], self.kind[kept], self.unmatched)

    @cached_property
    def there(self) -> np.ndarray:
        """(collectives, ranks) bool"""
        return self.row != NOT_THERE


@dataclass(frozen=True)
class CollectiveTable:
    """The collectives of all ranks, one rank's behind another's; texts as numbers of one list."""

    kinds: list[str]
    rank: np.ndarray
    row: np.ndarray  # of the rank's collectives
    lane: np.ndarray
    iteration: np.ndarray
    step: np.ndarray  # likewise; where a sequence number is known that number, less than 0
    kind: np.ndarray
    bytes: np.ndarray


def match(ranks: Sequence[ReducedRank]) -> Matches:
    """Of what at least two ranks have."""
    table = list_collectives(ranks)
    # of each lane in each step, and the place of each collective in these on its rank
    group = row_numbers(table.lane, table.step)
    place = places_in_group(table.rank, group)
    first_step = table.step == min((int(rank.iterations[0]) for rank in ranks), default=0)
    backwards = places_in_group(table.rank[::-1], group[::-1])[::-1]
    key = row_numbers(group, np.where(first_step, backwards, place))
    kept = np.isin(group, unequal_groups(table, group, key, first_step), invert=True)
    shared = kept & (np.bincount(key, minlength=1)[key] > 1)
    numbers, first, which = np.unique(key[shared], return_index=True, return_inverse=True)
    row = np.full((len(numbers), len(ranks)), NOT_THERE)
    row[which, table.rank[shared]] = table.row[shared]
    of = np.flatnonzero(shared)[first]
    kind = np.array(table.kinds, str)[table.kind[of]] if len(of) else np.empty(0, str)
    return Matches(row, table.iteration[of], kind, int(np.count_nonzero(~shared)))


def list_collectives(ranks: Sequence[ReducedRank]) -> CollectiveTable:
    lanes, kinds = dict[str, int](), dict[str, int]()

    def renumber(names: list[str], column: np.ndarray, known: dict[str, int]) -> np.ndarray:
        return np.array([known.setdefault(name, len(known)) for name in names], np.int64)[column]

    ranks = fill_in_groups(ranks)
    talking = [rank.collectives for rank in ranks if len(rank.collectives.start_ns)]
    all_tell = (
        all(of.has_groups_or_numbers for of in talking) and len(set(map(names_groups, talking))) < 2
    )
    parts = []
    for number, rank in enumerate(ranks):
        of = rank.collectives
        count = len(of.start_ns)
        if count:
            iteration, untold = rank.iterations[of.step], np.full(count, -1)
            lane, sequence, size = (
                (of.lane, of.sequence, of.bytes) if all_tell else (of.stream, untold, untold)
            )
            lane, kind = renumber(of.names, lane, lanes), renumber(of.names, of.kind, kinds)
            which = np.full(count, number), np.arange(count)
            parts.append((*which, lane, iteration, sequence, kind, size))
    if not parts:
        return CollectiveTable(list(kinds), *(np.empty(0, np.int64),) * 7)
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    owner, row, lane, iteration, sequence, kind, size = columns
    sequence, size = (blank_incomplete_lanes(lane, column) for column in (sequence, size))
    step = np.where(sequence >= 0, -1 - sequence, iteration)
    return CollectiveTable(list(kinds), owner, row, lane, iteration, step, kind, size)


def blank_incomplete_lanes(lane: np.ndarray, column: np.ndarray) -> np.ndarray:
    """-1 throughout a lane in which it is so of some."""
    untold = np.unique(lane[column < 0])
    return np.where(np.isin(lane, untold), -1, column)


def row_numbers(*columns: np.ndarray) -> np.ndarray:
    """One number for each row of the columns, the same for equal rows."""
    if not len(columns[0]):
        return np.empty(0, np.int64)
    order = np.lexsort(columns)
    changes = np.any([np.diff(column[order]) != 0 for column in columns], axis=0)
    found = np.empty(len(order), np.int64)
    found[order] = np.concatenate(([0], np.cumsum(changes)))
    return found


def places_in_group(rank: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The how many-th of its group each row is on its rank; rows are in order of time."""
    both = row_numbers(group, rank)
    order = np.argsort(both, kind="stable")
    count = np.bincount(both) if len(both) else np.empty(0, np.int64)
    found = np.empty(len(both), np.int64)
    found[order] = np.arange(len(both)) - np.repeat(np.cumsum(count) - count, count)
    return found


def unequal_groups(
    table: CollectiveTable, group: np.ndarray, key: np.ndarray, may_lack: np.ndarray
) -> np.ndarray:
    """The groups in which some ranks have other collectives than others.

    `may_lack`: those in which some may have fewer.
    """
    if not len(key):
        return key
    ranks_of_group = np.zeros(group.max() + 1, np.int64)
    np.add.at(ranks_of_group, group[places_in_group(table.rank, group) == 0], 1)
    fewer = ~may_lack & (np.bincount(key)[key] < ranks_of_group[group])
    first = np.unique(key, return_index=True)[1][key]
    other = (table.kind != table.kind[first]) | (table.bytes != table.bytes[first])
    return np.unique(group[fewer | other])
