"""Write simulated trainings as torch.profiler would have written them."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.fleet.simulation import (
    TENSOR_PARALLEL_STREAM,
    Operation,
    Simulation,
)

PROCESS = 4100  # of rank 0
GPU = {"name": "NVIDIA H200", "totalGlobalMem": 150109880320, "numSms": 132}


@dataclass(frozen=True)
class FileFacts:
    """Facts that the files of a simulated training hold besides times."""

    clock_us: np.ndarray  # (ranks,), offset of each rank's clock from the true one
    sequence: bool = True  # sequence numbers of collectives
    groups: bool = True  # names and members of process groups
    rank: bool = True  # rank and world size in the header
    operators: bool = False  # an operator of PyTorch's around each launch
    steps: range | None = None  # simulated steps to write, or None for all
    queued: bool = False  # also kernels that run in them and were launched before, without launches
    host: str | None = None  # host of an nsys session, which then has its start and GPUs too
    began_s: float = 1_700_000_000.0  # start of that session, UTC

    def span_us(self, simulation: Simulation, rank: int) -> tuple[float, float]:
        """(start, end) of the steps to write, in us of the true clock on the rank's host."""
        ranges = [each for each in simulation.ranges if each.name.startswith("step ")]
        kept = ranges[self.steps.start : self.steps.stop] if self.steps else ranges
        return kept[0].start_us[rank], kept[-1].end_us[rank]


def clocks_of_hosts(ranks: int, of_one_host: int) -> np.ndarray:
    """Clock offsets in us, (ranks,), equal within a host and up to hours apart between hosts."""
    hosts = -(-ranks // of_one_host)
    apart = np.random.default_rng(1).uniform(0, 5e9, hosts).round(3)
    return np.repeat(apart, of_one_host)[:ranks]


def write_kineto(simulation: Simulation, rank: int, path: Path, facts: FileFacts) -> Path:
    """Write the rank's trace as torch.profiler would; gzipped where the name ends with .gz."""
    clock_us = 4.3e9 + facts.clock_us[rank]
    begin, end = facts.span_us(simulation, rank)
    lines = []
    for each in simulation.ranges:
        if begin <= each.start_us[rank] <= end:
            name = each.name.replace("step ", "ProfilerStep#")
            times = clock_us + each.start_us[rank], each.end_us[rank] - each.start_us[rank]
            lines.append(host_event("user_annotation", name, *times, ""))
    for each in simulation.waits:
        if begin <= each.start_us[rank] <= end:
            times = clock_us + each.start_us[rank], each.end_us[rank] - each.start_us[rank]
            lines.append(host_event("cuda_runtime", each.name, *times, ""))
    for number, operation in enumerate(simulation.operations):
        if not operation.there[rank] or operation.launch_us[rank] > end:
            continue
        if begin <= operation.launch_us[rank]:
            lines += events_of(simulation, operation, rank, number, clock_us, facts)
        elif facts.queued and operation.end_us[rank] > begin:
            lines += events_of(simulation, operation, rank, number, clock_us, facts)[-1:]
    head: dict[str, object] = {"schemaVersion": 1, "deviceProperties": [{"id": 0} | GPU]}
    if facts.rank:
        of_all = {"backend": "nccl", "rank": rank, "world_size": simulation.fleet.ranks}
        head["distributedInfo"] = of_all
    text = json.dumps(head)[:-1] + ', "traceEvents": [\n' + ",\n".join(lines) + "\n]}"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode(), 1))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def host_event(category: str, name: str, ts: float, dur: float, args: str) -> str:
    return (
        f'{{"ph":"X","cat":"{category}","name":"{name}","pid":{PROCESS},"tid":{PROCESS},'
        f'"ts":{ts:.3f},"dur":{dur:.3f},"args":{{{args}}}}}'
    )


def events_of(
    simulation: Simulation, of: Operation, rank: int, number: int, clock_us: float, facts: FileFacts
) -> list[str]:
    """Events of a launch, of the kernel that it launches, and of the operator around both."""
    launch, took = clock_us + of.launch_us[rank], of.returned_us[rank] - of.launch_us[rank]
    by = f'"correlation":{number},"External id":{number}'
    events = [host_event("cuda_runtime", "cudaLaunchKernelExC", launch, took, by)]
    about = ""
    if of.group is not None:
        about = collective_args(simulation, of, rank, facts)
        events.append(host_event("cpu_op", "record_param_comms", launch - 1, took + 2, about))
    elif facts.operators:
        about = f'"External id":{number},"Record function id":0,"Ev Idx":{number}'
        events.append(host_event("cpu_op", "aten::mm", launch - 1, took + 2, about))
    events.append(
        f'{{"ph":"X","cat":"kernel","name":"{of.name}","pid":0,"tid":{of.stream},'
        f'"ts":{clock_us + of.start_us[rank]:.3f},'
        f'"dur":{of.end_us[rank] - of.start_us[rank]:.3f},"args":{{"queued":0,"device":0,'
        f'"context":1,"stream":{of.stream},{by},"registers per thread":168,"shared memory":229632,'
        f'"blocks per SM":2.0,"warps per SM":24.0,"grid":[{of.blocks[rank]},1,1],'
        f'"block":[384,1,1],"est. achieved occupancy %":17}}}}'
    )
    return events


def collective_args(simulation: Simulation, of: Operation, rank: int, facts: FileFacts) -> str:
    elements = of.bytes // 2
    args: dict[str, object] = {"Collective name": "allreduce", "dtype": "BFloat16"}
    args |= {"In msg nelems": elements, "Out msg nelems": elements}
    if facts.groups:
        members = simulation.members(of, rank)
        args["Process Group Name"] = "1" if of.stream == TENSOR_PARALLEL_STREAM else "0"
        args["Process Group Ranks"] = str(members)
    if facts.sequence:
        args["Seq"] = of.sequence
    return json.dumps(args)[1:-1]
