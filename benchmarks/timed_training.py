"""A whole training, ours or nanoGPT's, timed from outside. For as_typed, scaling and records."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import BinaryIO

from benchmarks.measuring import with_bytecode
from profiling.launch.bench import printed
from profiling.launch.bench.printed import StampedOutput, Training
from profiling.launch.experiment.plan import LOG_INTERVAL
from profiling.launch.experiment.processes import check_ended
from profiling.launch.process import stream


@dataclass(frozen=True)
class TimedTraining:
    """Times of a process that has ended, and what it printed."""

    began_s: float  # time.perf_counter
    wall_s: float
    step_ms: float  # median from line to line, behind the warm-up
    run: Training


def check_keys(against: str, iterations: int, warm_up: int) -> None:
    """Raises ValueError where `against` is no checkout, or too few iterations would be timed."""
    if against and not (Path(against) / "train.py").is_file():
        raise ValueError(f"against={against}: no checkout of nanoGPT; it has no train.py")
    if warm_up + 2 * LOG_INTERVAL > iterations:
        raise ValueError(f"warm_up={warm_up}: leaves less than 20 of {iterations}")


def time_training(
    words: list[str],
    folder: Path,
    environ: Mapping[str, str],
    log: BinaryIO,
    label: str,
    warm_up: int,
) -> TimedTraining:
    """Run python with `words` in `folder` to its end; its output goes into `log`.

    Raises ValueError where it fails, or where its lines give no step time.
    """
    output = StampedOutput(log)
    # lines are timed as they come
    unbuffered = with_bytecode(environ) | {"PYTHONUNBUFFERED": "1"}
    ended = stream([sys.executable, *words], unbuffered, output, folder)
    wall_s = output.now_s()
    log.flush()
    check_ended(ended, words, Path(log.name), label)
    run = printed.training(output.lines)
    steps_ms = [ms for _, ms in run.steps(warm_up)]
    if not steps_ms:
        raise ValueError(f"{log.name}: lacks lines such as 'iter 10: loss 4.1, time 5.0ms'")
    step_ms = median(steps_ms)
    if step_ms == 0:
        raise ValueError(
            f"{log.name}: its lines came all at once; time more iterations, or longer ones"
        )
    return TimedTraining(output.began_s, wall_s, step_ms, run)
