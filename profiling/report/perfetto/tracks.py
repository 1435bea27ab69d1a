"""Puts slices on rows so that a viewer can draw them. Called by profiling.report.perfetto."""

from heapq import heappop, heappush

import numpy as np


def nested_lanes(start_ns: list[int], end_ns: list[int]) -> list[int]:
    """The row of each slice, such that two slices on a row are disjoint or one contains the other.

    Slices are sorted by start, longer ones first. All are on row 0 unless some cross, as happens
    where the tool's clock stepped, or the program opens and closes its ranges crosswise.
    """
    open_ends: list[list[int]] = [[]]  # ends of the open slices of each row, the outermost first
    lanes = []
    for start, end in zip(start_ns, end_ns, strict=True):
        for ends in open_ends:
            while ends and ends[-1] <= start:
                ends.pop()
        fitting = (row for row, ends in enumerate(open_ends) if not ends or end <= ends[-1])
        lane = next(fitting, len(open_ends))
        if lane == len(open_ends):
            open_ends.append([])
        open_ends[lane].append(end)
        lanes.append(lane)
    return lanes


def disjoint_lanes(start_ns: np.ndarray, end_ns: np.ndarray) -> list[int]:
    """The row of each slice, such that no two on a row overlap; slices are sorted by start.

    A stream's operations follow each other, except in the branches of a graph and where a kernel
    begins before the end of its predecessor.
    """
    if not np.any(start_ns[1:] < np.maximum.accumulate(end_ns)[:-1]):
        return [0] * len(start_ns)
    free = [0]  # rows that nothing occupies
    busy: list[tuple[int, int]] = []  # (end, row)
    lanes = []
    for start, end in zip(start_ns.tolist(), end_ns.tolist(), strict=True):
        while busy and busy[0][0] <= start:
            heappush(free, heappop(busy)[1])
        lane = heappop(free) if free else len(busy)
        heappush(busy, (end, lane))
        lanes.append(lane)
    return lanes
