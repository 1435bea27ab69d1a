"""Reason why a rank computes longer than another: more kernels, larger ones, or slower ones.

Called by cause. `mine` is the rank that computes longer, `theirs` the one that it is compared with.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from profiling.analysis.ranks.rank_records import LongerKernel, Work
from profiling.analysis.ranks.reduce import ReducedRank

OTHER_WORK = 0.02  # share by which counts or grids of two ranks have to differ to be other work
TELLING = 0.1  # share of the additional time that has to be explained
NAMED = 3  # number of kernels that are named at most


def why_longer(mine: ReducedRank, theirs: ReducedRank) -> Work | None:
    """Main reason why `mine` computes longer than `theirs`; None: the kernels do not show it.

    Kernels whose grids show nothing are taken to be longer for the same reason as the others.
    """
    longer_ns: dict[Work | None, float] = {}
    for names in comparable(mine, theirs):
        one, other = step_work(mine, names), step_work(theirs, names)
        why = "more_kernels" if launches_more(one, other) else compare_grids(one, other)
        longer_ns[why] = longer_ns.get(why, 0.0) + one.ns - other.ns
    enough_ns = TELLING * sum(longer_ns.values())
    longer_ns.pop(None, None)
    most = max(longer_ns, key=lambda work: longer_ns[work], default=None)
    return most if most and longer_ns[most] > max(enough_ns, 0.0) else None


def most_longer_kernels(mine: ReducedRank, theirs: ReducedRank) -> list[LongerKernel]:
    """The kernels with the most additional time on `mine`, at most NAMED, the largest first."""

    def ms_of(rank: ReducedRank, name: str) -> float:
        return rank.kernels[name].ns / rank.steps / 1e6 if name in rank.kernels else 0.0

    kernels = [
        LongerKernel(
            name=name,
            longer_ms=ms_of(mine, name) - ms_of(theirs, name),
            more=count_of(mine, name) - count_of(theirs, name),
        )
        for name in mine.kernels
    ]
    kernels.sort(key=lambda kernel: -kernel.longer_ms)
    least_ms = TELLING * sum(kernel.longer_ms for kernel in kernels if kernel.longer_ms > 0)
    return [kernel for kernel in kernels[:NAMED] if kernel.longer_ms > least_ms]


def extra_launches_ms(mine: ReducedRank, theirs: ReducedRank) -> float:
    """Time in ms per step of the launches that `mine` has in addition to those of `theirs`."""
    return sum(
        (extra_launches_ns(mine, theirs, names) - extra_launches_ns(theirs, mine, names)) / 1e6
        for names in comparable(mine, theirs)
        if launches_more(step_work(mine, names), step_work(theirs, names))
    )


def extra_launches_ns(rank: ReducedRank, other: ReducedRank, names: Iterable[str]) -> float:
    """Time in ns a step of those launches of kernels `names` that exceed the other's count."""
    beyond = {name: max(0.0, count_of(rank, name) - count_of(other, name)) for name in names}
    return sum(
        count * rank.kernels[name].ns / rank.kernels[name].count
        for name, count in beyond.items()
        if count
    )


def comparable(one: ReducedRank, other: ReducedRank) -> Iterable[list[str]]:
    """Groups of kernel names whose work on the two ranks can be compared.

    A kernel that both launch equally often is a group by itself. The rest is grouped by family,
    since a library may choose other kernels for more work.
    """
    rest: dict[str, list[str]] = {}
    for name, work in (other.kernels | one.kernels).items():
        a, b = (count_of(rank, name) for rank in (one, other))
        if abs(a - b) <= OTHER_WORK * b:
            yield [name]
        else:
            rest.setdefault(work.family, []).append(name)
    yield from rest.values()


def count_of(rank: ReducedRank, name: str) -> float:
    """Number of launches of one kernel in a step."""
    return rank.kernels[name].count / rank.steps if name in rank.kernels else 0.0


@dataclass(frozen=True)
class StepWork:
    """Work of some kernels in a step; see KernelWork."""

    count: float
    ns: float
    blocks: float  # negative: unknown


def step_work(rank: ReducedRank, names: Collection[str]) -> StepWork:
    """Work of these kernels together in a step of `rank`; those that it does not run add none."""
    works = [rank.kernels[name] for name in names if name in rank.kernels]
    count, ns = sum(work.count for work in works), sum(work.ns for work in works)
    has_grids = all(work.blocks >= 0 for work in works)
    blocks = sum(work.blocks for work in works) if has_grids else -rank.steps
    return StepWork(count / rank.steps, ns / rank.steps, blocks / rank.steps)


def launches_more(one: StepWork, other: StepWork) -> bool:
    return one.count > (1 + OTHER_WORK) * other.count


def compare_grids(one: StepWork, other: StepWork) -> Work | None:
    """Reason why a launch takes longer on `one`; None: the grids do not show it."""
    if one.blocks < 0 or other.blocks < 0:
        return None
    larger = one.blocks * other.count > (1 + OTHER_WORK) * other.blocks * one.count
    return "larger_kernels" if larger else "slower_kernels"
