"""OUT_DIR/step_times.json: the time of every iteration of a run's last start, the first included.

Written by training.record as the run ends, read by profiling.analysis.difference.iterations.
metrics.jsonl has medians of the iterations that were logged together: the slow first ones are lost.
"""

from dataclasses import dataclass, field

STEP_TIMES = "step_times.json"


@dataclass(frozen=True)
class StepTimes:
    first_iteration: int
    ms: list[float | None] = field(default_factory=list)  # None: logged with one under a profiler
