"""The contents of a capture, as columns. Readers make them, profiling.analysis queries them.

Times are integer nanoseconds on one clock for host and GPU. Where a capture cannot say, a table is
None ("not captured"), an index -1, a count -1: never 0. Names are indices into `Trace.names`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Self

import numpy as np

KERNEL, COPY, MEMSET, GRAPH = 0, 1, 2, 3  # Operations.kind; GRAPH: a CUDA graph captured as a whole
ANY_THREAD = -1  # Ranges.thread of a range that may start on one thread and end on another
# types of the columns that are not int64
TYPES: dict[str, type[np.generic]] = {"kind": np.int8}
TYPES |= dict.fromkeys(("closed", "pageable", "failed"), np.bool_)
TYPES |= dict.fromkeys(
    ("name", "domain", "device", "threads", "inputs", "registers", "shared_bytes", "group"),
    np.int32,
)
TOOLS = {"nsys": "nsys", "kineto": "torch.profiler", "jax": "JAX's profiler"}  # by Trace.kind
Columns = dict[str, np.ndarray]


def as_column_type(name: str, values: np.ndarray) -> np.ndarray:
    """`values` in the type that a column of this name has.

    Raises OverflowError for a number that does not fit; profiling.timeline.opening reports it.
    """
    column = values.astype(TYPES.get(name, np.int64), copy=False)
    if column is not values and not np.array_equal(column, values):
        raise OverflowError(f"impossible {name}")
    return column


@dataclass(frozen=True)
class Table:
    """Columns of one length; a subclass names them."""

    @classmethod
    def from_columns(cls, columns: Columns | None) -> Self | None:
        """The table of those `columns` that it names; a missing one is filled with -1 or False.

        None for None and for no rows, since an absence of rows does not prove that nothing
        happened. Raises OverflowError for a number that its column cannot hold.
        """
        length = 0 if columns is None else len(next(iter(columns.values())))
        if columns is None or not length:
            return None
        table = {}
        for name in (column.name for column in fields(cls)):
            dtype = TYPES.get(name, np.int64)
            missing = np.full(length, False if dtype is np.bool_ else -1)
            table[name] = as_column_type(name, columns.get(name, missing))
        return cls(**table)

    @classmethod
    def empty(cls) -> Self:
        return cls(*(np.empty(0, np.int64) for _ in fields(cls)))

    @classmethod
    def joined(cls, tables: Sequence[Self]) -> Self:
        """The rows of all the tables, one table after the other."""
        if not tables:
            return cls.empty()
        names = [column.name for column in fields(cls)]
        return cls(*(np.concatenate([getattr(each, name) for each in tables]) for name in names))

    def rows(self, chosen: np.ndarray | slice) -> Self:
        """A table of the rows that `chosen` selects, as indices, a mask or a slice."""
        return type(self)(*(getattr(self, column.name)[chosen] for column in fields(self)))


@dataclass(frozen=True)
class Operations(Table):
    """Kernels, copies, memsets and whole CUDA graphs on the GPUs, one row each, sorted by start."""

    start_ns: np.ndarray  # int64
    end_ns: np.ndarray  # int64
    kind: np.ndarray  # int8
    name: np.ndarray  # int32; of kernels the full demangled name, of copies as in `nsys stats`
    process: np.ndarray  # int64, the system's pid
    device: np.ndarray  # int32, index as the process's tool counts; equals Device.id
    stream: np.ndarray  # int64
    call: np.ndarray  # int64, row in Trace.calls that launched it; -1: not captured
    bytes: np.ndarray  # int64, size of a copy or memset; -1 for kernels
    blocks: np.ndarray  # int64, thread blocks of the grid; -1 where there is no grid
    threads: np.ndarray  # int32, threads in a block; -1 where there is no grid
    registers: np.ndarray  # int32, registers of a thread; -1 where there is no grid
    shared_bytes: np.ndarray  # int32, static and dynamic shared memory of a block; -1 as before
    pageable: np.ndarray  # bool, a copy from or to pageable host memory
    graph_node: np.ndarray  # int64, a kernel's node in its CUDA graph; -1: none or unknown


@dataclass(frozen=True)
class Calls(Table):
    """CUDA API calls (runtime and driver) on the host, one row each, sorted by start."""

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
    end_ns: np.ndarray  # int64; the end of the capture for a range that was still open
    closed: np.ndarray  # bool
    name: np.ndarray  # int32
    domain: np.ndarray  # int32, the domain's name; -1 in the default domain
    process: np.ndarray  # int64
    thread: np.ndarray  # int64, or ANY_THREAD


@dataclass(frozen=True)
class ShapedOperators(Table):
    """Multiplying operators of PyTorch whose inputs were recorded, sorted by start."""

    start_ns: np.ndarray  # int64
    end_ns: np.ndarray  # int64
    process: np.ndarray  # int64
    thread: np.ndarray  # int64
    inputs: np.ndarray  # int32, row in Trace.inputs


@dataclass(frozen=True)
class AutogradOperators(Table):
    """Operators of PyTorch with a sequence number of autograd, sorted by start.

    An operator of backward has the number of its forward operator: the last one that began with
    this number on the thread where forward ran. Threads count for themselves.
    """

    start_ns: np.ndarray  # int64
    end_ns: np.ndarray  # int64
    name: np.ndarray  # int32
    process: np.ndarray  # int64
    thread: np.ndarray  # int64
    sequence: np.ndarray  # int64
    forward_thread: np.ndarray  # int64, of backward: PyTorch's own number of that thread; else 0


@dataclass(frozen=True)
class CallStacks:
    """Python's frames at CUDA calls, stack by stack, the innermost first."""

    of_call: np.ndarray  # int64, number of the stack of each row of Trace.calls; -1: none recorded
    stack: np.ndarray  # int64, number of each frame's stack, ascending
    name: np.ndarray  # int32, FILE(LINE): FUNCTION, with the line that ran


@dataclass(frozen=True)
class Inputs:
    """The arguments of a call of an operator, an entry for each."""

    operator: str
    dims: list[list[int]]  # shape of a tensor; [] for another argument
    types: list[str]  # element type, as PyTorch spells it: float, c10::BFloat16
    values: list[str]  # value of an argument that is no tensor; [] where none were recorded


@dataclass(frozen=True)
class Allocations(Table):
    """Allocations (bytes > 0) and frees (bytes < 0) of device memory, sorted by time."""

    time_ns: np.ndarray  # int64
    bytes: np.ndarray  # int64
    process: np.ndarray  # int64
    device: np.ndarray  # int32


@dataclass(frozen=True)
class CollectiveCalls(Table):
    """Collectives that the host called, as PyTorch recorded them; sorted by start."""

    start_ns: np.ndarray  # int64
    end_ns: np.ndarray  # int64
    name: np.ndarray  # int32, as PyTorch calls it: allreduce, _allgather_base
    group: np.ndarray  # int32, the process group's name and its members; -1: unknown
    bytes: np.ndarray  # int64, size of the input or the output, the larger; -1: unknown
    sequence: np.ndarray  # int64, number in its group; -1: unknown
    process: np.ndarray  # int64
    thread: np.ndarray  # int64


@dataclass(frozen=True)
class HostEvents(Table):
    """Events of the host that are only counted, as recording each took time; sorted by start."""

    start_ns: np.ndarray  # int64
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
    """A GPU; None where the capture lacks a figure."""

    id: int
    name: str
    sm_count: int | None = None
    memory_bytes: int | None = None
    memory_bandwidth_bytes_per_s: int | None = None
    compute_capability: str | None = None  # 9.0


@dataclass(frozen=True)
class EventCounts:
    """Numbers of events of the GPU and its API that the tool says it recorded, and that it kept."""

    recorded: int
    kept: int


@dataclass(frozen=True)
class Trace:
    """A capture. Without GPU activity `operations` is None (a CPU run, or no CUDA trace)."""

    kind: str  # nsys | kineto | jax
    file: Path
    names: list[str]
    devices: list[Device]
    operations: Operations | None
    calls: Calls | None
    ranges: Ranges | None
    operators: Ranges | None = None  # PyTorch's own operators; in Kineto traces alone
    shaped_operators: ShapedOperators | None = None  # None: recorded without shapes
    inputs: list[Inputs] = field(default_factory=list)
    allocations: Allocations | None = None
    collective_calls: CollectiveCalls | None = None  # in Kineto traces alone
    counters: list[CounterSamples] | None = None
    os_calls: Calls | None = None  # calls of system libraries: waits, files, threads; nsys alone
    frames: Ranges | None = None  # calls of Python functions; in Kineto traces with stacks alone
    sampled: Ranges | None = None  # Python functions as samples of `run` have them
    host_events: HostEvents | None = None  # all of the host but calls of CUDA; JAX's profiler alone
    call_stacks: CallStacks | None = None  # in nsys captures with Python's backtraces alone
    autograd: AutogradOperators | None = None  # None: on a GPU, recorded without stacks
    overhead: Ranges | None = None  # times in which the profiler itself held up a thread
    tool_version: str | None = None
    schema_version: str | None = None
    settings: frozenset[str] = frozenset()  # of torch.profiler: record_shapes, with_stack
    no_gpu: bool = False  # the tool looked for GPUs, and the machine has none
    warnings: list[str] = field(default_factory=list)  # what the tool says it lost or could not do
    events: EventCounts | None = None  # where the tool could not process some
    rank: int | None = None  # number of this process among those that train together
    world_size: int | None = None  # how many train together
    personal: bool = False  # it still holds an environment, a user, a host or folders

    @property
    def first_ns(self) -> int:
        """Start of the first event; 0 without events."""
        tables = [self.ranges, self.operators, self.calls, self.operations]
        starts = [int(table.start_ns.min()) for table in tables if table is not None]
        starts += [int(m.time_ns.min()) for m in self.counters or [] if len(m.time_ns)]
        return min(starts, default=0)
