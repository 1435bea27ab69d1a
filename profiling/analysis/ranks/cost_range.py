"""Range of what a late rank costs without a profiler, beside the single figure. Called by cause.

The figure is what the others lose in the captured steps. Two things move what they lose without a
profiler, and each widens the range to one side:

- A late rank may be late because capturing lengthened the work of its host. As much of its lateness
  as lies in those parts of the step, and as capturing may have added, is taken off the lower end.
- The others may lose little because their own hosts, which capturing lengthened, came late too. As
  much as they were idle for that, up to the late rank's own longer part, is added to the upper end.

Both ends then give way by the error of the replay, the spread of the steps and the clocks' error.
"""

from dataclasses import dataclass

import numpy as np

from profiling.analysis.ranks.costs import Costs
from profiling.analysis.statistics import student_t_quantile
from profiling.shared.causes import PART

REPLAY_ERROR = 0.15  # share of what mending planted faults gained, within which the replay was
CONFIDENCE = 0.95  # of the mean over the steps


@dataclass(frozen=True)
class CostRange:
    """Ends of the range in ms per step, and what moved them."""

    low_ms: float
    high_ms: float
    profiler_ms: float  # part of the cost that capturing may have made
    hidden_ms: float  # cost that the others' lengthened host time may hide


def cost_range(
    costs: Costs, late: list[int], gained_ns: np.ndarray, part: str, longer_ms: dict[str, float]
) -> CostRange:
    """Range of what the `late` columns cost; the first is late because `part` is longer by most.

    `gained_ns` is what Costs.gained_ns computed for them, `longer_ms` by how much each part of the
    first one's step exceeds the others'.
    """
    cost_ms = costs.mean_ms(gained_ns)
    lengthened_ms = sum(ms for name, ms in longer_ms.items() if PART[name].lengthened and ms > 0)
    profiler_ms = min(lengthened_ms, costs.ranks[late[0]].most_added_ms, max(cost_ms, 0.0))
    idle_ms = min(
        min(host_idle_ms(costs, number), costs.ranks[number].most_added_ms)
        for number in range(len(costs.ranks))
        if number not in late
    )
    hidden_ms = min(idle_ms, max(0.0, longer_ms[part] - cost_ms))
    spread_ms = float(np.hypot(half_width_ms(gained_ns), costs.doubt_ms(late)))
    low_ms, high_ms = cost_ms - profiler_ms, cost_ms + hidden_ms
    return CostRange(
        max(0.0, low_ms - float(np.hypot(REPLAY_ERROR * low_ms, spread_ms))),
        min(costs.step_ms, high_ms + float(np.hypot(REPLAY_ERROR * high_ms, spread_ms))),
        profiler_ms,
        hidden_ms,
    )


def host_idle_ms(costs: Costs, number: int) -> float:
    """Idle time of the rank in ms per step for host work that a profiler lengthens."""
    return sum(ms for name, ms in costs.parts_ms(number).items() if PART[name].lengthened)


def half_width_ms(step_ns: np.ndarray) -> float:
    """Half the width of the confidence interval of the mean over the steps; 0 for one step."""
    count = len(step_ns)
    if count < 2:
        return 0.0
    quantile = student_t_quantile((1 + CONFIDENCE) / 2, count - 1)
    return float(quantile * step_ns.std(ddof=1) / np.sqrt(count)) / 1e6
