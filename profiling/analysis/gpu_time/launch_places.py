"""Make places in files of the frames that launched. Called by line_sums and step_events.

A kernel of torch.compile whose lines inductor has told has those, not the line that called it.
"""

from dataclasses import dataclass

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import used_names
from profiling.analysis.gpu_time.launch_lines import COMPILED, launch_lines
from profiling.analysis.gpu_time.stack_lines import stack_lines
from profiling.analysis.source.own_code import Frame, frame_named
from profiling.analysis.source.source_files import Place, SourceFiles
from profiling.timeline.trace import Trace


@dataclass(frozen=True)
class LaunchPlaces:
    """The place of each launch, and how it was found."""

    places: list[Place]
    place: np.ndarray  # index in `places`, -1: none
    source: np.ndarray  # index in launch_lines.SOURCES


def launch_places(
    analysis: Analysis,
    name: np.ndarray,
    call: np.ndarray,
    time_ns: np.ndarray,
    thread: np.ndarray,
    process: np.ndarray,
) -> LaunchPlaces:
    """The places of what was launched: its name, by which call, when, by which thread and process.

    The capture must have stacks.
    """
    trace, stacks = analysis.trace, analysis.stacks
    if stacks is not None:
        found = launch_lines(trace, stacks, time_ns, thread, process)
    else:
        found = stack_lines(trace, call)
    known = np.flatnonzero(found.frame >= 0)
    columns = (found.frame, found.callee, found.turn, found.turns)
    keys = np.stack([column[known] for column in columns]).astype(np.int64)
    distinct, which = np.unique(keys, axis=1, return_inverse=True)
    files, places, numbers = SourceFiles(trace.file), dict[Place, int](), list[int]()
    for frame_name, callee, turn, turns in distinct.T.tolist():
        frame, called = own_frame(trace, frame_name), trace.names[callee] if callee >= 0 else None
        if stacks is None:  # the frame has the line that ran, not the one where it begins
            place = Place(frame.file, frame.line, frame.function, exact=True)
        else:
            place = files.place(frame, called, turn, turns)
        numbers.append(places.setdefault(place, len(places)))
    index, source = np.full(len(found.frame), -1), found.source.copy()
    index[known] = np.array(numbers, np.int64)[which.reshape(-1)]
    for number in used_names(name) if analysis.compiled_lines else []:
        if frames := analysis.compiled_lines.get(trace.names[number]):
            rows = name == number
            place = files.place_of_lines(frames, {each.file for each in places})
            index[rows], source[rows] = places.setdefault(place, len(places)), COMPILED
    return LaunchPlaces(list(places), index, source)


def own_frame(trace: Trace, name: int) -> Frame:
    frame = frame_named(trace.names[name])
    assert frame is not None, "not a frame of the program"
    return frame


def place_names(analysis: Analysis, name: np.ndarray, call: np.ndarray) -> np.ndarray:
    """(operations,): index in Trace.names of FILE:LINE of what launched each, or -1.

    `name` and `call` are those of the operations. Appends the texts to `trace.names`.
    """
    trace, text = analysis.trace, np.full(len(call), -1)
    if not analysis.has_stacks or trace.calls is None:
        return text
    known = np.flatnonzero(call >= 0)
    by = trace.calls.rows(call[known])
    launched = name[known], call[known], by.start_ns, by.thread, by.process
    found = launch_places(analysis, *launched)
    first = len(trace.names)
    trace.names.extend(each.text for each in found.places)
    text[known] = np.where(found.place >= 0, first + found.place, -1)
    return text
