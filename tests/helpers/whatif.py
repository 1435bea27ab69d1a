"""Works by hand, and a replay of them that goes through the operations one by one."""

from dataclasses import dataclass, field

import numpy as np

from profiling.analysis.whatif.waits import NEVER
from profiling.analysis.whatif.work import LAUNCHING, HostCalls, Launched, Work
from profiling.timeline.trace import KERNEL

US = 1_000.0


@dataclass
class Op:
    """An operation; times in us."""

    took: float
    host_lag: float = 0.0
    stream: int = 0
    stream_lag: float = 0.0
    other: int = -1
    other_lag: float = 0.0
    kind: int = KERNEL
    family: int = 0
    bytes: int = -1
    to_host: bool = False
    from_host: bool = False


@dataclass
class Call:
    """A call and what it launches; times in us."""

    think: float
    took: float
    ops: list[Op] = field(default_factory=list)
    kind: int = LAUNCHING
    awaited: int = -1
    wait_lag: float = 0.0
    data: float = 0.0
    stall: bool = False
    in_data: bool = False
    events: int = 1
    name: int = 0


def made_work(
    calls: list[Call],
    step_first: tuple[int, ...] = (),
    names: tuple[str, ...] = ("cudaLaunchKernel",),
) -> Work:
    """A work of these calls; one step, if `step_first` does not say where they begin."""
    ops = [(row, op) for row, call in enumerate(calls) for op in call.ops]

    def times(values: list[float]) -> np.ndarray:
        return np.array(values, float) * US

    end = np.cumsum([call.think + call.took for call in calls]) * US
    host = HostCalls(
        times([call.think for call in calls]),
        times([call.took for call in calls]),
        np.array([call.events for call in calls]),
        np.zeros(len(calls)),
        times([call.data for call in calls]),
        np.array([call.stall for call in calls]),
        np.array([call.in_data for call in calls]),
        np.array([call.kind for call in calls]),
        np.array([call.name for call in calls]),
        np.array([call.awaited for call in calls]),
        times([call.wait_lag for call in calls]),
        end - times([call.took for call in calls]),
        end,
    )
    gpu = Launched(
        times([op.took for _, op in ops]),
        np.array([row for row, _ in ops], int),
        times([op.host_lag for _, op in ops]),
        np.array([op.stream for _, op in ops], int),
        times([op.stream_lag for _, op in ops]),
        np.array([op.other for _, op in ops], int),
        times([op.other_lag for _, op in ops]),
        np.array([op.kind for _, op in ops], int),
        np.array([op.family for _, op in ops], int),
        np.zeros(len(ops), int),
        np.array([op.bytes for _, op in ops], int),
        np.array([op.to_host for _, op in ops], bool),
        np.array([op.from_host for _, op in ops], bool),
        np.zeros(len(ops)),
        np.zeros(len(ops)),
    )
    counts = [len(call.ops) for call in calls]
    streams = max((op.stream for _, op in ops), default=0) + 1
    return Work(
        host,
        gpu,
        np.concatenate(([0], np.cumsum(counts))),
        np.argsort(gpu.stream, kind="stable"),
        np.full(streams, NEVER),
        np.array(step_first or (0, len(calls))),
        list(names),
    )


def loop(work: Work, rounds: int = 1) -> tuple[list[np.ndarray], list[float], list[float]]:
    """(ends of the operations, end of the GPU, end of the host) in ns of each round."""
    host, gpu = work.host, work.gpu
    ends, gpu_ends, host_ends = [], [], []
    tail = work.earlier_ns.copy()
    before = now = np.full(len(gpu.call), NEVER)
    at = 0.0
    for _ in range(rounds):
        before, now = now, np.full(len(gpu.call), NEVER)
        for row in range(len(host.kind)):
            begun = at = at + host.think_ns[row]
            for op in range(work.first[row], work.first[row + 1]):
                stream = gpu.stream[op]
                start = max(begun + gpu.host_lag_ns[op], tail[stream] + gpu.stream_lag_ns[op])
                if (other := gpu.other[op]) >= 0:
                    known = now if other < op else before
                    start = max(start, known[other] + gpu.other_lag_ns[op])
                now[op] = tail[stream] = start + gpu.took_ns[op]
            at += host.took_ns[row]
            if (awaited := host.awaited[row]) >= 0:
                known = now if awaited < work.first[row + 1] else before
                at = max(at, known[awaited] + host.wait_lag_ns[row])
        ends.append(now)
        gpu_ends.append(float(tail.max()))
        host_ends.append(float(at))
    return ends, gpu_ends, host_ends
