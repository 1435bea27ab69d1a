"""A training on many GPUs, simulated: each computes, arrives at collectives, all leave together.

All ranks run one program, so that they are simulated side by side: a time is a column, (ranks,)
float64 microseconds of one true clock. A fault is known, and so is what its removal gives:
`cost_us`. Used by the tests of profiling.analysis.ranks and by `python -m benchmarks ranks`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

COMPUTE_STREAM, DATA_PARALLEL_STREAM, TENSOR_PARALLEL_STREAM = 7, 20, 24
LATENCY_US, WAKE_US, RANGE_US = 3.0, 8.0, 2.0  # of a launch, a wait's end, a range's edge
GEMM, ADD = "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT", "vectorized_elementwise_kernel<add>"
ADAM = "multi_tensor_apply_kernel<FusedAdam>"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
BLOCKS, HEAD_BLOCKS = 264, 1188
Kind = Literal[
    "more_kernels",
    "larger_kernels",
    "slower_kernels",
    "slow_launches",
    "slow_loader",
    "slow_host",
    "slow_link",
]


@dataclass(frozen=True)
class Fault:
    """A fault of some ranks in some steps; `slow_link` is a fault of all ranks."""

    kind: Kind
    times: float = 1.3  # factor of the kernels' number, grids or durations, of launches, transfers
    ranks: tuple[int, ...] = (1,)
    every: int = 1  # N: only each N-th step is faulty
    loader_us: float = 3000.0  # extra time of slow_loader, or of slow_host, before the update


@dataclass(frozen=True)
class Fleet:
    """A training program, and the machine that it runs on."""

    ranks: int = 8
    steps: int = 8
    first_iteration: int = 10
    tensor_parallel: int = 1  # ranks that share each layer; neighbours
    buckets: int = 4  # of gradients, reduced while backward runs; 0: one all-reduce after it
    forward: int = 24  # kernels of the phase, as the next and `optimizer`
    backward: int = 48
    head: bool = False  # backward's kernels before the first bucket are on a grid of their own
    optimizer: int = 8
    kernel_us: float = 100.0
    launch_us: float = 12.0
    loader_us: float = 300.0
    transfer_us: float = 400.0  # of all gradients
    noise: float = 0.01  # standard deviation, as a share of a kernel's time
    slowdown: float = 1.0  # factor of a kernel's time while a collective runs beside it
    leave_us: float = 1.0  # mean delay with which ranks leave a collective
    jitter_us: float = 0.0  # an extra kernel of one random rank in each step
    ahead: bool = False  # hosts launch step after step without waiting for their GPUs
    odd_step: int | None = None  # step in which rank 0 has one more collective than the others
    fault: Fault | None = None
    seed: int = 1


@dataclass
class Operation:
    """One kernel of the program, a value for each rank."""

    name: str
    stream: int
    launch_us: np.ndarray
    returned_us: np.ndarray
    start_us: np.ndarray
    end_us: np.ndarray
    blocks: np.ndarray
    there: np.ndarray  # bool: whether the rank launches it
    group: np.ndarray | None = None  # of a collective: index of the group that the rank is in
    bytes: int = 0
    sequence: int = 0  # from 1 on


@dataclass
class Range:
    name: str
    start_us: np.ndarray
    end_us: np.ndarray


@dataclass
class Simulation:
    fleet: Fleet
    operations: list[Operation] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    waits: list[Range] = field(default_factory=list)  # of the host for the GPU

    @cached_property
    def step_us(self) -> float:
        """Mean duration of a step, over all ranks."""
        found = [each for each in self.ranges if each.name.startswith("step ")]
        starts, ends = [each.start_us for each in found], [each.end_us for each in found]
        return float((ends[-1] - starts[0]).mean()) / len(ends)

    def members(self, operation: Operation, rank: int) -> list[int]:
        """Ranks of the group in which `rank` runs this collective; empty for other operations."""
        if operation.group is None:
            return []
        return np.flatnonzero(operation.group == operation.group[rank]).tolist()


def cost_us(fleet: Fleet) -> float:
    """Time in us that the fault adds to a step: simulated with the fault and without it."""
    return simulate(fleet).step_us - simulate(replace(fleet, fault=None)).step_us


def simulate(fleet: Fleet) -> Simulation:
    machine = Machine(fleet)
    for number in range(fleet.steps):
        step(machine, number)
    return machine.done


class Machine:
    """State of each rank's host and streams while a step is simulated; faults are applied here."""

    def __init__(self, fleet: Fleet):
        self.fleet, self.done = fleet, Simulation(fleet)
        self.host = np.full(fleet.ranks, 1000.0)
        self.streams: dict[int, np.ndarray] = {}
        self.random = np.random.default_rng(fleet.seed)
        self.sequences: dict[int, int] = {}
        self.collectives: list[tuple[np.ndarray, np.ndarray]] = []  # (starts, ends) in this step
        self.faulty = np.zeros(fleet.ranks, bool)  # ranks whose fault acts in this step

    def begin(self, number: int) -> None:
        """Begin step `number`: forget the last step's collectives, choose the faulty ranks."""
        fault = self.fleet.fault
        self.collectives.clear()
        self.faulty[:] = False
        if fault and (number + 1) % fault.every == 0:
            self.faulty[list(fault.ranks)] = True

    def factors(self, kind: Kind) -> np.ndarray:
        """Factor by which a fault of that kind multiplies, (ranks,); 1 where there is none."""
        fault = self.fleet.fault
        of = fault.times if fault and fault.kind == kind else 1.0
        return np.where(self.faulty, of, 1.0)

    def launch(self, there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Let the hosts of the ranks in `there` launch: (starts of the calls, their ends)."""
        begin = self.host.copy()
        took = self.fleet.launch_us * self.factors("slow_launches")
        self.host = np.where(there, begin + took, begin)
        return begin, begin + 0.6 * took

    def stream(self, number: int) -> np.ndarray:
        return self.streams.setdefault(number, np.zeros(self.fleet.ranks))

    def kernel(self, name: str, us: np.ndarray, blocks: np.ndarray, there: np.ndarray) -> None:
        launch, returned = self.launch(there)
        start = np.maximum(self.stream(COMPUTE_STREAM) + 1.0, returned + LATENCY_US)
        end = self.compute_end(start, us)
        self.streams[COMPUTE_STREAM] = np.where(there, end, self.stream(COMPUTE_STREAM))
        self.done.operations.append(
            Operation(name, COMPUTE_STREAM, launch, returned, start, end, blocks, there)
        )

    def compute_end(self, start: NDArray[np.float64], us: NDArray[np.float64]) -> np.ndarray:
        """End of a kernel that takes `us` alone; slower while a collective of this step runs."""
        slowdown, now, left = self.fleet.slowdown, start, us
        if slowdown == 1.0:
            return start + us
        for begin, end in self.collectives:
            before = np.clip(begin - now, 0, left)
            beside = np.clip((end - now - before) / slowdown, 0, left - before)
            now, left = now + before + beside * slowdown, left - before - beside
        end_us: np.ndarray = now + left
        return end_us

    def collective(
        self, stream: int, group: np.ndarray, us: float, size: int, there: np.ndarray | None = None
    ) -> None:
        """Run a collective, which ends in each group one transfer after its last rank has come."""
        if there is None:
            there = np.ones(self.fleet.ranks, bool)
        launch, returned = self.launch(there)
        ready = np.maximum(self.stream(COMPUTE_STREAM), self.stream(stream))
        start = np.maximum(ready + 1.0, returned + LATENCY_US)
        last = np.full(group.max() + 1, -np.inf)
        np.maximum.at(last, group[there], start[there])
        fault = self.fleet.fault
        slower = fault.times if fault and fault.kind == "slow_link" else 1.0
        left = self.random.exponential(self.fleet.leave_us, self.fleet.ranks)
        end = last[group] + us * slower + left
        self.streams[stream] = np.where(there, end, self.stream(stream))
        self.collectives.append((np.where(there, start, np.inf), end))
        self.sequences[stream] = sequence = self.sequences.get(stream, 0) + 1
        blocks = np.full(self.fleet.ranks, 24)
        columns = (launch, returned, start, end, blocks, there, group, size, sequence)
        self.done.operations.append(Operation(ALL_REDUCE, stream, *columns))

    def join(self, stream: int) -> None:
        """Let the compute stream wait for `stream`."""
        ours = self.stream(COMPUTE_STREAM)
        self.streams[COMPUTE_STREAM] = np.maximum(ours, self.stream(stream))

    def synchronize(self) -> None:
        begin = self.host.copy()
        busy = np.max(np.stack(list(self.streams.values())), axis=0)
        self.host = np.maximum(begin, busy) + WAKE_US
        self.done.waits.append(Range("cudaStreamSynchronize", begin, self.host.copy()))

    def work(self, us: np.ndarray) -> None:
        self.host = self.host + us

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        self.host = self.host + RANGE_US
        opened = Range(name, self.host.copy(), self.host)
        self.done.ranges.append(opened)
        yield
        self.host = self.host + RANGE_US
        opened.end_us = self.host.copy()


def step(machine: Machine, number: int) -> None:
    fleet = machine.fleet
    machine.begin(number)
    everyone = np.zeros(fleet.ranks, np.int64)
    with machine.range(f"step {fleet.first_iteration + number}"):
        with machine.range("data"):
            machine.work(loader_us(machine))
        with machine.range("forward"):
            compute(machine, fleet.forward, slow=False)
            jitter(machine)
        with machine.range("backward"):
            parts = max(1, fleet.buckets)
            for bucket in range(parts):
                blocks = HEAD_BLOCKS if fleet.head and bucket == 0 else BLOCKS
                compute(machine, fleet.backward // parts, slow=True, blocks=blocks)
                if bucket == parts - 1:
                    launch_extra_kernels(machine)
                if fleet.buckets:
                    reduce_gradients(machine, parts)
            if not fleet.buckets:
                reduce_gradients(machine, 1)
            if number == fleet.odd_step:
                only = np.arange(fleet.ranks) == 0
                machine.collective(DATA_PARALLEL_STREAM, everyone, 20.0, 64, only)
            machine.join(DATA_PARALLEL_STREAM)
        with machine.range("optimizer"):
            machine.work(extra_us(machine, "slow_host"))
            alike = np.ones(fleet.ranks)
            kernels(machine, ADAM, fleet.optimizer, alike, BLOCKS * alike)
        if not fleet.ahead:
            machine.synchronize()


def loader_us(machine: Machine) -> np.ndarray:
    fleet = machine.fleet
    took = fleet.loader_us * machine.random.normal(1, fleet.noise, fleet.ranks)
    whole_us: np.ndarray = took + extra_us(machine, "slow_loader")
    return whole_us


def extra_us(machine: Machine, kind: Kind) -> np.ndarray:
    """Extra time of the host, (ranks,), by a fault of that kind."""
    fault = machine.fleet.fault
    acts = machine.faulty if fault and fault.kind == kind else np.zeros_like(machine.faulty)
    return np.where(acts, fault.loader_us if fault else 0.0, 0.0)


def compute(machine: Machine, count: int, slow: bool, blocks: int = BLOCKS) -> None:
    """Run the kernels of a phase; slower_kernels acts where `slow`."""
    larger = machine.factors("larger_kernels")
    longer = larger * (machine.factors("slower_kernels") if slow else 1.0)
    parts = 4 if machine.fleet.tensor_parallel > 1 else 1
    for _ in range(parts):
        kernels(machine, GEMM, count // parts, longer, blocks * larger)
        if parts > 1:
            group = np.arange(machine.fleet.ranks) // machine.fleet.tensor_parallel
            machine.collective(TENSOR_PARALLEL_STREAM, group, 40.0, 1 << 20)
            machine.join(TENSOR_PARALLEL_STREAM)


def kernels(
    machine: Machine, name: str, count: int, longer: np.ndarray, blocks: np.ndarray
) -> None:
    fleet = machine.fleet
    for number in range(count):
        us = fleet.kernel_us * longer * machine.random.normal(1, fleet.noise, fleet.ranks)
        kernel = ADD if name == GEMM and number % 4 == 3 else name
        machine.kernel(kernel, us, np.rint(blocks).astype(int), np.ones(fleet.ranks, bool))


def launch_extra_kernels(machine: Machine) -> None:
    """Launch the additional kernels of the faulty ranks."""
    extra = machine.factors("more_kernels") - 1
    of_all = round(float(extra.max()) * machine.fleet.backward)
    us, blocks = np.full(len(extra), machine.fleet.kernel_us), np.full(len(extra), BLOCKS)
    for _ in range(of_all):
        machine.kernel(GEMM, us, blocks, extra > 0)


def jitter(machine: Machine) -> None:
    fleet = machine.fleet
    whose = np.arange(fleet.ranks) == machine.random.integers(fleet.ranks)
    blocks = np.full(fleet.ranks, BLOCKS)
    machine.kernel(ADD, np.full(fleet.ranks, 5.0), blocks, np.ones(fleet.ranks, bool))
    if fleet.jitter_us:
        machine.kernel(ADD, np.full(fleet.ranks, fleet.jitter_us), blocks, whose)


def reduce_gradients(machine: Machine, parts: int) -> None:
    """Reduce one of `parts` buckets over the ranks that hold the same part of the model."""
    fleet = machine.fleet
    group = np.arange(fleet.ranks) % fleet.tensor_parallel
    machine.collective(DATA_PARALLEL_STREAM, group, fleet.transfer_us / parts, (50 << 20) // parts)
