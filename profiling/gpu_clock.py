"""How high a GPU's clock was over a run, and what held it down, by the driver's samples.

For training.run_verdict, and for reports by analysis.runs.run_clocks. Standard library only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from profiling.metric_names import of_gpu

HeldDownBy = Literal["power", "temperature", "slowdown"]
# in per cent of the samples -> by what
HELD_DOWN: dict[str, HeldDownBy] = {
    "throttle_power_percent": "power",
    "throttle_thermal_percent": "temperature",
    "throttle_slowdown_percent": "slowdown",
}
IN_WORDS: dict[HeldDownBy, str] = {
    "power": "its power limit",
    "temperature": "its temperature",
    "slowdown": "its board",
}
MOSTLY_PERCENT = 50.0  # of the samples: less is an episode, and no reason for a run's speed


@dataclass(frozen=True)
class GpuClock:
    """Means over a run."""

    sm_mhz: float
    held_down_by: HeldDownBy | None  # None: by none for most of the time
    held_down_percent: float | None  # of the samples; None: likewise

    @property
    def said(self) -> str:
        if self.held_down_by is None:
            return f"{self.sm_mhz:.0f} MHz"
        share = f"{self.held_down_percent:.0f} % of the time"
        return f"{self.sm_mhz:.0f} MHz, held down by {IN_WORDS[self.held_down_by]} {share}"


def gpu_clock(means: Mapping[str, float | None], number: int = 0) -> GpuClock | None:
    """Of a run's GPU; `means` by the names of metrics. None: nobody sampled its clock."""
    sm_mhz = means.get(of_gpu(number, "sm_clock_mhz"))
    if sm_mhz is None or sm_mhz <= 0:  # which no clock is
        return None
    shares = {by: means.get(of_gpu(number, name)) or 0.0 for name, by in HELD_DOWN.items()}
    most = max(shares, key=lambda by: shares[by])
    if shares[most] < MOSTLY_PERCENT:
        return GpuClock(sm_mhz, None, None)
    return GpuClock(sm_mhz, most, shares[most])
