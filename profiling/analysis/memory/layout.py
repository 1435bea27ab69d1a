"""Looks at where blocks lie in their segments: what keeps these from being used, and what would
have made room for an allocation that failed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.memory.kinds import ACTIVATIONS, UNKNOWN, WORKSPACE
from profiling.analysis.memory.replay import Replay, segment_ends
from profiling.timeline.memory_snapshot import SEGMENT_ALLOC, DeviceHistory, Ints

MOST_FREES = 3
SMALL_SEGMENT = 2 << 20  # bytes; blocks of 1 MiB and less are in segments of this size alone
PASSING = (ACTIVATIONS, WORKSPACE, UNKNOWN)  # kinds that a program can do without more easily


@dataclass(frozen=True)
class Segment:
    """A segment at a moment, with its live blocks by address."""

    start: int
    end: int
    rows: Ints  # of the allocations
    gaps: Ints  # free bytes before each block, and behind the last

    @property
    def used(self) -> bool:
        return len(self.rows) > 0


def segments_at(history: DeviceHistory, replayed: Replay, event: int) -> list[Segment]:
    """The segments after an event; those without a block, too."""
    found = replayed.allocations
    ends = sorted(segment_ends(history, event).items())
    rows = np.flatnonzero(found.live_at(event))
    rows = rows[np.argsort(found.address[rows], kind="stable")]
    address = found.address[rows]
    segments = []
    for start, end in ends:
        own = rows[np.searchsorted(address, start) : np.searchsorted(address, end)]
        begins = np.append(found.address[own], end)
        finishes = np.append(start, found.address[own] + found.size[own])
        segments.append(Segment(start, end, own, np.maximum(begins - finishes, 0)))
    return segments


def stranded(history: DeviceHistory, replayed: Replay, event: int) -> int:
    """Free bytes between blocks when an allocation took a large segment, if more than it asked for.

    They are those of other segments of its stream, as far as streams are known. 0: there were less,
    none was taken, or segments are expandable, where free pages anywhere serve.
    """
    events, segments = history.events, history.segments
    if segments.expandable.any() or event < 1 or events.action[event - 1] != SEGMENT_ALLOC:
        return 0
    taken = int(events.address[event - 1])
    stream_of = dict(zip(segments.address.tolist(), segments.stream.tolist(), strict=True))
    stream = stream_of.get(taken)
    free = 0
    for segment in segments_at(history, replayed, event):
        is_large = segment.end - segment.start > SMALL_SEGMENT
        if segment.used and is_large and segment.start != taken:
            same = stream is None or stream_of.get(segment.start, stream) == stream
            free += int(segment.gaps.sum()) if same else 0
    return free if free >= events.size[event] else 0


def pinned(segments: list[Segment], line: Ints, size: Ints) -> list[tuple[int, int, int, int]]:
    """(line, its bytes, free bytes beside them, segments), most free bytes first.

    A segment counts for the line with the most blocks in it, and only if half of it is free.
    """
    held: dict[int, list[int]] = {}
    for segment in segments:
        free = int(segment.gaps.sum())
        if not segment.used or 2 * free < segment.end - segment.start:
            continue
        lines, counts = np.unique(line[segment.rows], return_counts=True)
        chief = int(lines[counts.argmax()])
        row = held.setdefault(chief, [0, 0, 0])
        own = segment.rows[line[segment.rows] == chief]
        row[0] += int(size[own].sum())
        row[1] += free
        row[2] += 1
    rows = [(line, *values) for line, values in held.items()]
    return sorted(((a, b, c, d) for a, b, c, d in rows), key=lambda row: -row[2])


def frees_for(
    asked: int, segments: list[Segment], kind: Ints, size: Ints
) -> tuple[list[int], bool]:
    """(at most three allocations, whether it fits once they are freed), in one piece.

    Fewest blocks come first, then those that a program can do without, then fewest bytes.
    """
    best: tuple[tuple[int, bool, int], list[int]] | None = None
    for segment in segments:
        rows = segment.rows
        bytes_to, gaps_to = sums(size[rows]), sums(segment.gaps)
        needed_to = sums(~np.isin(kind[rows], PASSING))
        for count in range(1, min(MOST_FREES, len(rows)) + 1):
            freed = bytes_to[count:] - bytes_to[:-count]
            room = freed + gaps_to[count + 1 :] - gaps_to[: -count - 1]
            fits = np.flatnonzero(room >= asked)
            if not len(fits):
                continue
            needed = needed_to[fits + count] > needed_to[fits]
            first = int(np.lexsort((freed[fits], needed))[0])
            rank = (count, bool(needed[first]), int(freed[fits[first]]))
            if best is None or rank < best[0]:
                best = rank, rows[fits[first] : fits[first] + count].tolist()
    if best:
        return best[1], True
    live = [row for segment in segments for row in segment.rows.tolist()]
    largest = sorted(live, key=lambda row: -int(size[row]))
    return largest[:MOST_FREES], False


def sums(values: Ints | NDArray[np.bool_]) -> Ints:
    """The sums of the first 0, 1, ... of the values."""
    return np.append(0, np.cumsum(values, dtype=np.int64))
