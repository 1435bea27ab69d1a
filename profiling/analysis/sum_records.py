"""Records of what was done in a capture: sums of calls, kernels, copies, operators and lines.

Parts of profiling.analysis.records.Report, and of its JSON.
"""

from dataclasses import dataclass
from typing import Literal

LineSource = Literal["launch", "forward", "backward_call", "compiled"]


@dataclass(frozen=True)
class CallSum:
    """All calls of one function, over the whole capture, as `nsys stats` has it."""

    name: str
    count: int
    total_ns: int
    avg_ns: float
    med_ns: float
    min_ns: int
    max_ns: int
    stddev_ns: float
    percent: float  # of the total time of all functions


@dataclass(frozen=True)
class KernelSum(CallSum):
    """All launches of one kernel, over the whole capture."""

    family: str


@dataclass(frozen=True)
class Launch:
    """All launches of one kernel with one geometry on the report's GPU, over the whole capture."""

    name: str
    count: int
    total_ns: int
    blocks: int  # in the grid
    threads: int  # in a block
    registers: int | None  # for each thread
    shared_bytes: int | None  # for each block, static and dynamic
    occupancy_percent: float | None  # theoretical, of the warps that an SM can hold
    limited_by: str | None  # what an SM runs out of first: warps, registers, shared memory, blocks


@dataclass(frozen=True)
class FamilySum:
    family: str
    count: int
    total_ns: int
    percent: float


@dataclass(frozen=True)
class MemopSum:
    """All copies or memsets of one kind, over the whole capture."""

    operation: str
    count: int
    total_ns: int
    avg_ns: float
    med_ns: float
    min_ns: int
    max_ns: int
    stddev_ns: float
    total_bytes: int | None  # this and the next four: None where the capture has no sizes
    avg_bytes: float | None
    med_bytes: float | None
    min_bytes: int | None
    max_bytes: int | None
    pageable: int  # number of operations that used host memory that is not pinned


@dataclass(frozen=True)
class CopySpeed:
    """All copies in the steps of one direction and one kind of host memory."""

    direction: str  # as in the names of copies: Host-to-Device
    memory: Literal["pinned", "pageable"] | None  # None: not a copy from or to the host
    count: int
    bytes: int | None
    ms: float  # a step
    exposed_ms: float  # a step, while no kernel ran
    gb_per_s: float | None
    link_percent: float | None  # of the peak between host and GPU


@dataclass(frozen=True)
class AllocationSum:
    """Device memory allocated and freed in the window."""

    count: int
    allocated_bytes: int
    freed_bytes: int
    peak_bytes: int  # above what was held when the window began


@dataclass(frozen=True)
class CounterMean:
    """Means of a hardware counter, which is mostly in per cent."""

    name: str
    mean_busy: float | None  # over the samples while the GPU was busy
    mean_window: float | None


@dataclass(frozen=True)
class OperatorSum:
    """Host time of one PyTorch operator over the window, in Kineto captures."""

    name: str
    count: int
    total_ns: int
    self_ns: int  # without the operators that it calls


@dataclass(frozen=True)
class LineSum:
    """All kernels of the steps that one line of the program's own code made.

    On a CPU operators stand for kernels. How the line was found: `launch` was open at the launch;
    of backward `forward` is the line of the forward operator, `backward_call` that called backward;
    `compiled`: by inductor's record of what the kernel was made of.
    """

    place: str  # FILE:LINE
    function: str
    exact: bool  # False: the line on which the function begins
    also: list[str]  # further lines of a kernel that torch.compile made of several
    count: int
    total_ns: int
    ms: float  # a step
    percent: float  # of the time of all kernels in the steps
    found_ms: dict[LineSource, float]  # how the line was found -> ms a step; adds up to `ms`
    longest: str  # name of the kernel that takes the most of it


@dataclass(frozen=True)
class Lines:
    """Kernels of the steps by line of the program, and how much of their time has one."""

    of: Literal["kernels", "operators"]
    total_ns: int
    with_line_ns: int
    replayed_ns: int  # by CUDA graphs, whose only line would be that of the replay: they have none
    percent: float | None  # with a line; None: nothing ran
    lines: list[LineSum]


@dataclass(frozen=True)
class OperatorWork:
    """One PyTorch operator at one shape: its work by formula, and the time of its kernels.

    Counted over the window; FLOPs and bytes are of one call.
    """

    name: str
    shapes: list[list[int]]  # shapes of the tensors that are multiplied
    dtype: str  # of the elements; tf32: float32 that the kernels round
    count: int  # number of calls that launched something
    gpu_ns: int  # of all calls together
    flops: int
    bytes: int
    tflops: float  # TFLOP/s
    gbps: float
    flops_per_byte: float
    bound: Literal["compute", "memory"] | None  # this and the next: None without known peaks
    percent_of_bound: float | None
