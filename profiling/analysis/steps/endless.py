"""Repair ranges that lost their ends: opened, never closed, and opened again by the program.

Called by find. A range that is open when the capture ends did not lose its end: the capture cut it
off.
"""

import re
from dataclasses import replace

import numpy as np

from profiling.timeline.trace import Trace

NUMBER = re.compile(r"[\s#_:]*(\d+)$")  # at the end of a step's name


def fill_lost_ends(trace: Trace) -> tuple[Trace, np.ndarray]:
    """(the trace with the lost ends filled in, (ranges,) mask of the ranges that had lost theirs).

    Such a range then ends where the next range of the same name, thread and domain begins. Names
    are the same if they differ only by the number at their end.
    """
    ranges = trace.ranges
    if ranges is None or ranges.closed.all():
        return trace, np.zeros(0 if ranges is None else len(ranges.name), bool)
    end_ns, endless = ranges.end_ns.copy(), np.zeros(len(ranges.name), bool)
    stems = [NUMBER.sub("", name) for name in trace.names]
    number_of = {stem: number for number, stem in enumerate(dict.fromkeys(stems))}
    stem = np.array([number_of[stem] for stem in stems])[ranges.name]
    keys = np.stack([ranges.process, ranges.thread, ranges.domain, stem], axis=1)
    _, kind = np.unique(keys, axis=0, return_inverse=True)
    kind = kind.ravel()
    for each in np.unique(kind[~ranges.closed]).tolist():
        rows = np.flatnonzero(kind == each)
        opened = ~ranges.closed[rows[:-1]]
        endless[rows[:-1][opened]] = True
        end_ns[rows[:-1][opened]] = ranges.start_ns[rows[1:][opened]]
    return replace(trace, ranges=replace(ranges, end_ns=end_ns)), endless
