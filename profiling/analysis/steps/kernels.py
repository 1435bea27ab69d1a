"""Steps of a capture without any ranges: an optimizer's kernels end each. Called by find."""

import re

import numpy as np

from profiling.analysis.columns import called
from profiling.analysis.steps.steps import Steps
from profiling.timeline.trace import KERNEL, Trace

OPTIMIZER = re.compile(r"(multi_tensor_apply|FusedOptimizer|fused_?adam|adam_cuda).*", re.I | re.S)
NORM = re.compile(r"lpnorm|l2norm", re.I)  # of the gradients, well before the update
STEP_NAME = "optimizer's kernels"
FEWEST_STEPS = 3
APART = 0.3  # of the most other kernels between two of an optimizer's: another step


def optimizer_kernel_steps(
    trace: Trace, process: int | None, device: int | None, thread: int | None
) -> Steps | None:
    """Steps by the host's time of the optimizer's last launch; None where they do not repeat."""
    operations, calls = trace.operations, trace.calls
    if operations is None or calls is None:
        return None
    mine = (operations.process == process) & (operations.device == device)
    mine &= (operations.kind == KERNEL) & (operations.call >= 0)
    call = operations.call[mine]
    order = np.argsort(calls.start_ns[call], kind="stable")
    name, call = operations.name[mine][order], call[order]
    updates = np.flatnonzero(called(trace.names, name, is_update))
    if len(updates) < FEWEST_STEPS:
        return None
    between = np.diff(updates)
    last = np.append(np.flatnonzero(between > max(8, APART * between.max())), len(updates) - 1)
    if len(last) < FEWEST_STEPS:
        return None
    ends = calls.end_ns[call[updates[last]]]
    first = calls.start_ns[calls.process == process].min()
    starts = np.concatenate(([first], ends[:-1])).astype(np.int64)
    return Steps(process, device, thread, STEP_NAME, None, starts, ends)


def is_update(name: str) -> bool:
    return bool(OPTIMIZER.search(name)) and not NORM.search(name)
