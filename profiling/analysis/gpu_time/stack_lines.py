"""Find the line of the program in the stack that nsys recorded with each launch. Called by
launch_places.

Backward has a stack where it runs on the thread that called it: then it belongs to the line of the
call. Threads of autograd run no Python, so that nothing is known of what they launch.
"""

import re

import numpy as np

from profiling.analysis.columns import name_mask
from profiling.analysis.gpu_time.launch_lines import BACKWARD_CALL, LAUNCH, LaunchLines
from profiling.analysis.source.own_code import own_frames
from profiling.timeline.trace import CallStacks

RUN_BACKWARD = re.compile(
    r"(?:.*/)?torch/(?:_tensor|autograd/(?:__init__|graph))\.py\(\d+\): "
    r"(?:backward|grad|_engine_run_backward)"
)


def stack_lines(names: list[str], stacks: CallStacks, call: np.ndarray) -> LaunchLines:
    """The innermost frame of the program's own code in the stack of each call."""
    own = first_in_stack(stacks, name_mask(names, stacks.name, own_frames(names)))
    engine = first_in_stack(stacks, name_mask(names, stacks.name, RUN_BACKWARD.fullmatch))
    stack = np.where(call >= 0, stacks.of_call[call], -1)
    row, run = (np.where(stack >= 0, found[stack], -1) for found in (own, engine))
    source = np.where((run >= 0) & (run < row), BACKWARD_CALL, LAUNCH)
    none = np.full(len(call), -1)
    frame = np.where(row >= 0, stacks.name[row], -1)
    return LaunchLines(frame, none, none, none, source)


def first_in_stack(stacks: CallStacks, wanted: np.ndarray) -> np.ndarray:
    """(stacks + 1,): row of the innermost wanted frame of each stack, or -1."""
    found = np.full(int(stacks.of_call.max(initial=-1)) + 2, -1)
    rows = np.flatnonzero(wanted)
    number, first = np.unique(stacks.stack[rows], return_index=True)
    here = number < len(found)
    found[number[here]] = rows[first[here]]
    return found
