"""Replays a history of the allocator: when each allocation came and went, and how large it was.

PyTorch's counters have the size of blocks, its history what was asked for. A block is that, rounded
up, and in large segments up to 1 MiB more, where the rest of a free block was not worth a block of
its own; so the layout of these segments is replayed too.
"""

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from profiling.timeline.memory_snapshot import (
    ALLOC,
    ALLOCATED,
    FREE_COMPLETED,
    FREE_REQUESTED,
    MAP,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    UNMAP,
    Blocks,
    DeviceHistory,
    Events,
    Ints,
    Settings,
)

LEAST, SMALL, LARGE_REST = 512, 1 << 20, 1 << 20  # bytes; the allocator's constants
BEFORE = -1  # event of an allocation that came before the history


@dataclass(frozen=True)
class Allocations:
    """The allocations that the history or the end of it knows."""

    born: Ints  # event; BEFORE
    died: Ints  # event; the number of events: it is still there
    address: Ints
    asked: Ints  # bytes as the program asked for them
    size: Ints  # bytes of the block
    stack: Ints  # that allocated it; -1: not known
    free_stack: Ints  # that freed it; -1: not known, or still there

    def live_at(self, event: int) -> NDArray[np.bool_]:
        """Mask of the allocations that are there after the event; BEFORE: when it begins."""
        return (self.born <= event) & (self.died > event)


@dataclass(frozen=True)
class Replay:
    """The allocations, and the bytes after each event. The first value is before all events."""

    allocations: Allocations
    allocated: Ints
    reserved: Ints

    @property
    def peak(self) -> int:
        """The event after which most is allocated, or BEFORE."""
        return int(np.argmax(self.allocated)) - 1

    @property
    def reaches_back(self) -> bool:
        """Whether nothing was allocated when the history begins, so that it has the peak."""
        return int(self.allocated[0]) == 0


def replay(history: DeviceHistory, settings: Settings) -> Replay:
    events, blocks = history.events, history.blocks
    count = len(events.action)
    found = with_sizes(pair(events, blocks), history, settings)
    change = np.zeros(count + 1, np.int64)  # the first is what was there before
    np.add.at(change, found.born + 1, found.size)
    gone = found.died < count
    np.subtract.at(change, found.died[gone] + 1, found.size[gone])
    taken = np.isin(events.action, (SEGMENT_ALLOC, MAP)) * events.size
    given = np.isin(events.action, (SEGMENT_FREE, UNMAP)) * events.size
    held = np.concatenate([[0], np.cumsum(taken - given)])
    held += int(history.segments.size.sum()) - held[-1]
    return Replay(found, np.cumsum(change), held)


def pair(events: Events, blocks: Blocks) -> Allocations:
    """The allocations. Their size is that of the block if it is there at the end, else 0."""
    frees = FREE_REQUESTED if (events.action == FREE_REQUESTED).any() else FREE_COMPLETED
    rows = np.flatnonzero((events.action == ALLOC) | (events.action == frees))
    rows = rows[np.argsort(events.address[rows], kind="stable")]
    address, is_alloc = events.address[rows], events.action[rows] == ALLOC
    same = np.zeros(len(rows), np.bool_)  # whether the next row is of the same address
    same[:-1] = address[1:] == address[:-1]
    follows = np.zeros(len(rows), np.bool_)  # whether the row is after an alloc of its address
    follows[1:] = same[:-1] & is_alloc[:-1]
    births = np.flatnonzero(is_alloc)
    orphans = np.flatnonzero(~is_alloc & ~follows)  # freed, and allocated before the history
    count = len(events.action)
    after = rows[np.minimum(births + 1, len(rows) - 1)]
    died = np.where(same[births], after, count)
    born = rows[births]
    freed = died < count
    free_stack = np.where(freed, events.stack[np.minimum(died, max(count - 1, 0))], -1)
    if not count:
        died = free_stack = born
    at_end = blocks.state == ALLOCATED
    alive = np.flatnonzero(~freed)
    old = at_end & ~np.isin(blocks.address, events.address[born[alive]])
    old_frees = rows[orphans]
    none = np.full(int(old.sum()), -1)
    size = np.zeros(len(born), np.int64)
    where = np.searchsorted(blocks.address, events.address[born[alive]])
    where = np.minimum(where, max(len(blocks.address) - 1, 0))
    if len(blocks.address):
        hit = (blocks.address[where] == events.address[born[alive]]) & at_end[where]
        size[alive[hit]] = blocks.size[where[hit]]
    return Allocations(
        np.concatenate([born, np.full(len(old_frees), BEFORE), none]),
        np.concatenate([died, old_frees, np.full(len(none), count)]),
        np.concatenate([events.address[born], events.address[old_frees], blocks.address[old]]),
        np.concatenate([events.size[born], events.size[old_frees], blocks.requested[old]]),
        np.concatenate([size, np.zeros(len(old_frees), np.int64), blocks.size[old]]),
        np.concatenate([events.stack[born], np.full(len(old_frees), -1), blocks.stack[old]]),
        np.concatenate([free_stack, events.stack[old_frees], none]),
    )


def with_sizes(found: Allocations, history: DeviceHistory, settings: Settings) -> Allocations:
    """The allocations with the size of their blocks."""
    known = found.size > 0
    size = np.where(known, found.size, rounded(found.asked, settings))
    if not history.segments.expandable.any():
        large = size > SMALL
        size = np.where(large, with_rests(found, size, known, large, history, settings), size)
    return replace(found, size=size)


def rounded(asked: Ints, settings: Settings) -> Ints:
    """What the allocator makes of a size: a multiple of 512 bytes, or of a part of a power of 2."""
    size = np.maximum(LEAST, -(-asked // LEAST) * LEAST)
    if any(parts > 1 for parts in settings.roundup_power2_divisions.values()):
        unique, where = np.unique(asked, return_inverse=True)
        size = np.array([in_parts(int(n), settings) for n in unique], np.int64)[where]
    return size


def in_parts(asked: int, settings: Settings) -> int:
    """The size rounded up as roundup_power2_divisions says."""
    floor = 1 << (max(asked, 1).bit_length() - 1)
    by_size = {int(mib): parts for mib, parts in settings.roundup_power2_divisions.items()}
    below = [mib for mib in by_size if mib << 20 <= floor]
    parts = by_size[max(below, default=min(by_size))]
    if parts > 1 and asked > LEAST * parts:
        part = max(floor // parts, 1)
        return -(-asked // part) * part
    return max(LEAST, -(-asked // LEAST) * LEAST)


def with_rests(
    found: Allocations,
    size: Ints,
    known: NDArray[np.bool_],
    large: NDArray[np.bool_],
    history: DeviceHistory,
    settings: Settings,
) -> Ints:
    """The sizes of large blocks, with the rest that was too small to split off.

    A free block reaches to the next live one or the end of its segment, because free neighbours are
    merged.
    """
    result = size.copy()
    rows = np.flatnonzero(large)
    events = history.events
    mapped = (events.action == SEGMENT_ALLOC) | (events.action == SEGMENT_FREE)
    segments = np.flatnonzero(mapped & (events.size > SMALL))
    births = rows[found.born[rows] >= 0]
    moments = np.concatenate([segments, found.born[births], found.died[rows]])
    what = np.concatenate([-1 - segments, births, rows])  # negative: an event of a segment
    is_birth = np.zeros(len(what), np.bool_)
    is_birth[len(segments) : len(segments) + len(births)] = True
    order = np.argsort(moments, kind="stable")
    ends = segment_ends(history, BEFORE)
    starts = sorted(ends)
    address, most = found.address.tolist(), settings.max_split_size
    live = sorted(address[row] for row in rows[found.born[rows] < 0].tolist())
    sizes, is_known = size.tolist(), known.tolist()
    for row, birth in zip(what[order].tolist(), is_birth[order].tolist(), strict=True):
        if row < 0:
            event = -1 - row
            at = int(events.address[event])
            if events.action[event] == SEGMENT_ALLOC:
                if at not in ends:
                    insort(starts, at)
                ends[at] = at + int(events.size[event])
            elif at in ends:
                del ends[at]
                starts.remove(at)
            continue
        at = address[row]
        place = bisect_left(live, at)
        if not birth:
            if place < len(live) and live[place] == at:
                del live[place]
            continue
        live.insert(place, at)
        if is_known[row]:
            continue
        below = bisect_right(starts, at) - 1
        end = ends[starts[below]] if below >= 0 else 0
        if place + 1 < len(live):
            end = min(end, live[place + 1]) if end > at else live[place + 1]
        rest = end - at - sizes[row]
        if 0 < rest <= LARGE_REST or (rest > 0 and 0 <= most <= sizes[row]):
            result[row] = end - at
    return result


def segment_ends(history: DeviceHistory, after: int) -> dict[int, int]:
    """The end of each segment by its address, as they were after an event, or BEFORE all."""
    events, segments = history.events, history.segments
    sizes = dict(zip(segments.address.tolist(), segments.size.tolist(), strict=True))
    changes = (events.action == SEGMENT_ALLOC) | (events.action == SEGMENT_FREE)
    for event in np.flatnonzero(changes)[::-1].tolist():
        if event <= after:
            break
        address = int(events.address[event])
        if events.action[event] == SEGMENT_ALLOC:
            sizes.pop(address, None)
        else:
            sizes[address] = int(events.size[event])
    return {address: address + size for address, size in sizes.items()}
