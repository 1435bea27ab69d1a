"""Facts that the hook saw of a program of others: facts/rankN.json in the run's folder.

Written by profiling/attach/hook/_profiling_attach/run_files.py inside the program, at its end.
"""

from dataclasses import dataclass, field
from pathlib import Path

from profiling.shared.json_records import read_json
from profiling.shared.manifest import Count
from profiling.shared.model_description import Size
from profiling.shared.run_files import FACTS


@dataclass(frozen=True)
class ProgramFacts:
    """One rank of a program."""

    rule: str  # how its steps were recognised, in a sentence
    steps: Count
    skipped_steps: Count = 0  # by a GradScaler, for gradients that are not finite
    backwards_per_step: float | None = None  # mean over the steps whose marks were all counted
    # phase -> median of its time on the host, of the steps that were timed
    host_ms: dict[str, float] = field(default_factory=dict)
    timed_step_ms: float | None = None  # median of these steps
    parameters: Count = 0  # numbers in the optimizers
    shapes: list[str] = field(default_factory=list)  # float32:8x128, of outermost modules' inputs
    world_size: Size = 1
    notes: list[str] = field(default_factory=list)  # what the hook could not do, and why


def read_program_facts(folder: Path, rank: int) -> ProgramFacts | None:
    """Facts of a rank; None where none were written, as after a kill.

    Raises ValueError naming a damaged file.
    """
    file = folder / FACTS / f"rank{rank}.json"
    return read_json(file, ProgramFacts) if file.is_file() else None
