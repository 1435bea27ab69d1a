"""Cost of a profiler to the host for each event, measured on this machine.

    python -m validation profiler_cost
    python -m validation profiler_cost rounds=7 nsys=/opt/nvidia/nsight-systems/bin/nsys

Times many calls of one kind in a row (PyTorch's operators, ranges, Python functions, allocations;
on a GPU launches, copies, waits, CUDA graphs and NVTX ranges, too) without a profiler and with
torch.profiler, with and without stacks, shapes and memory, in turns; on a GPU with nsys in
processes of their own, in turns with processes without it. A row says how many microseconds longer
a call took (median over the rounds, the least, the most). Then the table that reports use
(profiling.shared.profiler_costs) and the gap between operators that follow each other at once, by
which it is scaled to other hosts.

A launching operator is two events, an operator and a launch; a copy is two operators and a call.
"""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.measuring import Keys, key, measure_in_turns, run_successfully, spread
from profiling.analysis.gpu_time.profiler_cost import back_to_back_ns
from profiling.shared.json_records import read_json
from profiling.shared.profiler_costs import BACK_TO_BACK_US, COSTS
from profiling.timeline.opening import open_capture
from profiling.tools import nsys_tool
from validation.profiled_calls import call_us, kinds

SETTINGS: dict[str, tuple[str, ...]] = {
    "": (),
    "record_shapes": ("record_shapes",),
    "with_stack": ("with_stack",),
    "record_shapes, with_stack": ("record_shapes", "with_stack"),
    "profile_memory": ("profile_memory",),
}
NSYS_OPTIONS = (
    *("--trace=cuda,nvtx,osrt", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true"),
    *("--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--cuda-graph-trace=node"),
)


@dataclass
class CostConfig(Keys):
    rounds: int = key(5, "measurements of each kind with each profiler, in turns", least=2)
    count: int = key(2000, "calls in a row", least=100)
    nsys: str = key("", "this nsys; else the one that is found, where there is a GPU")


def main(config: CostConfig) -> None:
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"torch {torch.__version__}, {where}; {config.rounds} rounds of {config.count} calls\n")
    print("| tool | setting | calls | us longer a call | of |\n|---|---|---|---:|---:|")
    for kind in kinds():
        print_rows("torch.profiler", kind, in_torch(kind, config))
    if torch.cuda.is_available():
        nsys = nsys_tool.find(config.nsys or None)
        for kind, taken in in_nsys(nsys.path, config).items():
            print_rows(f"nsys {nsys.version}", kind, taken)
    print("\n| in the table | event | setting | us | measured |\n|---|---|---|---:|---|")
    for cost in COSTS:
        row = cost.tool, cost.event, cost.setting or "", f"{cost.least_us} to {cost.most_us}"
        print(f"| {' | '.join((*row, cost.where))} |")
    here_us, usual_us = operator_gap_us(config.count), BACK_TO_BACK_US["kineto", "operators"]
    print(
        f"\ngap between operators at its 5 % quantile: {here_us:.2f} us here, {usual_us} where the "
        "table was measured"
    )


def print_rows(tool: str, kind: str, taken_us: dict[str | None, list[float]]) -> None:
    """Print a row for each setting; the times under None are of calls without a profiler."""
    free_us = median(taken_us[None])
    for setting, us in taken_us.items():
        if setting is not None:
            longer = spread([each - free_us for each in us], 2)
            print(f"| {tool} | {setting} | {kind} | {longer} | {free_us:.2f} |", flush=True)


def in_torch(kind: str, config: CostConfig) -> dict[str | None, list[float]]:
    """Setting of torch.profiler, None: without it -> microseconds of a call in each round."""
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)

    def measure(settings: tuple[str, ...] | None) -> float:
        if settings is None:
            return call_us(kind, config.count)
        with profile(
            activities=activities,
            record_shapes="record_shapes" in settings,
            with_stack="with_stack" in settings,
            profile_memory="profile_memory" in settings,
        ):
            return call_us(kind, config.count)

    measures: dict[str | None, Callable[[], float]] = {None: partial(measure, None)}
    measures |= {name: partial(measure, settings) for name, settings in SETTINGS.items()}
    return measure_in_turns(measures, config.rounds)


def in_nsys(nsys: str, config: CostConfig) -> dict[str, dict[str | None, list[float]]]:
    """Kind of call -> microseconds of one in each round, without nsys (None) and with it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "times.json"
        child = [sys.executable, "-m", "validation.profiled_calls", str(file), str(config.count)]
        recorded = [nsys, "profile", *NSYS_OPTIONS, "-o", str(Path(folder) / "report"), *child]

        def measure(command: list[str]) -> dict[str, float]:
            run_successfully(command)
            return read_json(file, dict[str, float])

        measures: dict[str | None, Callable[[], dict[str, float]]] = {
            None: partial(measure, child),
            "": partial(measure, recorded),
        }
        rounds = measure_in_turns(measures, config.rounds)
    return {
        kind: {setting: [each[kind] for each in times] for setting, times in rounds.items()}
        for kind in rounds[None][0]
    }


def operator_gap_us(count: int) -> float:
    """The gap between operators that follow each other at once, in microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "operators.json"
        with profile(activities=[ProfilerActivity.CPU]) as recording:
            call_us("operators", count)
        recording.export_chrome_trace(str(file))
        operators = open_capture(file).operators
    assert operators is not None
    gap_ns = back_to_back_ns(operators, operators.thread[:1].tolist())
    return (gap_ns or 0.0) / 1e3
