"""Which rank is waited for, what that costs, and what holds that rank up. Called by summary.

1. Ranks are sorted by what they wait themselves: who is late waits least. The largest step between
   two neighbours parts the late from the others, at most half of them. They have to be late
   together; else it is the one that costs most alone. What the late cost in all steps is what it
   would gain if they came with the next (waits.Waits.cost_ns).
2. From 2 % of the step on, if it is more than the clocks' uncertainty allows to doubt, and three
   times what all others cost, they are the answer. Costs that ranks cause in turns are jitter,
   which is told from 2 % on too.
3. The cause is the part of the step, of causes.PARTS less communication, that takes the late rank
   longer than the median of the others by most. Longer kernels are explained by what ran: more of
   them, larger grids, or the same kernels, each longer.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiling.analysis.ranks.records import RanksVerdict, Straggler, Work
from profiling.analysis.ranks.reduce import ReducedRank
from profiling.analysis.ranks.waits import Waits
from profiling.analysis.verdict.diagnosis import CLOSE
from profiling.causes import PART, VERDICT

WORTH_TELLING = 0.02  # of a step
COMMUNICATING = 0.15  # of a step in transfers that nothing hides
DOUBTFUL = 0.15  # of a step, by which the ends of collectives contradict each other
ALSO = 0.2  # of what it costs: another part that is longer
OTHER_WORK = 0.02  # by which counts, or grids, of two ranks differ
TOGETHER = 0.5  # of what some cost, in which each of them has to be late
STEADY = 3.0  # times what the others cost: from there on it is no jitter
MOSTLY = 0.5  # of a wait for the GPU, what the host did longer behind it
HOST = ("data", "cpu")
PRODUCTS = ("gemm", "convolution", "attention")
GPU_VERDICTS = ("gpu_compute", "gpu_memory", "gpu_latency", "gpu")


@dataclass(frozen=True, eq=False)
class Costs:
    """What each rank waits and costs, over the iterations that all have."""

    ranks: Sequence[ReducedRank]
    waits: Waits
    iterations: np.ndarray

    @property
    def is_matched(self) -> bool:
        return len(self.waits.matched.iteration) > 0

    def steps_of(self, rank: ReducedRank) -> np.ndarray:
        """Which of the rank's steps all others have too."""
        return np.isin(rank.iterations, self.iterations)

    def of_rank_ms(self, values: np.ndarray, number: int) -> float | None:
        """Milliseconds a step of one column of Waits; None: its collectives were not matched."""
        if not self.waits.matched.there[:, number].any() or np.isnan(values[:, number]).all():
            return None
        return self.mean_ms(self.waits.of_steps(values[:, number], self.iterations))

    def mean_ms(self, step_ns: np.ndarray) -> float:
        """Of a value for each iteration, over those in which collectives were matched."""
        matched = np.isin(self.iterations, self.waits.matched.iteration)
        return float(step_ns[matched].mean()) / 1e6 if matched.any() else 0.0

    def parts_ms(self, number: int) -> dict[str, float]:
        """The mean step by causes.PARTS."""
        return self.means_ms(number, self.ranks[number].parts_ns)

    def host_ms(self, number: int) -> dict[str, float]:
        """Its idle parts by what the host did."""
        return self.means_ms(number, self.ranks[number].host_ns)

    def means_ms(self, number: int, parts_ns: dict[str, np.ndarray]) -> dict[str, float]:
        chosen = self.steps_of(self.ranks[number])
        return {name: float(ns[chosen].mean()) / 1e6 for name, ns in parts_ns.items()}

    @cached_property
    def step_ms(self) -> float:
        lengths = [np.diff(rank.bounds_ns)[self.steps_of(rank)] for rank in self.ranks]
        return float(np.median(np.concatenate(lengths))) / 1e6

    @cached_property
    def alone_ns(self) -> np.ndarray:
        """(iterations, ranks): what each costs by itself."""
        return self.waits.alone_ns(self.iterations)

    def cost_ns(self, ranks: Collection[int]) -> np.ndarray:
        """(iterations,)"""
        return self.waits.cost_ns(ranks, self.iterations)

    def alone_ms(self, number: int) -> float | None:
        return self.mean_ms(self.alone_ns[:, number]) if self.is_matched else None

    def last_in_steps(self, number: int) -> int | None:
        if not self.is_matched:
            return None
        most = self.alone_ns.argmax(axis=1)
        return int(np.count_nonzero((most == number) & (self.alone_ns[:, number] > 0)))

    def doubt_ms(self, ranks: Collection[int]) -> float:
        """By how much the clocks may be wrong about what these cost in a step."""
        return self.waits.doubt_ns(ranks, self.iterations) / len(self.iterations) / 1e6

    def is_told(self, ms: float, ranks: Collection[int]) -> bool:
        return ms >= WORTH_TELLING * self.step_ms and ms > self.doubt_ms(ranks)


NOT_TOGETHER = (
    "Who waits cannot be told: collectives that the ranks should leave together end up to {:.2f} "
    "ms apart in a step. Are these groups of ranks whose captures do not name their groups?"
)


@dataclass(frozen=True)
class Judged:
    verdict: RanksVerdict
    evidence: list[str]
    straggler: Straggler | None = None
    jitter_ms_per_step: float | None = None


def judge(costs: Costs) -> Judged:
    if not costs.is_matched:
        return Judged("unknown", ["No collective of one rank was found on another."])
    everyone = range(len(costs.ranks))
    if (doubt_ms := costs.doubt_ms(everyone)) >= DOUBTFUL * costs.step_ms:
        return Judged("unknown", [NOT_TOGETHER.format(doubt_ms)])
    late = late_ranks(costs)
    late_ms = costs.mean_ms(costs.cost_ns(late))
    others_ms, in_turns_ms = (
        costs.mean_ms(costs.waits.in_turns_ns(costs.iterations, aside)) for aside in (late, [])
    )
    told = costs.is_told(late_ms, late) and late_ms >= STEADY * others_ms
    jitter_ms = others_ms if told else in_turns_ms
    evidence = []
    if told:
        straggler = straggler_of(costs, late, late_ms)
        return Judged("straggler", straggler.evidence, straggler, jitter_ms)
    if costs.is_told(jitter_ms, everyone):
        times = np.unique(costs.alone_ns.argmax(axis=1), return_counts=True)[1]
        evidence.append(
            f"Not the same rank each step: the last costs the others {jitter_ms:.2f} ms, and "
            f"none of them is it in more than {times.max()} of {len(costs.iterations)} steps."
        )
        return Judged("jitter", evidence, None, jitter_ms)
    return without_straggler(costs, jitter_ms)


def without_straggler(costs: Costs, jitter_ms: float) -> Judged:
    transfer = costs.waits.exposed_ns - costs.waits.exposed_wait_ns
    a_step = costs.waits.of_steps(transfer, costs.iterations).mean(axis=0) / 1e6
    ms = float(np.median(a_step))
    evidence = [f"No rank holds the others up: in turns they cost {jitter_ms:.2f} ms a step."]
    if jitter_ms >= WORTH_TELLING * costs.step_ms:
        doubt_ms = costs.doubt_ms(range(len(costs.ranks)))
        evidence = [
            f"Whether a rank holds the others up cannot be told: {jitter_ms:.2f} ms a step are "
            f"less than the clocks leave open, {doubt_ms:.2f} ms."
        ]
    if ms < COMMUNICATING * costs.step_ms:
        return Judged("balanced", evidence, None, jitter_ms)
    share = 100 * ms / costs.step_ms
    evidence.append(f"Transfers that nothing hides take {ms:.2f} ms a step, {share:.0f} % of it.")
    return Judged("communication", evidence, None, jitter_ms)


def late_ranks(costs: Costs) -> list[int]:
    """The columns of those that wait least, up to the largest step between two neighbours, if they
    are late together; the one that costs most alone is the first, or the only one."""
    waited = costs.waits.of_steps(costs.waits.exposed_wait_ns, costs.iterations)
    order = np.argsort(waited.sum(axis=0), kind="stable")
    steps = np.diff(waited.sum(axis=0)[order])[: max(1, len(order) // 2)]
    late = order[: int(np.argmax(steps)) + 1]
    others = np.setdiff1d(order, late)
    sooner = np.maximum(waited[:, others].min(axis=1)[:, None] - waited[:, late], 0).sum(axis=0)
    if np.all(sooner >= TOGETHER * costs.cost_ns(late).sum()):
        return sorted(late.tolist(), key=lambda number: -costs.alone_ns[:, number].sum())
    return [int(costs.alone_ns.sum(axis=0).argmax())]


def straggler_of(costs: Costs, late: list[int], late_ms: float) -> Straggler:
    """`late`: the one that costs most alone first."""
    first, others = late[0], [n for n in range(len(costs.ranks)) if n not in late]
    rank = costs.ranks[first]
    longer_ms = longer_parts(costs, first, others)
    part = max(longer_ms, key=lambda name: longer_ms[name])
    phase = longest_phase(costs, first, others) if part == "compute" else None
    work = explained(costs, first, others) if part == "compute" else None
    cost_ns = costs.cost_ns(late)
    in_steps = int(np.count_nonzero(cost_ns > WORTH_TELLING * costs.step_ms * 1e6))
    because = cause(costs, first, others, part, longer_ms)
    whose = "its GPU" if len(late) == 1 else f"rank {rank.rank}'s GPU"
    why = what_is_longer(part, longer_ms[part], phase)
    evidence = [f"{held_up(costs, late, late_ms, in_steps)}: {whose} {why}."]
    evidence += [
        f"Also {whose} {what_is_longer(name, ms, phase)}."
        for name, ms in sorted(longer_ms.items(), key=lambda item: -item[1])
        if name != part and ms >= ALSO * late_ms
    ]
    evidence += [WORK[work]] if work else []
    return Straggler(
        rank=rank.rank,
        with_ranks=[costs.ranks[number].rank for number in late[1:]],
        costs_ms_per_step=late_ms,
        in_steps=in_steps,
        of_steps=len(cost_ns),
        because=because,
        part=part,
        longer_ms=longer_ms[part],
        phase=phase,
        work=work,
        evidence=evidence,
    )


WORK: dict[Work, str] = {
    "more_kernels": "It launches more kernels than the others.",
    "larger_kernels": "It launches the same kernels over larger grids: its share is larger.",
    "slower_kernels": (
        "It runs the same kernels over the same grids, and each takes longer: look at its clocks, "
        "temperature and power, and at what else runs on that GPU."
    ),
}


def held_up(costs: Costs, late: list[int], late_ms: float, in_steps: int) -> str:
    numbers = [costs.ranks[number].rank for number in late]
    steps = len(costs.iterations)
    who = f"Rank {numbers[0]} holds" if len(late) == 1 else f"Ranks {and_last(numbers)} hold"
    where = "" if in_steps == steps else f", in {in_steps} of {steps} steps"
    return f"{who} the others up by {late_ms:.2f} ms a step{where}"


def what_is_longer(part: str, ms: float, phase: str | None) -> str:
    if part == "compute":
        where = f", most of it in {phase}" if phase else ""
        return f"computes {ms:.2f} ms longer{where}"
    verdict = PART[part].verdict
    if not PART[part].cause or verdict is None:
        return f"spends {ms:.2f} ms longer on {PART[part].meaning}"
    return f"waits {ms:.2f} ms longer for {VERDICT[verdict].title}"


def and_last(numbers: list[int]) -> str:
    """2, 6 and 7"""
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def cause(costs: Costs, first: int, others: list[int], part: str, longer: dict[str, float]) -> str:
    """The verdict: as in the report of one capture `host` if two of its reasons lie close."""
    verdict = PART[part].verdict
    if verdict is None:
        own = costs.ranks[first].verdict
        return own if own in GPU_VERDICTS else longer_kernels(costs, first, others)
    close = [name for name, ms in longer.items() if ms >= CLOSE * longer[part]]
    verdicts = {named for name in close if (named := PART[name].verdict)}
    several = len(verdicts) > 1 and all(VERDICT[name].host for name in verdicts)
    return "host" if several and not VERDICT[verdict].sure else verdict


def longer_kernels(costs: Costs, first: int, others: list[int]) -> str:
    """gpu_compute where it is mostly products that take the rank longer, else gpu_memory."""
    mine, theirs = costs.ranks[first], costs.ranks[median_rank(costs, others)]

    def ns_of(rank: ReducedRank, products: bool) -> float:
        kernels = rank.kernels.values()
        return sum(k.ns for k in kernels if (k.family in PRODUCTS) == products) / rank.steps

    products, others_ns = (ns_of(mine, of) - ns_of(theirs, of) for of in (True, False))
    return "gpu_compute" if products >= others_ns else "gpu_memory"


def longer_parts(costs: Costs, first: int, others: list[int]) -> dict[str, float]:
    """By how many ms a step each part of the rank is longer than the median of the others.

    All ranks wait for their GPUs alike. What a rank's host does longer is why it is late, though
    without the wait it would have been hidden, and the rank's own report blames the wait.
    """
    found = longer(costs.parts_ms, first, others)
    found.pop("communication", None)
    waits_ms = found.get("synchronization", 0.0)
    did = {name: ms for name, ms in longer(costs.host_ms, first, others).items() if name in HOST}
    most = max(did, key=lambda name: did[name], default=None)
    if most and waits_ms == max(found.values()) and did[most] >= MOSTLY * waits_ms:
        found |= {"synchronization": max(0.0, waits_ms - did[most]), most: did[most]}
    return found


def longer(
    ms_of: Callable[[int], dict[str, float]], first: int, others: list[int]
) -> dict[str, float]:
    theirs = [ms_of(number) for number in others]
    return {
        name: ms - float(np.median([parts.get(name, 0.0) for parts in theirs]))
        for name, ms in ms_of(first).items()
    }


def longest_phase(costs: Costs, first: int, others: list[int]) -> str | None:
    """The phase whose kernels take longest beyond the others'; None without phases."""

    def mean_ns(number: int, phase: str) -> float:
        rank = costs.ranks[number]
        ns = rank.phase_ns.get(phase)
        return 0.0 if ns is None else float(ns[costs.steps_of(rank)].mean())

    longer_ns = {
        phase: mean_ns(first, phase) - float(np.median([mean_ns(n, phase) for n in others]))
        for phase in costs.ranks[first].phase_ns
    }
    return max(longer_ns, key=lambda phase: longer_ns[phase], default=None)


def explained(costs: Costs, first: int, others: list[int]) -> Work | None:
    """Why it computes longer than the others.

    By the kernels that both run; those that one of them alone runs are taken for one kernel. Where
    it launches more of a kernel, these may be larger ones than the others: all is theirs.
    """
    mine, theirs = costs.ranks[first], costs.ranks[median_rank(costs, others)]
    both = mine.kernels.keys() & theirs.kernels.keys()
    longer_ns: dict[Work | None, float] = {"more_kernels": 0.0}
    for name in [*both, None]:
        one, other = (a_step(rank, name, both) for rank in (mine, theirs))
        more = one.count > (1 + OTHER_WORK) * other.count
        why = "more_kernels" if more else grids(one, other)
        longer_ns[why] = longer_ns.get(why, 0.0) + one.ns - other.ns
    return max(longer_ns, key=lambda work: longer_ns[work])


@dataclass(frozen=True)
class StepWork:
    """As KernelWork, but of a step."""

    count: float
    ns: float
    blocks: float  # less than 0: not told


def a_step(rank: ReducedRank, name: str | None, common: Collection[str]) -> StepWork:
    """Of the kernel; None: of all that are not in `common`."""
    names = [name] if name else [each for each in rank.kernels if each not in common]
    works = [rank.kernels[each] for each in names]
    count, ns = sum(work.count for work in works), sum(work.ns for work in works)
    told = all(work.blocks >= 0 for work in works)
    blocks = sum(work.blocks for work in works) if told else -rank.steps
    return StepWork(count / rank.steps, ns / rank.steps, blocks / rank.steps)


def grids(one: StepWork, other: StepWork) -> Work | None:
    """Why a launch of a kernel takes longer on one rank; None: their grids were not told."""
    if one.blocks < 0 or other.blocks < 0:
        return None
    larger = one.blocks * other.count > (1 + OTHER_WORK) * other.blocks * one.count
    return "larger_kernels" if larger else "slower_kernels"


def median_rank(costs: Costs, numbers: list[int]) -> int:
    """The one that computes a median time."""
    order = sorted(numbers, key=lambda number: costs.parts_ms(number)["compute"])
    return order[len(order) // 2]
