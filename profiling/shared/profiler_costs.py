"""Host time that a profiler takes to record one event, by tool: a table, defined only here.

`python -m validation profiler_cost` measures the rows of torch.profiler and nsys on a machine and
prints them beside these. Read by profiling.analysis.gpu_time.profiler_cost.
Standard library only.
"""

from dataclasses import dataclass

GRAPH_NODES = "graph_nodes"  # what a launch of a CUDA graph ran, where each node is recorded


@dataclass(frozen=True)
class EventCost:
    """Microseconds that one event costs; an interval, as hosts and programs differ."""

    tool: str  # kineto | nsys | jax, as Trace.kind
    # a table of Trace: calls | operators | ranges | frames | allocations | host_events; GRAPH_NODES
    event: str
    least_us: float
    most_us: float
    where: str  # it was measured; "not measured" where the interval is a guess
    setting: str | None = None  # of torch.profiler, which adds this much to each event

    @property
    def likely_us(self) -> float:
        return (self.least_us + self.most_us) / 2


FOURTEEN = "14 host-bound programs with and without a profiler, H200, 2026-11-21"
H100 = "torch 2.11, H100, 2026-11-25"
# The least is what these replays cost, over the pace of their host (2 to 3 times the table's). The
# most is of compiled captures: how much longer each node makes the call that launches its graph,
# over the host's pace: 0.67 to 0.95 us by nsys (8 captures), 0.37 to 0.74 by torch.profiler (5).
REPLAYS = "graphs of 10 and 100 kernels, torch 2.11, H100, 2026-11-26"
ON_CPU = "torch 2.13.0, two shared CPU cores, without CUDA"
# What JAX's profiler records besides calls of CUDA are Python's frames and XLA's own ranges. They
# cost 0.4 to 0.8 us in five of these programs, 1.2 and 3.9 in two that fetch many small results.
SEVEN_OF_JAX = "7 programs with and without the profiler, H100 and H200, 2026-11-27"
JAX_ON_CPU = "jax 0.10.2, two shared CPU cores"
AS_TORCH = "not measured; CUPTI records it, as for torch.profiler"

COSTS = (
    EventCost("kineto", "calls", 1.2, 2.8, f"1.3 us inside operators, 0.8 us alone: {H100}"),
    # 2,778 operators and 488 calls made a step of 7.42 ms 10.47, and a GPU of 6.88 ms hid some
    EventCost("kineto", "operators", 0.6, 1.6, "torch 2.11, nanoGPT's step, eager, H200"),
    EventCost("kineto", "operators", 0.1, 0.3, f"0.11 us: {ON_CPU}", "record_shapes"),
    EventCost("kineto", "operators", 0.1, 0.3, f"0.12 us: {ON_CPU}", "with_stack"),
    EventCost("kineto", "ranges", 0.8, 3.0, f"{ON_CPU}; 1.1 us: {H100}"),
    EventCost("kineto", "frames", 0.1, 0.4, f"0.13 us: {ON_CPU}; 0.28 us: {H100}"),
    EventCost("kineto", "allocations", 0.05, 0.3, f"0.06 us: {ON_CPU}"),
    EventCost("kineto", GRAPH_NODES, 0.2, 0.6, f"0.42 to 0.65 us on a slow host: {REPLAYS}"),
    EventCost("nsys", "calls", 1.2, 2.8, f"nsys 2025.3.1, {FOURTEEN}"),
    EventCost("nsys", "ranges", 0.4, 1.2, f"NVTX, 0.73 us: nsys 2025.3.1, {H100}"),
    EventCost("nsys", GRAPH_NODES, 0.3, 1.0, f"0.67 us on a slow host: nsys 2025.3.1, {REPLAYS}"),
    EventCost("jax", "calls", 1.2, 2.8, AS_TORCH),
    EventCost("jax", "host_events", 0.2, 0.8, f"0.13 to 0.28 us: {JAX_ON_CPU}; {SEVEN_OF_JAX}"),
    EventCost("jax", GRAPH_NODES, 0.2, 0.6, AS_TORCH),
)
# Gap between two events that follow each other at once, at its 5 % quantile, on the hosts where the
# table was measured: what the profiler does outside of an event lies in it. It says how fast
# another host is: 0.45 to 1.18 us between operators on three hosts whose launches took 3.9 to 7.8.
BACK_TO_BACK_US = {("kineto", "operators"): 0.45, ("nsys", "calls"): 0.08}
LAUNCH_US = 3.9  # the median call of cudaLaunchKernel there, which says the same
# cuLaunchKernelEx, which JAX and Triton call: 1.00 to 1.26 times as long in each of 13 captures by
# nsys with many of both, 1.1 in the median
DRIVER_LAUNCH_US = 1.1 * LAUNCH_US
# Overhead that tools record and that is there without a profiler, too.
NOT_OF_THE_PROFILER = r"Command Buffer Full|Lazy Function Loading|.*(Module Loading|Compiler).*"
