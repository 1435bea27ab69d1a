"""Notices that a run has become several times slower, which it cannot mend but can say."""

import logging
import os
from dataclasses import dataclass

log = logging.getLogger(__name__)

TIMES_SLOWER = 5
LONG_S = 10.0  # slow for so long before it is said
ON_CPU = "; a run started with OMP_WAIT_POLICY=passive loses less to it"


@dataclass
class Slowdown:
    """Of the rows of one run; says so once, and the `cure` where there is one."""

    cure: str = ""
    fastest_ms: float = float("inf")  # the best of the rows' median steps
    slow_s: float = 0.0  # since it was last faster
    said: bool = False

    def watch(self, step_ms: float, steps: int) -> None:
        """A row: its median step and how many steps it stands for."""
        self.fastest_ms = min(self.fastest_ms, step_ms)
        slow = step_ms >= TIMES_SLOWER * self.fastest_ms
        self.slow_s = self.slow_s + steps * step_ms / 1e3 if slow else 0.0
        if self.slow_s >= LONG_S and not self.said:
            self.said = True
            log.warning(
                "steps take %s ms, %s ms before: another process may use this machine%s%s",
                *(f"{ms:,.0f}" if ms >= 10 else f"{ms:.2f}" for ms in (step_ms, self.fastest_ms)),
                load(),
                self.cure,
            )


def load() -> str:
    """How busy the CPU is, where the system tells."""
    if not hasattr(os, "getloadavg"):
        return ""
    return f" (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)"
