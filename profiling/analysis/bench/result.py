"""Make the table of `bench`: each row is of one kind of process, with the ratio and its interval.

Statistics are those of `ab`: the process is the unit (difference.experiment.compare_with_first).
"""

import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from profiling.analysis.bench.bench_records import (
    Bench,
    Kind,
    Measure,
    Side,
    SideValues,
    TimedProcess,
    Work,
)
from profiling.analysis.difference.comparison_records import Against
from profiling.analysis.difference.experiment import FEWEST_PROCESSES, compare_with_first
from profiling.analysis.statistics import EQUAL_WITHIN_PERCENT
from profiling.shared.hardware import peak_flops_per_s

TARGET = 1.47  # validation loss
RATE = "tokens/s"
SIDES: tuple[Side, ...] = ("theirs", "ours", "exact")


@dataclass(frozen=True)
class Part:
    what: str
    meaning: str
    unit: str
    kind: Kind  # kind of the processes that have the value
    value: Callable[[TimedProcess, float], float | None]  # of (process, loss to reach)


def step_ms(process: TimedProcess, _: float) -> float | None:
    return statistics.median(process.row_ms) if process.row_ms else None


def seconds_to_loss(process: TimedProcess, target: float) -> float | None:
    """Seconds until the first evaluation at or below the loss was printed, or None."""
    return next((e.at_s for e in process.evaluations if e.val_loss <= target), None)


def tokens_per_s(process: TimedProcess, _: float) -> float | None:
    return process.tokens / process.sampling_s if process.tokens and process.sampling_s else None


PARTS = {
    "step": Part(
        "step",
        "a training step, from one printed line to the next, and its MFU",
        "ms",
        "steps",
        step_ms,
    ),
    "start": Part(
        "start to iteration 0",
        "from the start of the process to the line of iteration 0",
        "s",
        "steps",
        lambda process, _: process.first_iteration_s,
    ),
    "end": Part(
        "last line to end",
        "from the last line of the process to its end",
        "s",
        "steps",
        lambda process, _: process.end_s,
    ),
    "run": Part(
        "whole run",
        "the whole process of --iterations, with evaluations, checkpoints and imports",
        "s",
        "run",
        lambda process, _: process.wall_s,
    ),
    "loss": Part(
        "start to loss",
        "from the start of the process to an evaluation at or below --loss",
        "s",
        "run",
        seconds_to_loss,
    ),
    "sample": Part(
        "sampling one",
        "sampling one sequence of --tokens, the only one of its process",
        RATE,
        "sample",
        tokens_per_s,
    ),
    "samples": Part("sampling many", "sampling --samples sequences", RATE, "samples", tokens_per_s),
    "captured": Part(
        "captured / free step",
        "time of a captured step divided by an uncaptured one: with nsys, or with torch.profiler "
        "for ours if nsys is missing",
        "ratio",
        "captured",
        lambda process, _: process.captured_ratio,
    ),
}


def measures(
    bench: Bench, target: float = TARGET, equal_within_percent: float = EQUAL_WITHIN_PERCENT
) -> list[Measure]:
    """A row for each part whose processes have run, and one for MFU where the peak is known."""
    rows = [measure(bench, name, target, equal_within_percent / 100) for name in PARTS]
    known = [row for row in rows if row]
    return [row for measured in known for row in (measured, mfu_of(bench, measured)) if row]


def mfu_of(bench: Bench, step: Measure) -> Measure | None:
    """MFU of all sides, by our count of the arithmetic and the data sheet of the device."""
    if step.part != "step" or not (bench.flops_per_step and bench.device and bench.dtype):
        return None
    peak = peak_flops_per_s(bench.device, bench.dtype)
    if peak is None:
        return None
    at_peak_ms = bench.flops_per_step / peak * 1e3
    sides = [
        side_values(each.side, [100 * at_peak_ms / ms for ms in each.values]) for each in step.sides
    ]
    return Measure("step", "MFU", "%", sides)


def measure(bench: Bench, name: str, target: float, band: float) -> Measure | None:
    part = PARTS[name]
    processes = [process for process in bench.processes if process.kind == part.kind]
    if not processes:
        return None
    values_of: dict[Side, list[float]] = {}
    for side in SIDES:
        values = [part.value(process, target) for process in processes if process.side == side]
        if name == "captured" and side == "theirs":
            values = captured_ratios(bench.processes)
        if known := [value for value in values if value is not None]:
            values_of[side] = known
    what, remark = part.what, None
    if name == "loss":
        what, remark = f"{what} {target:g}", unreached_remark(processes, values_of)
    elif name == "captured" and bench.asked.against:
        whole = "the other program: a whole process under nsys divided by its uncaptured processes"
        remark = (
            whole
            if "theirs" in values_of
            else ("not measured: the other program opens no capture window")
        )
    rows = [side_values(side, values) for side, values in values_of.items()]
    pairs = ratios(values_of, part.unit, band)
    return Measure(name, what, part.unit, rows, pairs, detail(bench, name, processes), remark)


def captured_ratios(processes: list[TimedProcess]) -> list[float | None]:
    """Step times of the other checkout's captured processes over the median of its free ones."""
    times_ms: dict[str, list[float]] = {"steps": [], "captured": []}
    for process in processes:
        ms = step_ms(process, 0.0)
        if process.side == "theirs" and process.kind in times_ms and ms is not None:
            times_ms[process.kind].append(ms)
    free = times_ms["steps"]
    return [ms / statistics.median(free) for ms in times_ms["captured"]] if free else []


def detail(bench: Bench, name: str, processes: list[TimedProcess]) -> str | None:
    """The amount of work that took this time, or None."""
    tokens = f"{bench.asked.tokens} tokens"
    if name == "run":
        counts = sorted({len(process.evaluations) for process in processes})
        evaluations = " or ".join(map(str, counts))
        return f"{bench.asked.iterations:,} iterations, {evaluations} evaluations"
    if name == "samples":
        return f"{bench.asked.samples} sequences of {tokens}"
    return f"the only one, {tokens}" if name == "sample" else None


def side_values(side: Side, values: list[float]) -> SideValues:
    return SideValues(side, values, statistics.median(values), min(values), max(values))


def ratios(found: dict[Side, list[float]], unit: str, band: float) -> list[Against]:
    """Ratios of times, ours over theirs, where both have enough processes for an interval."""
    if unit == "ratio":
        return []
    times: dict[str, list[float]] = {
        side: [1 / value for value in values] if unit == RATE else values
        for side, values in found.items()
        if len(values) >= FEWEST_PROCESSES
    }
    others = [side for side in times if side != "theirs"]
    return (
        [compare_with_first("theirs", side, times, band) for side in others]
        if "theirs" in times
        else []
    )


def unreached_remark(processes: list[TimedProcess], found: dict[Side, list[float]]) -> str | None:
    """A remark on the sides that did not always reach the loss, or None; it has their lowest."""
    least = {
        side: min(e.val_loss for p in processes if p.side == side for e in p.evaluations)
        for side in SIDES
        if any(p.side == side and p.evaluations for p in processes)
    }
    counts = Counter(process.side for process in processes)
    short = [side for side in least if len(found.get(side, [])) < counts[side]]
    lowest = [f"{side} came to {least[side]:.4f}" for side in short]
    return f"not always reached: {', '.join(lowest)}" if lowest else None


def whole_work(bench: Bench) -> list[Work]:
    """The work that each side reported, and the work that was counted.

    Counted rows replace those that `bench` has from before.
    """
    counted = counted_work(bench)
    names = {row.what for row in counted}
    return [row for row in bench.work if row.what not in names] + counted


def counted_work(bench: Bench) -> list[Work]:
    """Iterations and evaluations of the whole runs, as they were printed."""
    runs = [process for process in bench.processes if process.kind == "run"]
    first = {process.side: process for process in reversed(runs)}
    if "ours" not in first or "theirs" not in first:
        return []
    ours, theirs = first["ours"], first["theirs"]
    iterations = ours.iterations or 0, theirs.iterations or 0
    evaluations = len(ours.evaluations), len(theirs.evaluations)
    loop = "iterations; nanoGPT's loop ends one iteration after max_iters"
    return [
        Work(loop, str(iterations[0]), str(iterations[1]), iterations[1] - iterations[0] in (0, 1)),
        Work(
            "evaluations",
            str(evaluations[0]),
            str(evaluations[1]),
            evaluations[0] == evaluations[1],
        ),
    ]
