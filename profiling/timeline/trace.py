"""What a capture holds, as columns. Readers make it, profiling.analysis asks it.

Times are integer nanoseconds on one clock for host and GPU. Where a capture cannot say, a table is
None ("not captured"), an index -1, a count -1: never 0. Names are indices into `Trace.names`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np

KERNEL, COPY, MEMSET, GRAPH = 0, 1, 2, 3  # Operations.kind; GRAPH: a CUDA graph captured as a whole
LATEST_NS = 4 * 10**18  # beyond, the difference of two times would not fit into 64 bits
ANY_THREAD = -1  # Ranges.thread of a range that may start on one thread and end on another


@dataclass(frozen=True)
class Operations:
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
    pageable: np.ndarray  # bool, a copy from or to pageable host memory


@dataclass(frozen=True)
class Calls:
    """CUDA API calls (runtime and driver) on the host, a row each, sorted by start."""

    start_ns: np.ndarray  # int64
    end_ns: np.ndarray  # int64
    name: np.ndarray  # int32, as `nsys stats` prints it: cut _v and four digits, keep _v11060
    process: np.ndarray  # int64
    thread: np.ndarray  # int64, unique over processes


@dataclass(frozen=True)
class Ranges:
    """NVTX push/pop and start/end ranges, or record_function ranges; sorted by start."""

    start_ns: np.ndarray  # int64
    end_ns: np.ndarray  # int64; of a range that was still open: the end of the capture
    closed: np.ndarray  # bool
    name: np.ndarray  # int32
    domain: np.ndarray  # int32, its name; -1 in the default domain
    process: np.ndarray  # int64
    thread: np.ndarray  # int64, or ANY_THREAD


@dataclass(frozen=True)
class Allocations:
    """Device memory taken (bytes > 0) and given back (bytes < 0), sorted by time."""

    time_ns: np.ndarray  # int64
    bytes: np.ndarray  # int64
    process: np.ndarray  # int64
    device: np.ndarray  # int32


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
    allocations: Allocations | None = None
    counters: list[CounterSamples] | None = None
    tool_version: str | None = None
    schema_version: str | None = None
    warnings: list[str] = field(default_factory=list)  # what the tool says it lost or could not do
    personal: bool = False  # it still holds an environment, a user, a host or folders


class Names:
    """Gives each name its number, while a capture is read."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = defaultdict(count().__next__)

    def of(self, keys: np.ndarray, name: Callable[[int], str]) -> np.ndarray:
        """The numbers of what `name` calls the keys."""
        distinct, where = np.unique(keys, return_inverse=True)
        return self.numbered(map(name, distinct.tolist()))[where]

    def numbered(self, names: Iterable[str]) -> np.ndarray:
        return np.fromiter(map(self.numbers.__getitem__, names), np.int32)


def possible(start_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """Whether each pair of times makes sense."""
    return (start_ns <= end_ns) & (start_ns > -LATEST_NS) & (end_ns < LATEST_NS)
