"""Find the line of the program in the stack that nsys recorded with each launch. Called by
launch_places.

Backward belongs to the line that called it. Threads of autograd run no Python, and nsys records no
stack of some calls, such as cuLaunchKernelEx. These belong to a call of backward that is known to
be running: because the last stack is in it and its thread waits for autograd's, or because stacks
before and behind are in it.
"""

import re

import numpy as np

from profiling.analysis.columns import name_mask
from profiling.analysis.gpu_time.launch_lines import BACKWARD_CALL, LAUNCH, LaunchLines
from profiling.analysis.source.own_code import own_frames
from profiling.timeline.trace import Calls, CallStacks, Trace

RUN_BACKWARD = re.compile(
    r"(?:.*/)?torch/(?:_tensor|autograd/(?:__init__|graph))\.py\(\d+\): "
    r"(?:backward|grad|_engine_run_backward)"
)
BEGIN_BACKWARD = re.compile(r"(?:.*/)?torch/autograd/__init__\.py\(\d+\): _make_grads")


def stack_lines(trace: Trace, call: np.ndarray) -> LaunchLines:
    """The innermost frame of the program's own code in the stack of each call, by its row."""
    names, calls, stacks = trace.names, trace.calls, trace.call_stacks
    assert calls is not None and stacks is not None, "the capture has stacks"
    own = first_in_stack(stacks, name_mask(names, stacks.name, own_frames(names)))
    engine = first_in_stack(stacks, name_mask(names, stacks.name, RUN_BACKWARD.fullmatch))
    row, run = own[stacks.of_call], engine[stacks.of_call]
    frame = np.where(row >= 0, stacks.name[row], -1)
    backward = np.where((run >= 0) & (run < row), frame, -1)
    begin = first_in_stack(stacks, name_mask(names, stacks.name, BEGIN_BACKWARD.fullmatch))
    within = np.where(begin[stacks.of_call] >= 0, -1, backward)
    has_stack = stacks.of_call >= 0
    backward = np.where(has_stack, backward, backward_around(calls, has_stack, backward, within))
    frame = np.append(np.where(backward >= 0, backward, frame), -1)
    source = np.append(np.where(backward >= 0, BACKWARD_CALL, LAUNCH), LAUNCH)
    none = np.full(len(call), -1)
    return LaunchLines(frame[call], none, none, none, source[call])


def backward_around(
    calls: Calls, has_stack: np.ndarray, backward: np.ndarray, within: np.ndarray
) -> np.ndarray:
    """The frame that calls backward around each call without a stack, or -1.

    `backward` is that of the calls with one, `within` likewise, but -1 where a backward begins.
    Where stacks of several threads were recorded in a process, it is not known which of them waits
    for another thread.
    """
    around = np.full(len(has_stack), -1)
    for process in np.unique(calls.process).tolist():
        mine = calls.process == process
        threads = np.unique(calls.thread[mine & has_stack])
        for thread in threads.tolist():
            here = mine & (calls.thread == thread)
            stacked = np.flatnonzero(here & has_stack)
            before, behind = np.append(-1, backward[stacked]), np.append(within[stacked], -1)
            rows = np.flatnonzero(here & ~has_stack)
            at = np.searchsorted(stacked, rows)
            around[rows] = np.where(before[at] == behind[at], before[at], -1)
            if len(threads) == 1:
                rows = np.flatnonzero(mine & ~here)
                around[rows] = before[np.searchsorted(stacked, rows)]
    return around


def first_in_stack(stacks: CallStacks, wanted: np.ndarray) -> np.ndarray:
    """(stacks + 1,): row of the innermost wanted frame of each stack, or -1; the last is none's."""
    found = np.full(int(stacks.of_call.max(initial=-1)) + 2, -1)
    rows = np.flatnonzero(wanted)
    number, first = np.unique(stacks.stack[rows], return_index=True)
    here = number < len(found)
    found[number[here]] = rows[first[here]]
    return found
