"""Which rank is waited for, what that costs, and what holds that rank up. Called by summary.

1. Ranks are sorted by what they wait themselves: who is late waits least. The largest step between
   two neighbours parts the late from the others, at most half of them. What the late cost in all
   steps is what it would gain if they came with the next (waits.Waits.cost_ns).
2. From 2 % of the step on, and if it is more than the clocks' uncertainty allows to doubt, they are
   the answer. Costs that ranks cause in turns are jitter, which is told from 2 % on too.
3. The cause is the part of the step, of causes.PARTS less communication, that takes the late rank
   longer than the median of the others by most. Longer kernels are explained by what ran: more of
   them, larger grids, or the same kernels, each longer.
"""

from collections.abc import Collection, Sequence
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
ALSO = 0.2  # of what it costs: another part that is longer
OTHER_WORK = 0.02  # by which counts, or grids, of two ranks differ
PRODUCTS = ("gemm", "convolution", "attention")
GPU_VERDICTS = ("gpu_compute", "gpu_memory", "gpu_latency", "gpu")


@dataclass(frozen=True, eq=False)
class Costs:
    """What each rank waits and costs, over the iterations that all have."""

    ranks: Sequence[ReducedRank]
    waits: Waits
    iterations: np.ndarray
    uncertainty_ns: float | None

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
        return float(self.waits.of_steps(values, self.iterations)[:, number].mean()) / 1e6

    def parts_ms(self, number: int) -> dict[str, float]:
        """The mean step by causes.PARTS."""
        rank = self.ranks[number]
        chosen = self.steps_of(rank)
        return {name: float(ns[chosen].mean()) / 1e6 for name, ns in rank.parts_ns.items()}

    @cached_property
    def step_ms(self) -> float:
        lengths = [np.diff(rank.bounds_ns)[self.steps_of(rank)] for rank in self.ranks]
        return float(np.median(np.concatenate(lengths))) / 1e6

    @cached_property
    def alone_ns(self) -> np.ndarray:
        """(iterations, ranks): what each costs by itself."""
        columns = [self.cost_ns([number]) for number in range(len(self.ranks))]
        return np.stack(columns, axis=1)

    def cost_ns(self, ranks: Collection[int]) -> np.ndarray:
        """(iterations,)"""
        return self.waits.of_steps(self.waits.cost_ns(ranks), self.iterations)

    def mean_ms(self, number: int) -> float | None:
        return float(self.alone_ns[:, number].mean()) / 1e6 if self.is_matched else None

    def last_in_steps(self, number: int) -> int | None:
        if not self.is_matched:
            return None
        most = self.alone_ns.argmax(axis=1)
        return int(np.count_nonzero((most == number) & (self.alone_ns[:, number] > 0)))

    @cached_property
    def doubt_ms(self) -> float:
        """By how much the clocks may be wrong about a step's costs: once for each collective."""
        a_step = np.isin(self.waits.matched.iteration, self.iterations).sum() / len(self.iterations)
        return (self.uncertainty_ns or 0.0) * float(a_step) / 1e6

    def is_told(self, ms: float) -> bool:
        return ms >= WORTH_TELLING * self.step_ms and ms > self.doubt_ms


@dataclass(frozen=True)
class Judged:
    verdict: RanksVerdict
    evidence: list[str]
    straggler: Straggler | None = None
    jitter_ms_per_step: float | None = None


def judge(costs: Costs) -> Judged:
    if not costs.is_matched:
        return Judged("unknown", ["No collective of one rank was found on another."])
    late = late_ranks(costs)
    late_ms = float(costs.cost_ns(late).mean()) / 1e6 if late else 0.0
    others = [number for number in range(len(costs.ranks)) if number not in late]
    told = bool(late) and costs.is_told(late_ms)
    jitter_ms = float(costs.alone_ns[:, others if told else slice(None)].sum(axis=1).mean()) / 1e6
    evidence = []
    if told:
        straggler = straggler_of(costs, late, late_ms)
        return Judged("straggler", straggler.evidence, straggler, jitter_ms)
    if costs.is_told(jitter_ms):
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
    if WORTH_TELLING * costs.step_ms <= jitter_ms <= costs.doubt_ms:
        evidence = [
            f"Whether a rank holds the others up cannot be told: {jitter_ms:.2f} ms a step are "
            f"less than the clocks leave open, {costs.doubt_ms:.2f} ms."
        ]
    if ms < COMMUNICATING * costs.step_ms:
        return Judged("balanced", evidence, None, jitter_ms)
    share = 100 * ms / costs.step_ms
    evidence.append(f"Transfers that nothing hides take {ms:.2f} ms a step, {share:.0f} % of it.")
    return Judged("communication", evidence, None, jitter_ms)


def late_ranks(costs: Costs) -> list[int]:
    """The columns of those that wait least, up to the largest step between two neighbours."""
    waited = costs.waits.of_steps(costs.waits.exposed_wait_ns, costs.iterations).sum(axis=0)
    order = np.argsort(waited, kind="stable")
    steps = np.diff(waited[order])[: max(1, len(order) // 2)]
    late = order[: int(np.argmax(steps)) + 1].tolist()
    return sorted(late, key=lambda number: -costs.alone_ns[:, number].sum())


def straggler_of(costs: Costs, late: list[int], late_ms: float) -> Straggler:
    """`late`: the one that costs most alone first."""
    first, others = late[0], [n for n in range(len(costs.ranks)) if n not in late]
    rank = costs.ranks[first]
    longer = longer_parts(costs, first, others)
    part = max(longer, key=lambda name: longer[name])
    phase = longest_phase(costs, first, others) if part == "compute" else None
    work = explained(costs, first, others) if part == "compute" else None
    cost_ns = costs.cost_ns(late)
    in_steps = int(np.count_nonzero(cost_ns > WORTH_TELLING * costs.step_ms * 1e6))
    because = cause(costs, first, others, part, longer)
    whose = "its GPU" if len(late) == 1 else f"rank {rank.rank}'s GPU"
    why = what_is_longer(part, longer[part], phase)
    evidence = [f"{held_up(costs, late, late_ms, in_steps)}: {whose} {why}."]
    evidence += [
        f"Also {whose} {what_is_longer(name, ms, phase)}."
        for name, ms in sorted(longer.items(), key=lambda item: -item[1])
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
        longer_ms=longer[part],
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
    """By how many ms a step each part of the rank is longer than the median of the others."""
    mine, theirs = costs.parts_ms(first), [costs.parts_ms(number) for number in others]
    return {
        name: ms - float(np.median([parts.get(name, 0.0) for parts in theirs]))
        for name, ms in mine.items()
        if name != "communication"
    }


def longest_phase(costs: Costs, first: int, others: list[int]) -> str | None:
    """The phase whose kernels take longest beyond the others'; None without phases."""

    def mean_ns(number: int, phase: str) -> float:
        rank = costs.ranks[number]
        ns = rank.phase_ns.get(phase)
        return 0.0 if ns is None else float(ns[costs.steps_of(rank)].mean())

    longer = {
        phase: mean_ns(first, phase) - float(np.median([mean_ns(n, phase) for n in others]))
        for phase in costs.ranks[first].phase_ns
    }
    return max(longer, key=lambda phase: longer[phase], default=None)


def explained(costs: Costs, first: int, others: list[int]) -> Work | None:
    """Why it computes longer than the others."""
    mine, theirs = costs.ranks[first], costs.ranks[median_rank(costs, others)]

    def a_step(rank: ReducedRank, what: str) -> float:
        return sum(getattr(work, what) for work in rank.kernels.values()) / rank.steps

    if a_step(mine, "count") > (1 + OTHER_WORK) * a_step(theirs, "count"):
        return "more_kernels"
    if any(work.blocks < 0 for rank in (mine, theirs) for work in rank.kernels.values()):
        return None
    larger = a_step(mine, "blocks") > (1 + OTHER_WORK) * a_step(theirs, "blocks")
    return "larger_kernels" if larger else "slower_kernels"


def median_rank(costs: Costs, numbers: list[int]) -> int:
    """The one that computes a median time."""
    order = sorted(numbers, key=lambda number: costs.parts_ms(number)["compute"])
    return order[len(order) // 2]
