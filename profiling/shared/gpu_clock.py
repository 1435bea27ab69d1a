"""A GPU's mean clock over a run, and what held it down, from the driver's samples.

For training.metrics.run_verdict, and for reports by analysis.runs.run_clocks. Standard library
only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from profiling.shared.metric_names import gpu_metric_name

HeldDownBy = Literal["power", "temperature", "slowdown"]
# metric with the share of samples in per cent -> what held the clock down in these
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
    """A GPU's clock over a run, as means over the samples."""

    sm_mhz: float
    held_down_by: HeldDownBy | None  # None if nothing held it down for most of the time
    held_down_percent: float | None  # share of the samples; None in the same case

    @property
    def text(self) -> str:
        if self.held_down_by is None:
            return f"{self.sm_mhz:.0f} MHz"
        share = f"{self.held_down_percent:.0f} % of the time"
        return f"{self.sm_mhz:.0f} MHz, throttled by {IN_WORDS[self.held_down_by]} {share}"


def gpu_clock(means: Mapping[str, float | None], number: int = 0) -> GpuClock | None:
    """Clock of a run's GPU `number`, or None if it was not sampled. `means`: metric name -> mean
    over the run."""
    sm_mhz = means.get(gpu_metric_name(number, "sm_clock_mhz"))
    if sm_mhz is None or sm_mhz <= 0:  # 0 MHz is no reading of a clock
        return None
    shares = {by: means.get(gpu_metric_name(number, name)) or 0.0 for name, by in HELD_DOWN.items()}
    most = max(shares, key=lambda by: shares[by])
    if shares[most] < MOSTLY_PERCENT:
        return GpuClock(sm_mhz, None, None)
    return GpuClock(sm_mhz, most, shares[most])
