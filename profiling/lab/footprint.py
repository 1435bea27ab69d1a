"""The footprint of a call: its kernels on a GPU or operators on a CPU, and its peak of memory.

It is never determined while something is timed. On a GPU the call is captured into a CUDA graph and
the driver names its kernels, which works under a profiler as well; on a CPU torch.profiler names
the operators. Called by attention.
"""

import gc
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from cli.errors import one_line
from profiling.lab.attention_work import Call
from profiling.recording.graph_kernels import kernel_names
from profiling.shared.kernel_names import short_name
from profiling.shared.measurements import LaunchCount

MEMINFO = Path("/proc/meminfo")
LEAST_SHARE = 0.03  # of all operators' time; one with less only passes its arguments on
COMPILED = "## Call CompiledFxGraph"
Launched = tuple[list[LaunchCount] | None, str | None]  # what ran, or why it is not known


def kernels_of_calls(call: Call) -> dict[str, Launched]:
    """Direction -> its kernels with the number of launches, or why they are not known."""
    try:
        forward = captured_kernels(call.forward)
        both = captured_kernels(call.forward, call.backward) if call.case.backward else forward
    except (RuntimeError, OSError, AttributeError, TypeError) as error:  # also: PyTorch before 2.8
        why = one_line(f"the call could not be captured: {error}")[:200]
        return dict.fromkeys(("forward", "backward"), (None, why))
    return {
        "forward": (launch_counts(forward), None),
        "backward": (launch_counts(both - forward), None),
    }


def captured_kernels(*calls: Callable[[], object]) -> Counter[str]:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    try:
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        return Counter(short_name(name) for name in kernel_names(graph))
    finally:
        graph.reset()


def operators_of(call: Call) -> dict[str, Launched]:
    """Direction -> ATen's operators and compiled code with the number of calls, the longest
    first."""
    # Other work on the machine may stretch one operator of one call so far that all others fall
    # below the least share: an operator's time is the shortest of three calls. Backward needs the
    # forward before it.
    calls = [{name: operator_profile(run) for name, run in call.passes.items()} for _ in range(3)]
    return {
        direction: (operator_counts([profiles[direction] for profiles in calls]), None)
        for direction in call.passes
    }


def operator_counts(profiles: list[dict[str, tuple[float, int]]]) -> list[LaunchCount]:
    times_us = {key: min(p[key][0] for p in profiles if key in p) for key in profiles[0]}
    least_us = LEAST_SHARE * sum(times_us.values())
    counts: Counter[str] = Counter()
    for key in sorted(times_us, key=lambda key: -times_us[key]):
        if times_us[key] >= least_us:
            counts["compiled code" if key.startswith(COMPILED) else key] += profiles[0][key][1]
    return launch_counts(counts)


def operator_profile(run: Callable[[], object]) -> dict[str, tuple[float, int]]:
    """Operator -> its own time in us and the number of its calls, from one profiled call."""
    with quiet_stderr(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        run()
    return {
        event.key: (event.self_cpu_time_total, event.count)
        for event in profiler.key_averages()
        if event.key.startswith(("aten::", COMPILED))
    }


@contextmanager
def quiet_stderr() -> Iterator[None]:
    """Silence stderr within the block, for Kineto too, which writes to it past Python in some
    PyTorch versions."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def launch_counts(counts: Counter[str]) -> list[LaunchCount]:
    return [LaunchCount(name, count) for name, count in counts.items()]


def begin_memory(device: torch.device) -> None:
    """Free cached memory and reset the peak, so that `out_of_memory` speaks of what follows."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.init()  # without a context there is nothing to count
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(call: Call) -> dict[str, int | None]:
    """Direction -> peak of memory in bytes above the inputs, or None on a CPU, where it is not
    counted.

    Backward's include what forward saved for it.
    """
    device = call.case.device
    if device.type != "cuda":
        return dict.fromkeys(call.passes)
    peaks: dict[str, int | None] = {}
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    for direction, run in call.passes.items():
        torch.cuda.reset_peak_memory_stats(device)
        run()
        peaks[direction] = torch.cuda.max_memory_allocated(device) - before
    return peaks


def host_memory_shortage(needed_bytes: float) -> str | None:
    """Message that the host lacks `needed_bytes` of free memory, or None.

    It is asked beforehand because Linux kills a process that takes too much. None means that they
    fit, or that the system does not say how much is free.
    """
    text = MEMINFO.read_text("utf-8") if MEMINFO.exists() else ""
    available = re.search(r"MemAvailable:\s+(\d+) kB", text)
    if available is None or needed_bytes < int(available[1]) * 2**10:
        return None
    needed, free = needed_bytes / 2**30, int(available[1]) / 2**20
    return f"out of memory: needs about {needed:.0f} GiB, {free:.0f} are free (not run)"


def out_of_memory(error: str, device: torch.device) -> str:
    """Message with the memory that was in use, and the size of the piece that did not fit."""
    held = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    asked = re.search(r"allocate ([\d.]+ [KMG]iB)", error)
    more = f", and {asked[1]} more did not fit" if asked else ""
    return f"out of memory at {held / 2**30:.1f} GiB{more}"
