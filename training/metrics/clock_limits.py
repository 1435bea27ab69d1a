"""Sends an alert when power, heat or its board holds a GPU's clock down for most of a minute.

Called by training.metrics.record with each row, which has the sampler's means.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from profiling.recording.sampler import Means
from profiling.shared.gpu_clock import HELD_DOWN, IN_WORDS, gpu_clock
from profiling.shared.metric_names import ELAPSED_S
from training.metrics.sinks import Alert, Row

LONG_S = 60.0  # rows that are judged together: less is an episode
CLOCK = "sm_clock_mhz"


@dataclass
class ClockLimits:
    """Watches the clocks of a run's GPUs, and reports each cause once."""

    alert: Callable[[Alert], None]
    judged_s: float | None = None  # time of the last judgement, or of the first row
    recent: Means = field(default_factory=Means)  # of the rows since then
    said: set[str] = field(default_factory=set)  # causes

    def watch(self, row: Row) -> None:
        """Takes in a row, which has the seconds that the run has taken so far."""
        for name, value in row.items():
            if name.endswith((CLOCK, *HELD_DOWN)) and isinstance(value, float):
                self.recent.add(name, value)
        now_s = row[ELAPSED_S]
        assert isinstance(now_s, float)
        self.judged_s = now_s if self.judged_s is None else self.judged_s
        if now_s - self.judged_s >= LONG_S:
            self.judge({name: self.recent.mean(name) for name in self.recent.counts})
            self.judged_s, self.recent = now_s, Means()

    def judge(self, means: dict[str, float | None]) -> None:
        clocks = [gpu_clock(means, n) for n in range(sum(name.endswith(CLOCK) for name in means))]
        for by in HELD_DOWN.values():
            slow = {n: c.text for n, c in enumerate(clocks) if c and c.held_down_by == by}
            if slow and by not in self.said:
                self.said.add(by)
                text = "; ".join(f"GPU {number}: {text}" for number, text in slow.items())
                self.alert(Alert(f"A GPU's clock is held down by {IN_WORDS[by]}", text))
