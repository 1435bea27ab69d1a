"""Warns when a run has become several times slower, which it cannot mend itself."""

import logging
import os
from dataclasses import dataclass

log = logging.getLogger(__name__)

TIMES_SLOWER = 5
LONG_S = 10.0  # how long a run must be slow before the warning
ON_CPU = "; a run started with OMP_WAIT_POLICY=passive loses less time to other processes"


@dataclass
class Slowdown:
    """Warns once when steps have been five times slower than the fastest for ten seconds.

    `cure` is appended to the warning.
    """

    cure: str = ""
    fastest_ms: float = float("inf")  # least median step of a row so far
    slow_s: float = 0.0  # length of the slow rows since the last fast one
    said: bool = False  # whether the warning was given

    def watch(self, step_ms: float, steps: int) -> None:
        """Takes in a row: its median step, and the number of its steps."""
        self.fastest_ms = min(self.fastest_ms, step_ms)
        slow = step_ms >= TIMES_SLOWER * self.fastest_ms
        self.slow_s = self.slow_s + steps * step_ms / 1e3 if slow else 0.0
        if self.slow_s >= LONG_S and not self.said:
            self.said = True
            log.warning(
                "steps take %s ms, %s ms before: another process may be using this machine%s%s",
                *(f"{ms:,.0f}" if ms >= 10 else f"{ms:.2f}" for ms in (step_ms, self.fastest_ms)),
                load_text(),
                self.cure,
            )


def load_text() -> str:
    """Text with the CPU's load, to follow a message; empty where the system does not tell."""
    if not hasattr(os, "getloadavg"):
        return ""
    return f" (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)"
