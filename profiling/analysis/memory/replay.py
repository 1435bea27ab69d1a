"""Replays a history of the allocator: when each allocation came and went, and how large it was.

PyTorch's counters have the size of blocks, its history what was asked for. A block is that, rounded
up, and in large segments up to 1 MiB more, where the rest of a free block was not worth a block of
its own; so the layout of these segments is replayed too.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
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
    Int32s,
    Ints,
    Settings,
)

LEAST, SMALL, LARGE_REST = 512, 1 << 20, 1 << 20  # bytes; the allocator's constants
BEFORE = -1  # event of an allocation that came before the history


@dataclass(frozen=True)
class Allocations:
    """The allocations that the history or the end of it knows."""

    born: Int32s  # event; BEFORE
    died: Int32s  # event; the number of events: it is still there
    address: Ints
    asked: Ints  # bytes as the program asked for them
    size: Ints  # bytes of the block
    stack: Int32s  # that allocated it; -1: not known
    free_stack: Int32s  # that freed it; -1: not known, or still there

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
    held = np.zeros(count + 1, np.int64)
    for actions, sign in (((SEGMENT_ALLOC, MAP), 1), ((SEGMENT_FREE, UNMAP), -1)):
        rows = np.flatnonzero(np.isin(events.action, actions))
        held[rows + 1] = sign * events.size[rows]
    held = np.cumsum(held, out=held)
    held += int(history.segments.size.sum()) - held[-1]
    return Replay(found, np.cumsum(change, out=change), held)


def pair(events: Events, blocks: Blocks) -> Allocations:
    """The allocations. Their size is that of the block if it is there at the end, else 0."""
    count = len(events.action)
    frees = FREE_REQUESTED if (events.action == FREE_REQUESTED).any() else FREE_COMPLETED
    rows = np.flatnonzero((events.action == ALLOC) | (events.action == frees)).astype(np.int32)
    rows = rows[np.argsort(events.address[rows], kind="stable")]
    is_alloc = events.action[rows] == ALLOC
    same = np.zeros(len(rows), np.bool_)  # whether the next row is of the same address
    same[:-1] = events.address[rows[1:]] == events.address[rows[:-1]]
    is_orphan = ~is_alloc  # a free of what was allocated before the history
    is_orphan[1:] &= ~(same[:-1] & is_alloc[:-1])
    born, old_frees = rows[is_alloc], rows[is_orphan]
    died = np.where(same, np.append(rows[1:], 0), count)[is_alloc].astype(np.int32)
    free_stack = np.append(events.stack, -1)[died]
    size = np.zeros(len(born), np.int64)
    at_end = blocks.state == ALLOCATED
    alive = np.flatnonzero(died == count)
    address = events.address[born[alive]]
    old = at_end & ~np.isin(blocks.address, address)
    if len(blocks.address):
        where = np.minimum(np.searchsorted(blocks.address, address), len(blocks.address) - 1)
        hit = (blocks.address[where] == address) & at_end[where]
        size[alive[hit]] = blocks.size[where[hit]]
    before, none = np.full(len(old_frees), BEFORE, np.int32), np.full(int(old.sum()), -1, np.int32)
    return Allocations(
        np.concatenate([born, before, none]),
        np.concatenate([died, old_frees, np.full(len(none), count, np.int32)]),
        np.concatenate([events.address[born], events.address[old_frees], blocks.address[old]]),
        np.concatenate([events.size[born], events.size[old_frees], blocks.requested[old]]),
        np.concatenate([size, np.zeros(len(old_frees), np.int64), blocks.size[old]]),
        np.concatenate([events.stack[born], before, blocks.stack[old].astype(np.int32)]),
        np.concatenate([free_stack, events.stack[old_frees], none]),
    )


def with_sizes(found: Allocations, history: DeviceHistory, settings: Settings) -> Allocations:
    """The allocations with the size of their blocks."""
    known = found.size > 0
    size = np.where(known, found.size, rounded(found.asked, settings))
    if not history.segments.expandable.any():
        add_rests(found, size, known, history, settings.max_split_size)
    return replace(found, size=size)


def rounded(asked: Ints, settings: Settings) -> Ints:
    """Sizes as the allocator makes them: a multiple of 512 bytes, or of a part of a power of 2."""
    size = np.maximum(LEAST, -(-asked // LEAST) * LEAST)
    if any(parts > 1 for parts in settings.roundup_power2_divisions.values()):
        unique, where = np.unique(asked, return_inverse=True)
        size = np.array([in_parts(int(n), settings) for n in unique], np.int64)[where]
    return size


def in_parts(asked: int, settings: Settings) -> int:
    """The size rounded up as roundup_power2_divisions says."""
    floor = 1 << (max(asked, 1).bit_length() - 1)
    by_size = settings.roundup_power2_divisions
    below = [mib for mib in by_size if mib << 20 <= floor]
    parts = by_size[max(below, default=min(by_size))]
    if parts > 1 and asked > LEAST * parts:
        part = max(floor // parts, 1)
        return -(-asked // part) * part
    return max(LEAST, -(-asked // LEAST) * LEAST)


def add_rests(
    found: Allocations,
    size: Ints,
    known: NDArray[np.bool_],
    history: DeviceHistory,
    max_split_size: int,
) -> None:
    """Add to the sizes of large blocks the rest that was too small to split off."""
    rows = np.flatnonzero(size > SMALL).astype(np.int32)
    events = history.events
    changes = (events.action == SEGMENT_ALLOC) | (events.action == SEGMENT_FREE)
    segments = np.flatnonzero(changes).astype(np.int32)
    births = rows[found.born[rows] >= 0]
    moments = np.concatenate([segments, found.born[births], found.died[rows]])
    # an event of a segment, the birth or the death of an allocation
    what = np.concatenate([segments, births, rows])
    case = np.repeat([0, 1, 2], [len(segments), len(births), len(rows)]).astype(np.int8)
    order = np.argsort(moments, kind="stable")
    what, case = what[order], case[order]
    del moments, order
    address, sizes, is_known = found.address.data, size.data, known.data
    layout = Layout(history, [address[row] for row in rows[found.born[rows] < 0]])
    for row, which in zip(what.data, case.data, strict=True):
        if which == 0:
            layout.change(row)
        elif which == 2:
            layout.free(address[row])
        else:
            end = layout.take(address[row])
            rest = end - address[row] - sizes[row]
            small = rest <= LARGE_REST or 0 <= max_split_size <= sizes[row]
            if rest > 0 and small and not is_known[row]:
                sizes[row] += rest


class Layout:
    """The segments and the large blocks in them, as the replay goes on."""

    def __init__(self, history: DeviceHistory, live: Iterable[int]) -> None:
        self.events = history.events
        self.ends = segment_ends(history, BEFORE)
        self.starts = sorted(self.ends)
        self.live = sorted(live)  # addresses

    def change(self, event: int) -> None:
        """Add or remove a segment."""
        at = int(self.events.address[event])
        if self.events.action[event] == SEGMENT_ALLOC:
            if at not in self.ends:
                insort(self.starts, at)
            self.ends[at] = at + int(self.events.size[event])
        elif self.ends.pop(at, None) is not None:
            self.starts.remove(at)

    def free(self, at: int) -> None:
        place = bisect_left(self.live, at)
        if place < len(self.live) and self.live[place] == at:
            del self.live[place]

    def take(self, at: int) -> int:
        """Add a block, and return where the free block ended in which it begins.

        That reaches to the next live one or the end of its segment, because free neighbours are
        merged. 0 if the segment is not known.
        """
        place = bisect_left(self.live, at)
        self.live.insert(place, at)
        below = bisect_right(self.starts, at) - 1
        end = self.ends[self.starts[below]] if below >= 0 else 0
        return min(end, self.live[place + 1]) if place + 1 < len(self.live) else end


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
