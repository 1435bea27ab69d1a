"""Traces of made-up programs.

`Builder` collects events and `trace` sorts them. `Program` simulates a host and a GPU that run a
program with a known fault. `training` is a faultless program.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from profiling.timeline.trace import (
    COPY,
    KERNEL,
    MEMSET,
    Allocations,
    Calls,
    Device,
    Operations,
    Ranges,
    Trace,
)

PROCESS, MAIN, AUTOGRAD = 7, 70, 71
US, MS = 1_000, 1_000_000
H200 = Device(0, "NVIDIA H200", 132, 150 * 10**9, 4800 * 10**9, "9.0")
GEMM, ADD = "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT", "vectorized_elementwise_kernel<add>"
CALL_NS, LATENCY_NS, WAKE_NS = 4 * US, 3 * US, 8 * US  # of `Program`
TO_HOST, TO_DEVICE = "[CUDA memcpy Device-to-Host]", "[CUDA memcpy Host-to-Device]"


class Builder:
    """Trace by hand, event by event; times are in nanoseconds."""

    def __init__(self, process: int = PROCESS, device: int = 0):
        self.process, self.device = process, device
        self.names: list[str] = []
        self.calls: list[tuple] = []
        self.operations: list[dict] = []
        self.ranges: list[tuple] = []
        self.operators: list[tuple] = []
        self.allocations: list[tuple] = []

    def name(self, text: str) -> int:
        if text not in self.names:
            self.names.append(text)
        return self.names.index(text)

    def call(self, start: int, end: int, name: str = "cudaLaunchKernel", thread: int = MAIN) -> int:
        """Add a call and return its number, for `operation`."""
        self.calls.append((start, end, self.name(name), self.process, thread, False))
        return len(self.calls) - 1

    def operation(
        self, start: int, end: int, name: str = GEMM, call: int = -1, kind: int = KERNEL, **columns
    ) -> None:
        has_grid = kind == KERNEL
        row = {
            "start_ns": start,
            "end_ns": end,
            "kind": kind,
            "name": self.name(name),
            "process": self.process,
            "device": self.device,
            "stream": 7,
            "call": call,
            "bytes": 0 if kind in (COPY, MEMSET) else -1,
            "blocks": 1000 if has_grid else -1,
            "threads": 128 if has_grid else -1,
            "registers": 32 if has_grid else -1,
            "shared_bytes": 0 if has_grid else -1,
            "pageable": False,
            "graph_node": -1,
        }
        self.operations.append(row | columns)

    def launched(
        self, at: int, start: int, end: int, name: str = GEMM, thread: int = MAIN, **columns
    ) -> None:
        """Add an operation and the call that launches it, which takes 5 us."""
        self.operation(start, end, name, self.call(at, at + 5 * US, thread=thread), **columns)

    def range(
        self, start: int, end: int, name: str, thread: int = MAIN, domain: str | None = "nanogpt"
    ) -> None:
        of = -1 if domain is None else self.name(domain)
        self.ranges.append((start, end, True, self.name(name), of, self.process, thread))

    def operator(self, start: int, end: int, name: str, thread: int = MAIN) -> None:
        self.operators.append((start, end, True, self.name(name), -1, self.process, thread))

    def trace(self, **fields) -> Trace:
        order = sorted(range(len(self.calls)), key=lambda row: self.calls[row][0])
        place = {old: new for new, old in enumerate(order)} | {-1: -1}
        operations = sorted(self.operations, key=lambda row: row["start_ns"])
        operations = [row | {"call": place[row["call"]]} for row in operations]
        trace = Trace(
            kind="nsys",
            file=Path("hand.sqlite"),
            names=list(self.names),
            devices=[H200],
            operations=operations_table(operations) if operations else None,
            calls=calls_table([self.calls[row] for row in order]) if order else None,
            ranges=ranges_table(self.ranges),
            operators=ranges_table(self.operators),
            allocations=Allocations(*columns(self.allocations, 4)) if self.allocations else None,
        )
        return replace(trace, **fields)


def columns(rows: list[tuple], width: int) -> list[np.ndarray]:
    return [np.array([row[i] for row in rows], np.int64) for i in range(width)]


def calls_table(rows: list[tuple]) -> Calls:
    """Table of calls; rows may leave out whether each call failed."""
    names = list(Calls.__dataclass_fields__)[: len(rows[0])]
    made = Calls.from_columns(dict(zip(names, columns(rows, len(names)), strict=True)))
    assert made is not None
    return made


def operations_table(rows: list[dict]) -> Operations:
    names = Operations.__dataclass_fields__
    made = {name: np.array([row[name] for row in rows], np.int64) for name in names}
    return Operations(**made | {"pageable": made["pageable"].astype(bool)})


def ranges_table(rows: list[tuple]) -> Ranges | None:
    if not rows:
        return None
    made = columns(sorted(rows, key=lambda row: (row[0], -row[1])), 7)
    made[2] = made[2].astype(bool)
    return Ranges(*made)


def training(
    steps: int = 6,
    step_ns: int = 10 * MS,
    host_ns: dict[str, int] | None = None,
    kernel_ns: int = 100 * US,
    kernels: int = 20,
    name: str = GEMM,
) -> Builder:
    """Steps of four phases whose kernels run back to back, launched far ahead.

    `host_ns`: phase -> its time on the host. Backward is launched by autograd's thread.
    """
    build = Builder()
    host_ns = {"data": 100 * US, "forward": 1 * MS, "backward": 1 * MS, "optimizer": 500 * US} | (
        host_ns or {}
    )
    free_at = 0
    for step in range(steps):
        at = begin = step * step_ns
        for phase, length in host_ns.items():
            build.range(at, at + length, phase)
            thread = AUTOGRAD if phase == "backward" else MAIN
            count = kernels if phase in ("forward", "backward") else 1
            for i in range(count):
                launch = at + (i + 1) * length // (count + 1)
                start = max(free_at, launch + 8 * US)
                free_at = start + kernel_ns
                build.launched(launch, start, free_at, name, thread)
            at += length
        build.range(begin, at, f"iteration {step + 40}")
    return build


class Program:
    """Simulated program; `host` and `gpu` are the times in ns until which each is busy."""

    def __init__(self, dispatch_ns: int = 6 * US):
        self.build = Builder()
        self.dispatch_ns = dispatch_ns  # between two launches
        self.host = self.gpu = 0
        self.steps = 0
        self.thread = MAIN

    def trace(self, **fields) -> Trace:
        return self.build.trace(**fields)

    @contextmanager
    def step(self) -> Iterator[None]:
        begin = self.host
        yield
        self.build.range(begin, self.host, f"iteration {self.steps}")
        self.steps += 1

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begin = self.host
        self.thread = AUTOGRAD if name == "backward" else MAIN
        yield
        self.thread = MAIN
        self.host += 1 * US
        self.build.range(begin, self.host, name)

    def work(self, ns: int) -> None:
        """Keep the host busy in Python, without a CUDA call."""
        self.host += ns

    def call(self, ns: int, name: str = "cudaLaunchKernel") -> int:
        begin, self.host = self.host, self.host + ns
        return self.build.call(begin, self.host, name, self.thread)

    def execute(self, ns: int, name: str, call: int, **columns) -> None:
        start = max(self.gpu, self.host + LATENCY_NS)
        self.gpu = start + ns
        self.build.operation(start, self.gpu, name, call, **columns)

    def launch(self, ns: int, count: int = 1, name: str = GEMM, **columns) -> None:
        for _ in range(count):
            self.host += self.dispatch_ns
            self.execute(ns, name, self.call(CALL_NS), **columns)

    def graph(
        self,
        ns: int,
        count: int,
        gap_ns: int = 1 * US,
        name: str = GEMM,
        call_ns: int = 20 * US,
        **columns,
    ) -> None:
        """Launch `count` kernels by one call."""
        self.host += self.dispatch_ns
        call = self.call(call_ns, "cudaGraphLaunch")
        for _ in range(count):
            self.execute(ns, name, call, **columns)
            self.gpu += gap_ns
        self.gpu -= gap_ns

    def wait(self, name: str = "cudaStreamSynchronize") -> None:
        begin, self.host = self.host, max(self.host, self.gpu) + WAKE_NS
        self.build.call(begin, self.host, name, self.thread)

    def item(self, bytes: int = 4) -> None:
        """Copy one number, or more, to the host and wait for it."""
        self.host += self.dispatch_ns
        call = self.call(CALL_NS, "cudaMemcpyAsync")
        self.execute(1 * US, TO_HOST, call, kind=COPY, bytes=bytes)
        self.wait()

    def copy(self, ns: int, bytes: int = 1 << 20) -> None:
        """Copy from pinned memory to the GPU, launched like a kernel."""
        self.host += self.dispatch_ns
        call = self.call(CALL_NS, "cudaMemcpyAsync")
        self.execute(ns, TO_DEVICE, call, kind=COPY, bytes=bytes)

    def pageable_copy(
        self,
        ns: int,
        name: str = TO_DEVICE,
        before_ns: int = LATENCY_NS,
        behind_ns: int = 0,
        bytes: int = 1 << 27,
    ) -> None:
        """Copy from or to pageable memory: the host stages it after all that was launched before.

        `before_ns`, `behind_ns`: time that the call is busy before and after the copy on the GPU.
        """
        begin = self.host
        start = max(self.gpu, self.host) + before_ns
        self.gpu = start + ns
        self.host = self.gpu + behind_ns
        call = self.build.call(begin, self.host, "cudaMemcpyAsync", self.thread)
        self.build.operation(start, self.gpu, name, call, kind=COPY, bytes=bytes, pageable=True)
