"""Reasons for which a rank that steadily comes last is not named. Called by straggler.

Ranks are never quite equal, and captures change how late they are. Nobody is named

- below what equal GPUs differ by, counted after what the others' own hosts keep them from gaining;
- where no part of the rank's own step is longer by a good part of what it is late;
- where its host is late, but takes no longer than the others' beyond the noise of their steps;
- where that may be capturing, or hosts that differ by chance (cost_range). The steps before and
  after the window bound what it costs without a profiler.
"""

from dataclasses import dataclass

from profiling.analysis.ranks.cause import Lateness, is_slow_host
from profiling.analysis.ranks.cause_said import ALSO, join_numbers, longer_text
from profiling.analysis.ranks.costs import EQUAL_GPUS, Costs
from profiling.analysis.ranks.own_host import surely_slower

EXPLAINED = 0.2  # share of what a rank is late that its longest part has to be

AS_GPUS_DIFFER = (
    "{} last, by {:.2f} ms per step ({:.1f} %). Equal GPUs differ by up to {:.0f} %, "
    "so nobody is named."
)
HELD_BY_HOSTS = (
    "{} last, by {:.2f} ms per step, but the others would gain {:.2f} ms: the slowest of their own "
    "hosts takes {:.2f} ms per step, and the waits only hide that. So nobody is named."
)
NOTHING_LONGER = (
    "{} last, by {:.2f} ms per step, but no part of its step is longer by much: at most {}. So "
    "the captures do not show why it is late, and nobody is named."
)
HOSTS_ALIKE = (
    "{} last, by {:.2f} ms per step: {}. But its host takes {:.2f} ms per step and the slowest "
    "of the others' {:.2f}, which differ by no more than the steps of each. So nobody is named."
)
HOSTS_DIFFER = (
    "{} last, by {:.2f} ms per step{}: {}. Hosts with the same work may differ by {:.2f} ms per "
    "step here, so the captures do not show whether it is always late."
)
BY_THE_PROFILER = (
    "{} last, by {:.2f} ms per step{}: {}. Capturing may have added {:.2f} ms per step to that "
    "rank's host work, so the captures do not show whether it is late without a profiler."
)
LESS_TO_GAIN = ", of which the others would gain {:.2f}"
FREE_STEPS = (
    "Before and after the capture a step takes {:.2f} ms, in which the others' GPUs compute for "
    "{:.2f} ms. So there it costs them at most {:.2f} ms per step"
)
LESS_THAN_GPUS_DIFFER = ", less than equal GPUs may differ by, and nobody is named."
WITHOUT = "To find out, {}time each rank's host without a profiler."
LIGHTER = "capture with nsys, or with torch.profiler but no stacks or shapes, or "
AGAIN = "To find out, capture again, for more steps, and look whether the same rank is late."


@dataclass(frozen=True)
class NotNamed:
    """Sentences on why nobody is named; `is_unknown`: the rank may be late all the same."""

    evidence: list[str]
    is_unknown: bool


def not_named(costs: Costs, lateness: Lateness) -> NotNamed | None:
    """Reason not to name the late ranks; None: there is none."""
    late_ms, waited_ms = costs.mean_ms(lateness.gained_ns), lateness.waited_ms
    equal_ms = EQUAL_GPUS * costs.step_ms
    who = comes_text([costs.ranks[number].rank for number in lateness.late])
    if waited_ms < equal_ms:
        share = 100 * waited_ms / costs.step_ms
        text = AS_GPUS_DIFFER.format(who, waited_ms, share, 100 * EQUAL_GPUS)
        return NotNamed([text], is_unknown=False)
    if late_ms < equal_ms:
        host_ms = costs.slowest_host_ms(lateness.late)
        own_ms = 0.0 if host_ms is None else float(host_ms.mean())
        text = HELD_BY_HOSTS.format(who, waited_ms, max(0.0, late_ms), own_ms)
        return NotNamed([text], is_unknown=False)
    longer_ms = max(0.0, lateness.longer_ms[lateness.part])
    whose = f"rank {costs.ranks[lateness.late[0]].rank}'s GPU"
    why = f"{whose} {longer_text(lateness.part, longer_ms, None)}"
    if longer_ms < EXPLAINED * late_ms:
        text = NOTHING_LONGER.format(who, waited_ms, why)
        return NotNamed([text, AGAIN], is_unknown=True)
    if means_ms := hosts_alike(costs, lateness):
        return NotNamed([HOSTS_ALIKE.format(who, waited_ms, why, *means_ms)], is_unknown=False)
    if late_ms - lateness.range.chance_ms >= equal_ms:
        return None
    less = LESS_TO_GAIN.format(late_ms) if late_ms < (1 - ALSO) * waited_ms else ""
    if lateness.range.by_capturing:
        most_ms = costs.ranks[lateness.late[0]].most_added_ms
        return late_by_capturing(
            costs, lateness, BY_THE_PROFILER.format(who, waited_ms, less, why, most_ms)
        )
    differ_ms = costs.hosts_differ_ms(lateness.late)
    text = HOSTS_DIFFER.format(who, waited_ms, less, why, differ_ms)
    return NotNamed([text, AGAIN], is_unknown=True)


def late_by_capturing(costs: Costs, lateness: Lateness, text: str) -> NotNamed:
    """Reason of a rank that capturing may have made late, as `text` says.

    It is known to cost little where steps without a profiler leave no time for more.
    """
    free_ms, most_ms = costs.free_step_ms, costs.most_lost_free_ms(lateness.late)
    lighter = LIGHTER if costs.ranks[lateness.late[0]].kind != "nsys" else ""
    if free_ms is None or most_ms is None:
        return NotNamed([text, WITHOUT.format(lighter)], is_unknown=True)
    bound = FREE_STEPS.format(free_ms, free_ms - most_ms, most_ms)
    if most_ms < EQUAL_GPUS * free_ms:
        return NotNamed([text, f"{bound}{LESS_THAN_GPUS_DIFFER}"], is_unknown=False)
    return NotNamed([text, f"{bound}.", WITHOUT.format(lighter)], is_unknown=True)


def comes_text(numbers: list[int]) -> str:
    return f"Ranks {join_numbers(numbers)} come" if len(numbers) > 1 else f"Rank {numbers[0]} comes"


def hosts_alike(costs: Costs, lateness: Lateness) -> tuple[float, float] | None:
    """(own time of the late rank's host, of the slowest of the others') in ms per step, where the
    rank is late for its host, and that takes no longer than the steps of both differ; else None."""
    mine_ms = costs.own_host_ms(lateness.late[0])
    theirs_ms = costs.slowest_host_ms(lateness.late)
    if mine_ms is None or theirs_ms is None or surely_slower(mine_ms, theirs_ms):
        return None
    if not is_slow_host(costs, lateness.late, lateness.part):
        return None
    return float(mine_ms.mean()), float(theirs_ms.mean())
