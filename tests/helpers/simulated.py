"""A host that launches and a GPU that executes in order: traces of programs with known faults."""

from collections.abc import Iterator
from contextlib import contextmanager

from profiling.timeline.trace import Trace
from tests.helpers.synthetic import AUTOGRAD, COPY, GEMM, MAIN, TO_DEVICE, TO_HOST, US, Builder

CALL_NS, LATENCY_NS, WAKE_NS = 4 * US, 3 * US, 8 * US


class Program:
    """`host` and `gpu` are the times until which each is busy."""

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
        """Python, without a CUDA call."""
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

    def graph(self, ns: int, count: int, gap_ns: int = 1 * US, name: str = GEMM, **columns) -> None:
        """One call that launches `count` kernels."""
        self.host += self.dispatch_ns
        call = self.call(20 * US, "cudaGraphLaunch")
        for _ in range(count):
            self.execute(ns, name, call, **columns)
            self.gpu += gap_ns
        self.gpu -= gap_ns

    def wait(self, name: str = "cudaStreamSynchronize") -> None:
        begin, self.host = self.host, max(self.host, self.gpu) + WAKE_NS
        self.build.call(begin, self.host, name, self.thread)

    def item(self) -> None:
        """A copy of one number to the host, and a wait for it."""
        self.host += self.dispatch_ns
        call = self.call(CALL_NS, "cudaMemcpyAsync")
        self.execute(1 * US, TO_HOST, call, kind=COPY, bytes=4)
        self.wait()

    def pageable_copy(self, ns: int) -> None:
        """The host stages the copy itself, behind all that was launched before."""
        begin = self.host
        start = max(self.gpu, self.host + LATENCY_NS)
        self.gpu = start + ns
        self.host = self.gpu
        call = self.build.call(begin, self.host, "cudaMemcpyAsync", self.thread)
        self.build.operation(
            start, self.gpu, TO_DEVICE, call, kind=COPY, bytes=1 << 27, pageable=True
        )
