"""Find steps in a capture without ranges: each ends with an optimizer's kernels. Called by find."""

import re

import numpy as np

from profiling.analysis.columns import name_mask
from profiling.analysis.steps.steps import Steps
from profiling.timeline.trace import KERNEL, Trace

OPTIMIZER = re.compile(r"(multi_tensor_apply|FusedOptimizer|fused_?adam|adam_cuda).*", re.I | re.S)
NORM = re.compile(r"lpnorm|l2norm", re.I)  # norms of the gradients, well before the update
STEP_NAME = "optimizer's kernels"
FEWEST_STEPS = 3
# a new step: between two kernels of the optimizer there are more than this share of the most
# other kernels that lie between any two, and not one kernel again and again: with capturable=True
# AdamW has one for the step count of each parameter between its parts
APART = 0.3


def optimizer_kernel_steps(
    trace: Trace, process: int | None, device: int | None, thread: int | None
) -> Steps | None:
    """Steps that end when the host has launched the optimizer's last kernel, or None.

    None where calls or operations are not captured, or where there are fewer than FEWEST_STEPS.
    """
    operations, calls = trace.operations, trace.calls
    if operations is None or calls is None:
        return None
    mine = (operations.process == process) & (operations.device == device)
    mine &= (operations.kind == KERNEL) & (operations.call >= 0)
    call = operations.call[mine]
    order = np.argsort(calls.start_ns[call], kind="stable")
    name, call = operations.name[mine][order], call[order]
    updates = np.flatnonzero(name_mask(trace.names, name, is_update))
    if len(updates) < FEWEST_STEPS:
        return None
    between = np.diff(updates)
    differs = np.append(0, np.cumsum(np.diff(name) != 0))  # how often the kernel was another one
    repeated = differs[updates[1:] - 1] == differs[updates[:-1] + 1]
    new_step = (between > max(8, APART * between.max())) & ~repeated
    last = np.append(np.flatnonzero(new_step), len(updates) - 1)
    if len(last) < FEWEST_STEPS:
        return None
    ends = calls.end_ns[call[updates[last]]]
    first = calls.start_ns[calls.process == process].min()
    starts = np.concatenate(([first], ends[:-1])).astype(np.int64)
    return Steps(process, device, thread, STEP_NAME, None, starts, ends)


def is_update(name: str) -> bool:
    return bool(OPTIMIZER.search(name)) and not NORM.search(name)
