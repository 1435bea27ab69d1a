"""One pass over programs, all in this process: it times them, or lets a profiler capture them.

    python -m validation.foreign_programs time|torch|nsys OUT REPEATS NAME,NAME

`python -m validation foreign` starts it, for nsys under `nsys profile
--capture-range=cudaProfilerApi`. A program that fails is reported, and the next one follows.
"""

import gc
import random
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import torch

from cli.files import write_text
from profiling.shared.json_records import to_json
from validation.diagnoses import Times
from validation.foreign_programs.parts import Step
from validation.foreign_programs.series import PROGRAMS, RANGES, TIMES, Program

WARM_UP = 6  # steps
TIMED, BLOCKS = 10, 5  # steps in a block, whose mean counts; blocks, whose median counts
IN_NSYS, IN_TORCH = 10, 6  # steps of a capture


def main(words: list[str]) -> None:
    task, folder, repeats, names = words
    warnings.filterwarnings("ignore")
    out = Path(folder)
    programs = [PROGRAMS[name] for name in names.split(",")]
    if task == "time":
        return time_all(programs, out / TIMES)
    captures = {
        f"{program.name}-{number}": program
        for program in programs
        for number in range(1, int(repeats) + 1)
    }
    if task == "torch":
        return record_all_by_torch(captures, out)
    record_all_in_ranges(captures, out / RANGES)


@contextmanager
def report_outcome(name: str) -> Iterator[None]:
    """Print how the block went, even if it failed, and free the GPU's memory after it."""
    try:
        yield
        print(f"{name}: done", flush=True)
    except Exception as error:
        print(f"{name}: failed: {error!r}"[:500], flush=True)
    gc.collect()
    torch.cuda.empty_cache()


def prepare_step(program: Program, fault: bool) -> Step:
    """The program's step, seeded and warmed up."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    step = program.make(fault)
    run_steps(step, WARM_UP)
    return step


def run_steps(step: Step, steps: int) -> None:
    for _ in range(steps):
        step()
    torch.cuda.synchronize()


def time_all(programs: list[Program], file: Path) -> None:
    times: dict[str, Times] = {}
    for program in programs:
        with report_outcome(program.name):
            times[program.name] = measure_times(program)
            write_text(file, to_json(times))


def measure_times(program: Program) -> Times:
    without_ms = step_ms(program, fault=False) / program.work_without
    return Times(step_ms(program, fault=True), without_ms)


def step_ms(program: Program, fault: bool) -> float:
    """Median time of a step in ms; within a timed block only the program itself waits."""
    step = prepare_step(program, fault)
    laps = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        run_steps(step, TIMED)
        laps.append(1000 * (time.perf_counter() - start) / TIMED)
    del step
    gc.collect()
    torch.cuda.empty_cache()
    return median(laps)


def record_all_by_torch(captures: dict[str, Program], out: Path) -> None:
    for stem, program in captures.items():
        with report_outcome(stem):
            record_by_torch(prepare_step(program, fault=True), out / "torch" / f"{stem}.json.gz")


def record_by_torch(step: Step, file: Path) -> None:
    partial = file.with_name("partial.json.gz")  # its end makes torch compress it
    with torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=IN_TORCH, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(partial)),
    ) as profiler:
        for _ in range(1 + IN_TORCH):
            step()
            profiler.step()
    partial.replace(file)


def record_all_in_ranges(captures: dict[str, Program], file: Path) -> None:
    """Record one range of nsys for each capture.

    The file lists the capture in each range, None where it failed.
    """
    ranges: list[str | None] = []
    for stem, program in captures.items():
        with report_outcome(stem):
            step = prepare_step(program, fault=True)
            ranges.append(None)
            try:
                record_in_range(step)
                ranges[-1] = stem
            finally:
                del step
                write_text(file, to_json(ranges))


def record_in_range(step: Step) -> None:
    torch.cuda.profiler.start()
    try:
        run_steps(step, IN_NSYS)
    finally:
        torch.cuda.profiler.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
