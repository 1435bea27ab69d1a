"""Range of what a late rank, or transfers, cost without a profiler, beside the single figure.

Called by cause and straggler.

The figure is what the others lose in the captured steps. Two things move what they lose without a
profiler, and each widens the range to one side:

- A late rank may be late because capturing lengthened the work of its host, or because hosts with
  the same work differ by chance. As much of its lateness as lies in those parts of the step, and as
  capturing may have added, or hosts may differ by, is taken off the lower end; and so is as much as
  a captured step takes longer than those before and after the capture, if that is more.
- The others may lose little because their own hosts, which capturing lengthened, came late too. As
  much as they were idle for that, up to the late rank's own longer part, is added to the upper end;
  and so is what their hosts keep them from gaining, up to the same amount as above.

Both ends then give way by the error of the replay, the spread of the steps and the clocks' error.
Steps before and after the capture bound the upper end: they leave no more time than the others'
GPUs do not compute. So they do for transfers, which are as much shorter as these steps at most.
Transfers gain no more than the slowest host leaves of a step, whose work they hide.
"""

from dataclasses import dataclass

import numpy as np

from profiling.analysis.ranks.costs import EQUAL_GPUS, Costs
from profiling.analysis.statistics import student_t_quantile
from profiling.shared.causes import PART, is_of_host

REPLAY_ERROR = 0.15  # share of what mending planted faults gained, within which the replay was
CONFIDENCE = 0.95  # of the mean over the steps


@dataclass(frozen=True)
class CostRange:
    """Ends of the range in ms per step, and what moved them."""

    low_ms: float
    high_ms: float
    chance_ms: float  # part of the cost that capturing, or hosts that differ by chance, may be
    by_capturing: bool  # most of that is by capturing
    hidden_ms: float  # cost that the others' lengthened host time may hide
    lengthened_ms: float  # by which a captured step is longer than those before and after
    cut_ms: float  # taken off the upper end, as those steps leave no time for more


def cost_range(
    costs: Costs,
    late: list[int],
    gained_ns: np.ndarray,
    waited_ms: float,
    part: str,
    longer_ms: dict[str, float],
) -> CostRange:
    """Range of what the `late` columns cost; the first is late because `part` is longer by most.

    `gained_ns` is what mending them would gain, `waited_ms` what the others wait, `longer_ms` by
    how much each part of the first one's step exceeds the others'.
    """
    cost_ms, added_ms = costs.mean_ms(gained_ns), costs.ranks[late[0]].most_added_ms
    host_ms, differ_ms = costs.slowest_host_ms(late), costs.hosts_differ_ms(late)
    longer = {name: ms for name, ms in longer_ms.items() if ms > 0}
    added_ms = min(added_ms, sum(ms for name, ms in longer.items() if PART[name].lengthened))
    differ_ms = min(differ_ms, sum(ms for name, ms in longer.items() if is_of_host(name)))
    chance_ms = min(max(added_ms, differ_ms), max(cost_ms, 0.0))
    idle_ms = min(
        min(host_idle_ms(costs, number), max(rank.most_added_ms, rank.most_delayed_ms))
        for number, rank in enumerate(costs.ranks)
        if number not in late
    )
    by_host = is_of_host(part)
    held_ms = max(0.0, waited_ms - cost_ms) if by_host else 0.0  # by the others' hosts
    hidden_ms = max(min(idle_ms, longer_ms[part] - cost_ms), min(max(added_ms, differ_ms), held_ms))
    spread_ms = float(np.hypot(half_width_ms(gained_ns), costs.doubt_ms(late)))
    if held_ms and host_ms is not None:
        spread_ms = float(np.hypot(spread_ms, half_width_ms(1e6 * host_ms)))
    lengthened_ms = costs.lengthened_ms if by_host else 0.0
    low_ms, high_ms = cost_ms - max(chance_ms, lengthened_ms), cost_ms + hidden_ms
    if not by_host and (most_ms := costs.most_to_gain_ms(late)) is not None:
        low_ms = min(low_ms, most_ms)
    longest_ms = max(costs.mean_step_ms, cost_ms)  # of which a cost is a part
    low_ms = max(0.0, low_ms - float(np.hypot(REPLAY_ERROR * low_ms, spread_ms)))
    high_ms = min(longest_ms, high_ms + float(np.hypot(REPLAY_ERROR * high_ms, spread_ms)))
    end_ms = min(high_ms, most_in_free_steps_ms(costs, late))
    return CostRange(
        min(low_ms, end_ms),
        end_ms,
        chance_ms,
        added_ms >= differ_ms,
        hidden_ms,
        lengthened_ms,
        high_ms - end_ms,
    )


def most_in_free_steps_ms(costs: Costs, late: list[int]) -> float:
    """The most that `late` can cost in a step without a profiler, in ms; inf: unknown.

    There the others' GPUs may compute as much faster as equal GPUs differ.
    """
    most_ms, free_ms = costs.most_lost_free_ms(late), costs.free_step_ms
    return np.inf if most_ms is None or free_ms is None else most_ms + EQUAL_GPUS * free_ms


def transfer_range_ms(costs: Costs, exposed_ms: float) -> tuple[float, float] | None:
    """Range of what transfers cost without a profiler, which take `exposed_ms` in a captured step.

    They may hide work of the hosts, which bounds a step without them: the slowest host's own time,
    as captured. None: no host's time moves the lower end, and the time of a step without a profiler
    is not known, or shorter than the computing of the captured steps.
    """
    left_ms, most_ms = costs.most_to_gain_ms([]), costs.most_lost_free_ms([])
    low_ms = exposed_ms if left_ms is None else min(exposed_ms, left_ms)
    if most_ms is None:
        return (low_ms, exposed_ms) if low_ms < exposed_ms else None
    return max(0.0, low_ms - costs.lengthened_ms), max(exposed_ms, most_ms)


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
