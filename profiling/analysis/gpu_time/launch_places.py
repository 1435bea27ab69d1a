"""Make places in files of the frames that launched. Called by line_sums and step_events."""

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.launch_lines import LaunchLines, Stacks, launch_lines
from profiling.analysis.source.own_code import frame_named
from profiling.analysis.source.source_files import Place, SourceFiles
from profiling.timeline.trace import Trace


def places_of(trace: Trace, stacks: Stacks, found: LaunchLines) -> tuple[list[Place], np.ndarray]:
    """(the distinct places, (launches,) the index of each one's among them or -1)."""
    known = np.flatnonzero(found.frame >= 0)
    pairs = np.stack((stacks.frames.name[found.frame[known]], found.callee[known]))
    distinct, which = np.unique(pairs.astype(np.int64), axis=1, return_inverse=True)
    files, places, numbers = SourceFiles(trace.file), dict[Place, int](), []
    for name, callee in distinct.T.tolist():
        frame = frame_named(trace.names[name])
        assert frame is not None, "not a frame of the program"
        place = files.place(frame, trace.names[callee] if callee >= 0 else None)
        numbers.append(places.setdefault(place, len(places)))
    index = np.full(len(found.frame), -1)
    index[known] = np.array(numbers, np.int64)[which.reshape(-1)]
    return list(places), index


def place_names(analysis: Analysis, call: np.ndarray) -> np.ndarray:
    """(calls,): index in Trace.names of FILE:LINE of what launched each, or -1; -1 stays -1.

    Appends these texts to `trace.names`.
    """
    trace, name = analysis.trace, np.full(len(call), -1)
    if analysis.stacks is None or trace.calls is None:
        return name
    known = np.flatnonzero(call >= 0)
    calls = trace.calls.rows(call[known])
    found = launch_lines(trace, analysis.stacks, calls.start_ns, calls.thread, calls.process)
    places, place = places_of(trace, analysis.stacks, found)
    first = len(trace.names)
    trace.names.extend(each.text for each in places)
    name[known] = np.where(place >= 0, first + place, -1)
    return name
