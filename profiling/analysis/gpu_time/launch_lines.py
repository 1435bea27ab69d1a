"""Find the line of the program that made each launch. Called by line_sums and launch_places.

It is the innermost frame of the program's own code that was open on the launching thread. What
autograd launches in backward gets the line of its forward operator, which has the same sequence
number; where there is none, the line that called backward, during which autograd's thread launched
it. A backward that is written in Python has its own line.
"""

import re
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.columns import depths, distinct, name_mask, parents, used_names
from profiling.analysis.gpu_time.attribution import open_innermost, open_rows
from profiling.analysis.source.call_sites import kind_of
from profiling.analysis.source.own_code import own_frames
from profiling.analysis.sum_records import LineSource
from profiling.timeline.trace import AutogradOperators, Ranges, Trace

SOURCES: tuple[LineSource, ...] = get_args(LineSource)
LAUNCH, FORWARD, BACKWARD_CALL, COMPILED = range(4)
RUN_BACKWARD = re.compile(r"<built-in (?:method|function) run_backward\b.*")
# what the names of an operator and of its node in autograd's graph do not share
AROUND = re.compile(r"autograd::engine::evaluate_function: |Backward\d*$|^\w+::|_")


@dataclass(frozen=True)
class LaunchLines:
    """The line of each launch, as the frame that it is in; -1: none."""

    frame: np.ndarray  # name index
    callee: np.ndarray  # name index of the frame or operator that the line called, -1: none
    turn: np.ndarray  # number of this call among those of its kind in one call of the function
    turns: np.ndarray  # how many there are; 0: not known
    source: np.ndarray  # index in SOURCES


@dataclass(frozen=True)
class Stacks:
    """All frames of a capture; `owner` is the innermost own frame of each, itself included."""

    frames: Ranges
    around: np.ndarray  # row of the frame around each, -1: none
    owner: np.ndarray  # row of a frame, -1: none
    callee: np.ndarray  # row of the frame right inside the owner, -1 for the owner itself
    turn: np.ndarray  # number of the frame among those of its kind in the one around it
    turns: np.ndarray  # how many these are

    def innermost(self, time_ns: np.ndarray, thread: np.ndarray) -> NDArray[np.int64]:
        return open_innermost(self.frames, time_ns, thread, self.around)


def stacks_of(trace: Trace) -> Stacks | None:
    """The frames of the capture with their owners, or None without frames."""
    if trace.frames is None:
        return None
    frames = trace.frames.rows(np.lexsort((-trace.frames.end_ns, trace.frames.start_ns)))
    around, depth = nesting(frames)
    own = name_mask(trace.names, frames.name, own_frames(trace.names))
    owner = np.where(own, np.arange(len(own)), -1)
    callee = np.full(len(own), -1)
    by_depth = np.argsort(depth, kind="stable")
    for level in np.split(by_depth, np.flatnonzero(np.diff(depth[by_depth])) + 1):
        inner = level[~own[level] & (around[level] >= 0)]
        outer = around[inner]
        owner[inner] = owner[outer]
        callee[inner] = np.where(own[outer], inner, callee[outer])
    return Stacks(frames, around, owner, callee, *turns_of(trace.names, frames, around))


def turns_of(names: list[str], frames: Ranges, around: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(number of each frame among those of its kind right inside the same frame, their count)."""
    kinds: dict[str, int] = {}
    kind_of_name = np.full(len(names), -1)
    for name in used_names(frames.name):
        kind_of_name[name] = kinds.setdefault(kind_of(names[name]), len(kinds))
    kind = kind_of_name[frames.name]
    order = np.lexsort((frames.start_ns, kind, around))
    same = (np.diff(around[order]) == 0) & (np.diff(kind[order]) == 0)
    first = np.flatnonzero(np.append(True, ~same))
    count = np.diff(np.append(first, len(order)))
    turn, turns = (np.empty(len(order), np.int64) for _ in range(2))
    turn[order] = np.arange(len(order)) - np.repeat(first, count)
    turns[order] = np.repeat(count, count)
    return turn, turns


def nesting(nested: Ranges) -> tuple[np.ndarray, np.ndarray]:
    """(row of the one around each or -1, number of those around it), thread by thread."""
    around, depth = np.full(len(nested.name), -1), np.zeros(len(nested.name), np.int64)
    for thread in distinct(np.sort(nested.thread)).tolist():
        rows = np.flatnonzero(nested.thread == thread)
        start_ns, end_ns = nested.start_ns[rows], nested.end_ns[rows]
        above, depth[rows] = parents(start_ns, end_ns), depths(start_ns, end_ns)
        around[rows] = np.where(above >= 0, rows[above], -1)
    return around, depth


def launch_lines(
    trace: Trace, stacks: Stacks, time_ns: np.ndarray, thread: np.ndarray, process: np.ndarray
) -> LaunchLines:
    """The line of what was launched at each time by each thread of a process."""
    direct = stacks.innermost(time_ns, thread)
    frame, callee = owned_by(stacks, direct)
    begun_ns = np.where(frame >= 0, stacks.frames.start_ns[frame], np.iinfo(np.int64).min)
    source = np.full(len(time_ns), LAUNCH)
    call, call_ns = backward_calls(trace, stacks, time_ns, process)
    same = thread == np.where(call >= 0, stacks.frames.thread[call], -1)
    of_call = (call >= 0) & np.where(same, begun_ns < call_ns, of_autograd(trace, thread))
    of_call &= same | (frame < 0)
    by_call, call_callee = owned_by(stacks, np.where(of_call, call, -1))
    operator, node_ns = forward_operators(trace, time_ns, thread)
    of_node = (operator >= 0) & (begun_ns < node_ns)
    at_ns, on = time_ns.copy(), thread.copy()  # when and where the line was open
    if trace.autograd is not None:
        at_ns[of_node] = trace.autograd.start_ns[operator[of_node]]
        on[of_node] = trace.autograd.thread[operator[of_node]]
    by_forward, forward_callee = owned_by(stacks, stacks.innermost(at_ns, on))
    for wanted, found, its_callee, number in (
        (of_call, by_call, call_callee, BACKWARD_CALL),
        (of_node, by_forward, forward_callee, FORWARD),
    ):
        chosen = wanted & (found >= 0)
        frame[chosen], callee[chosen], source[chosen] = found[chosen], its_callee[chosen], number
    called = callee >= 0
    name = np.where(called, stacks.frames.name[callee], -1)
    if trace.operators is not None:
        rows = np.flatnonzero((frame >= 0) & ~called)
        begun_ns = stacks.frames.start_ns[frame[rows]]
        name[rows] = outermost_operators(trace.operators, at_ns[rows], on[rows], begun_ns)
    turn, turns = (np.where(called, column[callee], 0) for column in (stacks.turn, stacks.turns))
    frame_name = np.where(frame >= 0, stacks.frames.name[frame], -1)
    return LaunchLines(frame_name, name, turn, turns, source)


def of_autograd(trace: Trace, thread: np.ndarray) -> np.ndarray:
    """Whether each thread runs nodes of backward."""
    if trace.autograd is None:
        return np.zeros(len(thread), bool)
    return np.isin(thread, trace.autograd.thread[trace.autograd.forward_thread > 0])


def outermost_operators(
    operators: Ranges, time_ns: np.ndarray, thread: np.ndarray, begun_ns: np.ndarray
) -> np.ndarray:
    """Name of the outermost operator that is open at each time and not before `begun_ns`, or -1."""
    around, _ = nesting(operators)
    row = open_innermost(operators, time_ns, thread, around)
    row[(row >= 0) & (operators.start_ns[row] < begun_ns)] = -1
    while True:
        outer = np.where(row >= 0, around[row], -1)
        climbs = (outer >= 0) & (operators.start_ns[outer] >= begun_ns)
        if not climbs.any():
            return np.where(row >= 0, operators.name[row], -1)
        row[climbs] = outer[climbs]


def owned_by(stacks: Stacks, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(row of the own frame, row of what it called) for each row of a frame; -1 stays -1."""
    known = row >= 0
    return np.where(known, stacks.owner[row], -1), np.where(known, stacks.callee[row], -1)


def backward_calls(
    trace: Trace, stacks: Stacks, time_ns: np.ndarray, process: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(row of the frame that was in autograd's engine at each time, its start); -1: none was."""
    frames, row = stacks.frames, np.full(len(time_ns), -1)
    runs = name_mask(trace.names, frames.name, RUN_BACKWARD.fullmatch)
    for number in distinct(np.sort(process)).tolist():
        mine = np.flatnonzero(process == number)
        calls = np.flatnonzero(runs & (frames.process == number))
        row[mine] = open_rows(frames, calls, time_ns[mine])
    return row, np.where(row >= 0, frames.start_ns[row], -1)


def forward_operators(
    trace: Trace, time_ns: np.ndarray, thread: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(row in Trace.autograd of the forward operator of the node of backward that is open at each
    time, start of that node); -1 where none is open or its forward was not captured."""
    row = np.full(len(time_ns), -1)
    table = trace.autograd
    if table is None:
        return row, row.copy()
    backward, forward = (np.flatnonzero((table.forward_thread > 0) == of) for of in (True, False))
    backward = backward[np.lexsort((-table.end_ns[backward], table.start_ns[backward]))]
    nodes = table.rows(backward)
    node = open_innermost(nodes, time_ns, thread)
    its = forward_of(trace.names, nodes, table.rows(forward))
    its = np.where(its >= 0, forward[its], -1) if len(forward) else its
    known = node >= 0
    row[known] = its[node[known]]
    return row, np.where(known, nodes.start_ns[node], -1) if len(backward) else row.copy()


def forward_of(
    names: list[str], nodes: AutogradOperators, forward: AutogradOperators
) -> np.ndarray:
    """(nodes,): row in `forward` of the operator that made each, or -1.

    PyTorch numbers the threads of forward itself; which is meant is told by the names that match.
    """
    found = np.full(len(nodes.name), -1)
    words = {name: AROUND.sub("", names[name]).lower() for name in used(nodes) | used(forward)}
    whose = nodes.process << 32 ^ nodes.forward_thread
    for key in np.unique(whose).tolist():
        rows = np.flatnonzero(whose == key)
        own = forward.process == nodes.process[rows[0]]
        best = -1
        for thread in distinct(np.sort(forward.thread[own])).tolist():
            candidates = np.flatnonzero(forward.thread == thread)
            match = last_of_sequence(nodes.rows(rows), forward.rows(candidates))
            row = np.where(match >= 0, candidates[match], -1)
            matched = np.flatnonzero(row >= 0)
            pairs = np.stack((nodes.name[rows[matched]], forward.name[row[matched]])).T.tolist()
            alike = sum(words[one] == words[other] for one, other in pairs)
            if alike > best:
                best, found[rows] = alike, row
    return found


def used(operators: AutogradOperators) -> set[int]:
    return set(np.unique(operators.name).tolist())


def last_of_sequence(nodes: AutogradOperators, forward: AutogradOperators) -> np.ndarray:
    """(nodes,): row in `forward` of the last one before each node with its number, or -1."""
    start_ns = np.concatenate((forward.start_ns, nodes.start_ns))
    sequence = np.concatenate((forward.sequence, nodes.sequence))
    order = np.lexsort((start_ns, sequence))
    before = np.maximum.accumulate(np.where(order < len(forward.name), np.arange(len(order)), -1))
    last = np.where(before >= 0, order[before], -1)
    last[sequence[last] != sequence[order]] = -1
    row = np.empty(len(order), np.int64)
    row[order] = last
    return row[len(forward.name) :]
