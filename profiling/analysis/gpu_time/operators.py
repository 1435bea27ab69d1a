"""Compare PyTorch's operators with the GPU's peaks, where shapes were recorded. Called by summary.

A GPU operation belongs to the operator that was open on the launching thread at the launch. If
nested operators have a cost (linear, and the addmm that it calls), only the innermost counts, so
that no work is counted twice.
"""

import re
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import distinct, name_mask
from profiling.analysis.gpu_time.attribution import OwnedOperations, open_rows
from profiling.analysis.gpu_work.operator_costs import Cost, cost_of
from profiling.analysis.sum_records import OperatorWork
from profiling.shared.hardware import peak_bytes_per_s, peak_flops_per_s
from profiling.timeline.trace import Device, ShapedOperators

TENSOR_FLOAT = re.compile(r"tf32|tensorop_s1688", re.I)  # kernels that round float32 to TF32
DTYPES = ("float32", "tf32", "bfloat16", "float16")  # types with known peaks


def operator_work(analysis: Analysis, gpu: Device | None) -> list[OperatorWork] | None:
    """Operators by shape, the most GPU time first; None where no shapes were recorded."""
    trace, owned = analysis.trace, analysis.owned
    if trace.shaped_operators is None or owned is None:
        return None
    row = launching_operators(trace.shaped_operators, owned)
    launched = row >= 0
    inputs, kinds = trace.shaped_operators.inputs, len(trace.inputs)
    kind = inputs[row[launched]]
    gpu_ns = np.zeros(kinds, np.int64)
    np.add.at(gpu_ns, kind, owned.duration_ns[launched])
    calls = np.bincount(inputs[np.unique(row[launched])], minlength=kinds)
    rounds = name_mask(trace.names, owned.name[launched], TENSOR_FLOAT.search)
    rounded = set(kind[rounds].tolist())
    work = []
    for i in np.flatnonzero(gpu_ns).tolist():
        if cost := cost_of(trace.inputs[i]):
            dtype = "tf32" if cost.dtype == "float32" and i in rounded else cost.dtype
            measured = int(calls[i]), int(gpu_ns[i]), gpu.name if gpu else None
            work.append(row_of(trace.inputs[i].operator, cost, dtype, *measured))
    return sorted(work, key=lambda row: -row.gpu_ns)


def launching_operators(operators: ShapedOperators, owned: OwnedOperations) -> np.ndarray:
    """(operations of the steps,): row in `operators` of the one that launched each, or -1."""
    operator_row = np.full(len(owned.row), -1)
    for thread in np.unique(distinct(operators.thread)).tolist():
        rows = innermost_rows(operators, np.flatnonzero(operators.thread == thread))
        on_thread = np.flatnonzero((owned.thread == thread) & (owned.call >= 0))
        operator_row[on_thread] = open_rows(operators, rows, owned.launch_ns[on_thread])
    return operator_row


def innermost_rows(operators: ShapedOperators, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rows of a thread's operators that contain no other: disjoint, sorted by start."""
    rows = rows[np.lexsort((-operators.end_ns[rows], operators.start_ns[rows]))]
    next_start = np.append(operators.start_ns[rows[1:]], np.iinfo(np.int64).max)
    return rows[operators.end_ns[rows] <= next_start]


def row_of(
    operator: str, cost: Cost, dtype: str, calls: int, gpu_ns: int, device_name: str | None
) -> OperatorWork:
    flops_per_s, bytes_per_s = (each * calls / gpu_ns * 1e9 for each in (cost.flops, cost.bytes))
    bound: Literal["compute", "memory"] | None = None
    percent = None
    if peaks := peaks_of(device_name, dtype):
        compute, memory = flops_per_s / peaks[0], bytes_per_s / peaks[1]
        bound, percent = ("compute" if compute >= memory else "memory"), 100 * max(compute, memory)
    return OperatorWork(
        name=operator,
        shapes=cost.shapes,
        dtype=dtype,
        count=calls,
        gpu_ns=gpu_ns,
        flops=cost.flops,
        bytes=cost.bytes,
        tflops=flops_per_s / 1e12,
        gbps=bytes_per_s / 1e9,
        flops_per_byte=cost.flops / cost.bytes,
        bound=bound,
        percent_of_bound=percent,
    )


def peaks_of(device_name: str | None, dtype: str) -> tuple[float, float] | None:
    """(FLOP/s, byte/s) of the device, or None where one of them is not known."""
    if device_name is None or dtype not in DTYPES:
        return None
    peaks = peak_flops_per_s(device_name, dtype), peak_bytes_per_s(device_name)
    return (peaks[0], peaks[1]) if peaks[0] and peaks[1] else None
