"""OUT_DIR/trigger.json: the request for a capture window of a run that is under way.

Written by `python -m profiling trigger`; rank 0 of the run looks for it when it logs a row, and
removes it (training.trigger).
"""

from dataclasses import dataclass

TRIGGER = "trigger.json"
KINDS = ("torch", "memory", "nsys")


@dataclass(frozen=True)
class Trigger:
    kind: str  # of KINDS
    steps: int | None = None  # iterations; the run's profile.steps if None
