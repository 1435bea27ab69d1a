"""OUT_DIR/trigger.json: asks a run that is under way for a capture window.

Written by `python -m profiling trigger`; rank 0 of the run looks for it when it logs a row, and
takes it away (training.trigger).
"""

from dataclasses import dataclass

TRIGGER = "trigger.json"
KINDS = ("torch", "memory", "nsys")


@dataclass(frozen=True)
class Trigger:
    kind: str  # of KINDS
    steps: int | None = None  # iterations; None: the run's profile.steps
