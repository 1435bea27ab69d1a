"""What a capture holds, as columns. Readers make it, profiling.analysis asks it.

Times are integer nanoseconds on one clock for host and GPU. Where a capture cannot say, a table is
None ("not captured"), an index -1, a count -1: never 0. Names are indices into `Trace.names`.
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Self

import numpy as np

KERNEL, COPY, MEMSET, GRAPH = 0, 1, 2, 3  # Operations.kind; GRAPH: a CUDA graph captured as a whole
ANY_THREAD = -1  # Ranges.thread of a range that may start on one thread and end on another
# of columns that are no int64
TYPES: dict[str, type[np.generic]] = {"kind": np.int8}
TYPES |= dict.fromkeys(("closed", "pageable", "failed"), np.bool_)
TYPES |= dict.fromkeys(
    ("name", "domain", "device", "threads", "inputs", "registers", "shared_bytes", "group"),
    np.int32,
)
Columns = dict[str, np.ndarray]


def typed(name: str, values: np.ndarray) -> np.ndarray:
    """As the type that a column of that name has.

    Raises OverflowError for a number that does not fit: profiling.timeline.opening tells it.
    """
    found = values.astype(TYPES.get(name, np.int64), copy=False)
    if found is not values and not np.array_equal(found, values):
        raise OverflowError(f"impossible {name}")
    return found


@dataclass(frozen=True)
class Table:
    """Columns of one length."""

    @classmethod
    def of(cls, columns: Columns | None) -> Self | None:
        """Of the columns that bear its names; where one is missing -1, or False. None of None
        and of no rows: neither tells that nothing happened. Raises as typed does.
        """
        length = 0 if columns is None else len(next(iter(columns.values())))
        if columns is None or not length:
            return None
        found = {}
        for name in (column.name for column in fields(cls)):
            dtype = TYPES.get(name, np.int64)
            missing = np.full(length, False if dtype is np.bool_ else -1)
            found[name] = typed(name, columns.get(name, missing))
        return cls(**found)

    @classmethod
    def empty(cls) -> Self:
        return cls(*(np.empty(0, np.int64) for _ in fields(cls)))

    def rows(self, chosen: np.ndarray) -> Self:
        """Those of the indices or the mask."""
        return type(self)(*(getattr(self, column.name)[chosen] for column in fields(self)))


@dataclass(frozen=True)
class Operations(Table):
    """What ran on the GPUs, a row each, sorted by start."""

    start_ns: np.ndarray  # int64
    end_ns: np.ndarray  # int64
    kind: np.ndarray  # int8
    name: np.ndarray  # int32; kernels: the full demangled name; copies as `nsys stats` prints them
    process: np.ndarray  # int64, the system's pid
    device: np.ndarray  # int32, index as the process's tool counts; matches Device.id
    stream: np.ndarray  # int64
    call: np.ndarray  # int64, row in Trace.calls that launched it; -1: not captured
    bytes: np.ndarray  # int64, of copies and memsets; -1 for kernels
    blocks: np.ndarray  # int64, thread blocks of the grid; -1 where there is no grid
    threads: np.ndarray  # int32, threads in a block; -1 where there is no grid
    registers: np.ndarray  # int32, of a thread; -1 as for blocks
    shared_bytes: np.ndarray  # int32, shared memory of a block, static and dynamic; -1 likewise
    pageable: np.ndarray  # bool, a copy from or to pageable host memory
    graph_node: np.ndarray  # int64, number of a kernel's node in its CUDA graph; -1: none, not told


@dataclass(frozen=True)
class Calls(Table):
    """CUDA API calls (runtime and driver) on the host, a row each, sorted by start."""

    start_ns: np.ndarray  # int64
    end_ns: np.ndarray  # int64
    name: np.ndarray  # int32, as `nsys stats` prints it: cut _v and four digits, keep _v11060
    process: np.ndarray  # int64
    thread: np.ndarray  # int64, unique over processes
    failed: np.ndarray  # bool, it returned an error; False where the capture does not say


@dataclass(frozen=True)
class Ranges(Table):
    """NVTX push/pop and start/end ranges, or record_function ranges; sorted by start."""

    start_ns: np.ndarray  # int64
    end_ns: np.ndarray  # int64; of a range that was still open: the end of the capture
    closed: np.ndarray  # bool
    name: np.ndarray  # int32
    domain: np.ndarray  # int32, its name; -1 in the default domain
    process: np.ndarray  # int64
    thread: np.ndarray  # int64, or ANY_THREAD


@dataclass(frozen=True)
class ShapedOperators(Table):
    """PyTorch's operators whose inputs were recorded, those that multiply; sorted by start."""

    start_ns: np.ndarray  # int64
    end_ns: np.ndarray  # int64
    process: np.ndarray  # int64
    thread: np.ndarray  # int64
    inputs: np.ndarray  # int32, row in Trace.inputs


@dataclass(frozen=True)
class Inputs:
    """An operator and what it was called with, argument by argument."""

    operator: str
    dims: list[list[int]]  # of tensors; [] of other arguments
    types: list[str]  # of elements, as PyTorch has it: float, c10::BFloat16
    values: list[str]  # of arguments that are no tensors; [] where they were not recorded


@dataclass(frozen=True)
class Allocations(Table):
    """Device memory taken (bytes > 0) and given back (bytes < 0), sorted by time."""

    time_ns: np.ndarray  # int64
    bytes: np.ndarray  # int64
    process: np.ndarray  # int64
    device: np.ndarray  # int32


@dataclass(frozen=True)
class CollectiveCalls(Table):
    """What the host asked of other ranks, as PyTorch recorded it; sorted by start."""

    start_ns: np.ndarray  # int64
    end_ns: np.ndarray  # int64
    name: np.ndarray  # int32, as PyTorch calls it: allreduce, _allgather_base
    group: np.ndarray  # int32, the name of the process group and who is in it; -1: not told
    bytes: np.ndarray  # int64, of the larger of what goes in and what comes out; -1: not told
    sequence: np.ndarray  # int64, in its group; -1: not told
    process: np.ndarray  # int64
    thread: np.ndarray  # int64


@dataclass(frozen=True)
class CounterSamples:
    """One hardware counter of one GPU, as `nsys profile --gpu-metrics-devices` samples it."""

    name: str
    device: int
    time_ns: np.ndarray  # int64
    value: np.ndarray  # float64, mostly per cent


@dataclass(frozen=True)
class Device:
    """A GPU; what the capture does not tell is None."""

    id: int
    name: str
    sm_count: int | None = None
    memory_bytes: int | None = None
    memory_bandwidth_bytes_per_s: int | None = None
    compute_capability: str | None = None  # 9.0


@dataclass(frozen=True)
class Trace:
    """A capture. `operations` None: no GPU activity was captured (a CPU run, or no CUDA trace)."""

    kind: str  # nsys | kineto
    file: Path
    names: list[str]
    devices: list[Device]
    operations: Operations | None
    calls: Calls | None
    ranges: Ranges | None
    operators: Ranges | None = None  # PyTorch's own operators, in Kineto traces
    shaped_operators: ShapedOperators | None = None  # None: recorded without shapes
    inputs: list[Inputs] = field(default_factory=list)
    allocations: Allocations | None = None
    collective_calls: CollectiveCalls | None = None  # in Kineto traces
    counters: list[CounterSamples] | None = None
    os_calls: Calls | None = None  # of the system's libraries: waits, files, threads; nsys alone
    overhead: Ranges | None = None  # times in which the profiler itself held up a thread
    tool_version: str | None = None
    schema_version: str | None = None
    no_gpu: bool = False  # the tool looked for GPUs, and the machine has none
    warnings: list[str] = field(default_factory=list)  # what the tool says it lost or could not do
    rank: int | None = None  # of several processes that train together, and how many these are
    world_size: int | None = None
    personal: bool = False  # it still holds an environment, a user, a host or folders

    @property
    def first_ns(self) -> int:
        """When its first event began; 0 without any."""
        tables = [self.ranges, self.operators, self.calls, self.operations]
        starts = [int(table.start_ns.min()) for table in tables if table is not None]
        starts += [int(m.time_ns.min()) for m in self.counters or [] if len(m.time_ns)]
        return min(starts, default=0)
