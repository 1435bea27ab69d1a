"""One trial, as every part of the reliability measurement yields it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Trial:
    seed: int  # repeats it: python -m benchmarks reliability part=PART count=1 seed=SEED
    kind: str  # a row of the table
    outcome: str  # a column of it
    failure: str | None = None  # what went wrong, in a line, or None
