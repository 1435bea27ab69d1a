"""Waits of each rank, and what it costs the others, over the steps that all ranks have."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiling.analysis.ranks.collective_waits import Waits
from profiling.analysis.ranks.own_host import chance_ms
from profiling.analysis.ranks.reduce import ReducedRank
from profiling.analysis.ranks.replay import own_jitter_ns, sooner_ns

WORTH_TELLING = 0.02  # share of a step
EQUAL_GPUS = 0.03  # share of a step by which GPUs of one kind differ in speed
HALF_A_WAIT = 0.5  # per step, by which hosts with the same work may differ
MANY = 10  # collectives, in all of which no rank is the last by chance


@dataclass(frozen=True, eq=False)
class Costs:
    """Waits and costs of each rank; `number` is a rank's index in `ranks`, its column in Waits."""

    ranks: Sequence[ReducedRank]
    waits: Waits
    iterations: np.ndarray  # those that all ranks have

    @property
    def is_matched(self) -> bool:
        return len(self.waits.matched.iteration) > 0

    def steps_of(self, rank: ReducedRank) -> np.ndarray:
        """(steps,) bool: the steps of this rank that all others have too."""
        return np.isin(rank.iterations, self.iterations)

    def mean_of_rank_ms(self, values: np.ndarray, number: int) -> float | None:
        """Mean ms per step of the rank's column in `values`, one of the arrays of Waits.

        None where the rank's collectives were not matched.
        """
        if not self.waits.matched.there[:, number].any() or np.isnan(values[:, number]).all():
            return None
        return self.mean_ms(self.waits.sum_by_step(values[:, number], self.iterations))

    def mean_ms(self, step_ns: np.ndarray) -> float:
        """Mean in ms of (iterations,) ns over those in which collectives were matched, else 0."""
        matched = np.isin(self.iterations, self.waits.matched.iteration)
        return float(step_ns[matched].mean()) / 1e6 if matched.any() else 0.0

    def parts_ms(self, number: int) -> dict[str, float]:
        """Mean step in ms, split into causes.PARTS."""
        return self.means_ms(number, self.ranks[number].parts_ns)

    def slowed_ms(self, number: int) -> float:
        """Time by which collectives lengthen the rank's kernels beside them, in ms per step."""
        rank = self.ranks[number]
        of_steps = np.bincount(rank.collectives.step, rank.slowed_ns, rank.steps)
        return float(of_steps[self.steps_of(rank)].mean()) / 1e6

    def unslowed_ms(self, number: int) -> dict[str, float]:
        """Mean step as in parts_ms, without the time by which collectives slow its kernels."""
        parts = self.parts_ms(number)
        return parts | {"compute": parts["compute"] - self.slowed_ms(number)}

    def host_ms(self, number: int) -> dict[str, float]:
        """Mean idle time in ms per step, by what the host did."""
        return self.means_ms(number, self.ranks[number].host_ns)

    def means_ms(self, number: int, parts_ns: dict[str, np.ndarray]) -> dict[str, float]:
        chosen = self.steps_of(self.ranks[number])
        return {name: float(ns[chosen].mean()) / 1e6 for name, ns in parts_ns.items()}

    @cached_property
    def step_ms(self) -> float:
        """Median step of all ranks."""
        return float(np.median(self.steps_ms))

    @cached_property
    def mean_step_ms(self) -> float:
        return float(self.steps_ms.mean())

    @cached_property
    def steps_ms(self) -> np.ndarray:
        """Length in ms of each compared step of each rank, one rank after the other."""
        lengths = [np.diff(rank.bounds_ns)[self.steps_of(rank)] for rank in self.ranks]
        return np.concatenate(lengths) / 1e6

    @cached_property
    def alone_ns(self) -> np.ndarray:
        """(iterations, ranks): ns that each rank costs the others by itself."""
        return self.waits.alone_ns(self.iterations)

    def own_host_ms(self, number: int) -> np.ndarray | None:
        """(iterations,) ms that the rank's host takes for each step by itself; None: unknown."""
        rank = self.ranks[number]
        return None if rank.own_host is None else rank.own_host.step_ns[self.steps_of(rank)] / 1e6

    def waits_more(self, number: int) -> bool:
        """Whether the rank's host waits for its GPU more often than any other's."""
        mine = self.ranks[number].own_host
        others = [rank.own_host for n, rank in enumerate(self.ranks) if n != number]
        waits = max((host.waits for host in others if host), default=0.0)
        return mine is not None and mine.waits > waits + HALF_A_WAIT

    def slowest_host_ms(self, late: Collection[int]) -> np.ndarray | None:
        """own_host_ms of the slowest host of the ranks that are not `late`; None: unknown."""
        others = [self.own_host_ms(n) for n in range(len(self.ranks)) if n not in late]
        return max((ms for ms in others if ms is not None), key=np.mean, default=None)

    def hosts_differ_ms(self, late: Collection[int]) -> float:
        """Time in ms per step by which equal hosts may differ from the slowest of the others'."""
        host_ms = self.slowest_host_ms(late)
        return 0.0 if host_ms is None else chance_ms(host_ms)

    def most_to_gain_ms(self, late: Collection[int]) -> float | None:
        """Time in ms per step that the slowest of the others' hosts leaves; None: unknown."""
        host_ms = self.slowest_host_ms(late)
        if host_ms is None:
            return None
        return max(0.0, self.mean_step_ms - float(host_ms.mean()))

    @cached_property
    def free_step_range_ms(self) -> tuple[float, float] | None:
        """Range of the step in ms without a profiler, by the runs' own times; None: unknown."""
        ranges = [rank.free_step_range_ms for rank in self.ranks]
        known = [each for each in ranges if each is not None]
        return (min(low for low, _ in known), max(high for _, high in known)) if known else None

    @property
    def free_step_ms(self) -> float | None:
        """The upper end of free_step_range_ms."""
        return self.free_step_range_ms[1] if self.free_step_range_ms else None

    @property
    def lengthened_ms(self) -> float:
        """The most by which a captured step is longer than one without a profiler; 0: unknown."""
        if self.free_step_range_ms is None:
            return 0.0
        return max(0.0, self.mean_step_ms - self.free_step_range_ms[0])

    def most_lost_free_ms(self, late: Collection[int]) -> float | None:
        """The most that the others can lose to `late` in a step without a profiler, in ms.

        It is what the computing of their GPUs leaves of that step. Transfers are not taken off:
        those of a captured step may be hidden without a profiler. None: unknown, as where the
        computing takes longer than that step.
        """
        if self.free_step_ms is None:
            return None
        others = [n for n in range(len(self.ranks)) if n not in late]
        computing_ms = max(self.unslowed_ms(number)["compute"] for number in others)
        if computing_ms > (1 + EQUAL_GPUS) * self.free_step_ms:
            return None
        return max(0.0, self.free_step_ms - computing_ms)

    def gained_ns(self, ranks: Collection[int]) -> np.ndarray:
        """(iterations,) ns gained in each step if `ranks`, as columns but not all, are mended."""
        late_ns = sooner_ns(self.waits, ranks, self.iterations)
        if not self.is_significant(self.mean_ms(late_ns), ranks):  # too little even with jitter
            return late_ns
        return late_ns - own_jitter_ns(self.waits, ranks, self.iterations, late_ns)

    @cached_property
    def known(self) -> np.ndarray:
        """(iterations, ranks) bool: whether collectives of the rank were found on others."""
        matched = self.waits.matched
        is_known = np.zeros((len(self.iterations), len(self.ranks)), bool)
        for number in range(len(self.ranks)):
            mine = matched.iteration[matched.there[:, number]]
            is_known[:, number] = np.isin(self.iterations, mine)
        return is_known

    def alone_ms(self, number: int) -> float | None:
        return self.mean_ms(self.alone_ns[:, number]) if self.known[:, number].any() else None

    def last_in_steps(self, number: int) -> int | None:
        if not self.known[:, number].any():
            return None
        most = self.alone_ns.argmax(axis=1)
        return int(np.count_nonzero((most == number) & (self.alone_ns[:, number] > 0)))

    def doubt_ms(self, ranks: Collection[int]) -> float:
        """Error in ms per step that the clocks leave in what `ranks` cost."""
        return self.waits.doubt_ns(ranks, self.iterations) / len(self.iterations) / 1e6

    def is_last_in_all(self, number: int) -> bool:
        """Whether the rank comes last in each of MANY collectives or more, and so by no chance."""
        rows = np.isin(self.waits.matched.iteration, self.iterations)
        last = self.waits.last[rows]
        return len(last) >= MANY and bool(np.all(last == number))

    def is_significant(self, ms: float, ranks: Collection[int]) -> bool:
        """Whether a cost of `ranks` is worth reporting, and more than the clocks' error."""
        return ms >= WORTH_TELLING * self.step_ms and ms > self.doubt_ms(ranks)
