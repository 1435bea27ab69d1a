"""Summarise the steps of a program of others, as the hook saw them. Called by open_report."""

from pathlib import Path
from statistics import median

from profiling.analysis.records import ProgramSteps
from profiling.analysis.runs.run_clocks import run_folder
from profiling.shared.json_records import read_json
from profiling.shared.program_facts import read_program_facts
from profiling.shared.run_files import STEP_TIMES, StepTimes

LONG = 3  # medians: no noise of a loop, but an evaluation, a checkpoint or a compilation in a step


def program_steps(capture: Path, rank: int, world_size: int) -> ProgramSteps | None:
    """The steps of the rank in whose run's profile/ the capture lies.

    None for a run of this project's trainer, and for a program that was killed. Raises ValueError
    naming a damaged file.
    """
    folder = run_folder(capture)
    facts = folder and read_program_facts(folder, rank)
    if not folder or not facts:
        return None
    times_ms = step_times_ms(folder / step_times_name(rank, world_size))
    return ProgramSteps(
        rule=facts.rule,
        steps=facts.steps,
        skipped=facts.skipped_steps,
        timed=len(times_ms) or None,
        long=long_steps(times_ms) if times_ms else None,
        backwards_per_step=facts.backwards_per_step,
        host_ms=facts.host_ms,
        inputs=facts.shapes,
        notes=facts.notes,
    )


def step_times_name(rank: int, world_size: int) -> str:
    return STEP_TIMES if world_size == 1 else STEP_TIMES.replace(".", f"-rank{rank}.")


def long_steps(times_ms: list[float]) -> int:
    """Number of steps that took longer than LONG medians."""
    limit_ms = LONG * median(times_ms)
    return sum(ms > limit_ms for ms in times_ms)


def step_times_ms(file: Path) -> list[float]:
    """Times of the steps that were timed; empty where none were written."""
    return [ms for ms in read_json(file, StepTimes).ms if ms is not None] if file.is_file() else []
