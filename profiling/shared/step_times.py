"""OUT_DIR/step_times.json: times of all iterations since a run's last start, the first included.

Written by training.metrics.record as the run ends, read by
profiling.analysis.difference.iterations. metrics.jsonl has medians of the iterations that were
logged together, which hide slow first ones.
"""

from dataclasses import dataclass, field

STEP_TIMES = "step_times.json"


@dataclass(frozen=True)
class StepTimes:
    first_iteration: int
    # one time per iteration; None if it was logged together with one under a profiler
    ms: list[float | None] = field(default_factory=list)
