"""Predict a step with a change, with an interval and a sign, from a Work whose steps are replayed.

The host and the GPU may be slower or faster than the replay has them. The interval of the step is
where both are at one end, and where pauses of up to PAUSE_NS, which may be the framework's own, are
there, too. The sign comes from the ratio of the step with the change to the one without, each
replayed in the same five of these worlds, because both share that doubt. Of what a change takes
away AWAY_DOUBT may stay or go as well: something is done in its place.

Where the step without a profiler is known, the host's times are made so long that the steps replay
as long as that, and the change is replayed with them: the GPU's times, which a profiler hardly
lengthens, stay. A known step that is too far from the replayed one does not help: then the doubt is
the wider one. Where a loader's workers set the pace, the captured step counts as the one without a
profiler: a host that records nothing waits longer for them instead.

Stalls are the program's own time, which no event of the profiler explains, and another process has
others: STALL_DOUBT says by how much, where the step without a profiler is not known.

What is shorter ends no later than the step as it is, and so does its interval. Where it would not,
and the host limits the step, the prediction does not say by how much: on two series 14 of 93
answers were so, and their gains were off by 79 % in the median, those of all by 6 %.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from profiling.analysis.whatif import cost
from profiling.analysis.whatif.changes import Change
from profiling.analysis.whatif.constants import (
    AWAY_DOUBT,
    FASTEST_HOST,
    GPU_BOUND,
    GPU_FAST,
    GPU_SLOW,
    HOST_DOUBT,
    KNOWN_HOST_DOUBT,
    LEAST_FACTOR,
    LIMITED,
    MOST_FACTOR,
    MOST_STALLED,
    SAME,
    STALL_DOUBT,
    SURE,
    SURE_SHARE,
)
from profiling.analysis.whatif.replay import (
    GpuTimes,
    HostTimes,
    Schedule,
    gpu_times,
    host_times,
    schedule_of,
    steady_round_ms,
)
from profiling.analysis.whatif.whatif_records import Answer, FreeStep, Limit, Prediction, StepSource
from profiling.analysis.whatif.work import ALLOCATION, Work

HOW_MUCH = "by how much: it depends on how fast the host is without a profiler"
TRIES = 9  # to find the host's factor
CLOSE = 0.005  # of the known step: a replay that is so close to it
MOSTLY = 0.99  # of the time that batches take
PACED = "the wait for the loader's workers, which set the pace"


@dataclass(frozen=True)
class Replays:
    """Steps with a change, on hosts and GPUs that are slower or faster than expected."""

    quiet: Work  # without noted events
    slowdown: float  # of the host while captured
    changed: Work  # the quiet work with the change
    change: Callable[[Work], Work] = lambda work: work
    hosts: dict[tuple[float, float], HostTimes] = field(default_factory=dict)  # by factors
    gpus: dict[float, GpuTimes] = field(default_factory=dict)  # likewise
    replayed: dict[tuple[float, float, float], float] = field(default_factory=dict)

    @cached_property
    def schedule(self) -> Schedule:  # which does not depend on how fast they are
        return schedule_of(self.changed)

    def step_ms(self, host: float = 1.0, gpu: float = 1.0, pauses: float = 1.0) -> float:
        """A step whose times on the host and on the GPU are longer by these factors, and whose
        pauses, which may be the framework's own, by the third."""
        if (found := self.replayed.get((host, gpu, pauses))) is not None:
            return found
        if (host, pauses) not in self.hosts:
            work = self.change(cost.scale_host(self.quiet, host / self.slowdown, pauses))
            self.hosts[host, pauses] = host_times(work, self.schedule)
        round_ms = steady_round_ms(self.hosts[host, pauses], self.gpu_times(gpu), self.schedule)
        self.replayed[host, gpu, pauses] = step_ms = round_ms / self.quiet.steps
        return step_ms

    def gpu_times(self, factor: float) -> GpuTimes:
        if factor not in self.gpus:
            self.gpus[factor] = gpu_times(cost.scale_gpu(self.changed, factor), self.schedule)
        return self.gpus[factor]

    def changed_by(self, change: Callable[[Work], Work]) -> "Replays":
        """The steps with another change; these themselves where that takes nothing away."""
        work = change(self.quiet)
        same = all(
            np.array_equal(column, getattr(before, name))
            for before, after in ((self.quiet.host, work.host), (self.quiet.gpu, work.gpu))
            for name, column in vars(after).items()
        )
        return self if same else Replays(self.quiet, self.slowdown, work, change)

    @property
    def gpu_ms(self) -> float:
        """A step where the host takes next to no time, but for its stalls and allocations."""
        return self.step_ms(FASTEST_HOST * self.slowdown)

    @cached_property
    def gpu_alone_ms(self) -> float:
        """A step where the host takes no time at all."""
        host = host_times(cost.without_host(self.changed), self.schedule)
        round_ms = steady_round_ms(host, self.gpu_times(1.0), self.schedule)
        return round_ms / self.quiet.steps


@dataclass(frozen=True)
class Scene:
    """The steps of a capture and their free time, which all predictions share."""

    cycle: Work  # as captured
    given_ms: float | None  # the step without a profiler, where it is known
    from_manifest: bool = False
    paced_ms: float | None = None  # the captured step, where a loader's workers set its pace
    shows_loading: bool = True  # the capture, when batches are made
    guesses_loading: bool = False  # from pauses before copies: no range and no wait marks it
    shows_waits: bool = True  # the capture, all calls that wait
    shows_mapping: bool = True  # the capture, calls that map memory and unmap it

    def is_paced(self, change: Callable[[Work], Work]) -> bool:
        """Whether workers set the pace, with the change too: a shorter step waits longer."""
        if self.paced_ms is None:
            return False
        return loading_ns(change(self.cycle)) > MOSTLY * loading_ns(self.cycle)

    @cached_property
    def launch_us(self) -> float | None:
        return cost.launch_us(self.cycle)

    @cached_property
    def slowdown(self) -> float:
        return cost.host_slowdown(self.launch_us)

    @cached_property
    def plain(self) -> Replays:
        """The steps without a change."""
        quiet = cost.without_events(self.cycle)
        return Replays(quiet, self.slowdown, quiet)

    @cached_property
    def stalled_ms(self) -> float:
        return stalled_ms(self.cycle)

    def excess_ms(self, change: Callable[[Work], Work]) -> float:
        """Milliseconds of the step with the change that its stalls take longer than replayed.

        Where stalls are most of a known step, they are what differs from the replayed one.
        """
        known_ms, plain_ms = self.given_ms, self.plain.step_ms()
        if known_ms is None or self.stalled_ms < MOST_STALLED * known_ms:
            return 0.0
        if not LEAST_FACTOR <= known_ms / plain_ms <= MOST_FACTOR:
            return 0.0
        left = min(stalled_ms(change(self.cycle)) / self.stalled_ms, 1.0)
        return (known_ms - plain_ms) * left

    @cached_property
    def host_factor(self) -> float | None:
        """Factor of the host's times with which the steps replay as long as the known one; None
        where there is none near 1, or where stalls are most of the step."""
        known_ms, plain = self.given_ms, self.plain
        if known_ms is None or self.stalled_ms >= MOST_STALLED * known_ms:
            return None
        if plain.step_ms() <= GPU_BOUND * plain.gpu_ms:
            return 1.0 if LEAST_FACTOR <= known_ms / plain.step_ms() <= MOST_FACTOR else None
        return factor_of(plain, known_ms)

    @property
    def own_host(self) -> float:
        return self.host_factor or 1.0

    @property
    def doubt(self) -> float:
        return HOST_DOUBT if self.host_factor is None else KNOWN_HOST_DOUBT

    @property
    def worlds(self) -> tuple[tuple[float, float], ...]:
        """Factors of the host's and of the GPU's times in which the sign is sought."""
        own = self.own_host
        slow, fast = self.doubt * own, own / self.doubt
        return (own, 1.0), (fast, 1.0), (slow, 1.0), (fast, GPU_SLOW), (slow, GPU_FAST)

    @cached_property
    def free(self) -> FreeStep:
        source: StepSource = "manifest" if self.from_manifest else "given"
        replayed_ms = self.plain.step_ms()
        scaled = self.host_factor is not None or self.excess_ms(lambda work: work) != 0
        if self.given_ms is None:
            source = "estimated"
        known = (self.given_ms, self.paced_ms)
        free_ms = next((ms for ms in known if ms is not None), replayed_ms)
        return FreeStep(free_ms, source, replayed_ms, scaled, self.slowdown, self.launch_us)


def predict(scene: Scene, change: Change, try_it: str | None) -> Prediction:
    """The step with the change; `try_it` is the command that measures it."""
    paced = scene.is_paced(change.apply)
    replays = scene.plain if paced else scene.plain.changed_by(change.apply)
    ratios = [replays.step_ms(*world) / scene.plain.step_ms(*world) for world in scene.worlds]
    free_ms, floor_ms = scene.free.ms, replays.gpu_ms
    nothing = all(abs(ratio - 1) < SAME for ratio in ratios)
    step_ms = free_ms
    if not nothing:
        replayed_ms = replays.step_ms(scene.own_host)
        step_ms = max(floor_ms, replayed_ms) + scene.excess_ms(change.apply)
    if max(ratios) < 1 + SAME:  # what only takes away makes no step longer
        step_ms = min(step_ms, free_ms)
    low_ms, high_ms = interval(scene, replays, step_ms)
    ratios = [1.0] if nothing else [*ratios, step_ms / free_ms]
    answer = answer_of(ratios)
    by_host = step_ms > LIMITED * floor_ms
    limited_by: Limit = "gpu"
    if by_host or step_ms > LIMITED * replays.gpu_alone_ms:
        limited_by = "host"
    reason = why_unknown(ratios) if answer == "cannot tell" else None
    if (answer == "shorter" and high_ms > free_ms) or (answer == "longer" and low_ms < free_ms):
        reason = HOW_MUCH if by_host else None
    if scene.given_ms is None:
        low_ms, high_ms = with_stalls(replays, step_ms, low_ms, high_ms)
    low_ms = max(low_ms, free_ms) if answer == "longer" else low_ms
    high_ms = min(high_ms, free_ms) if answer == "shorter" else high_ms
    return Prediction(
        change=change.words,
        answer=answer,
        reason=reason,
        step_ms=step_ms,
        low_ms=low_ms,
        high_ms=high_ms,
        ratio=ratios[-1],
        ratio_low=min(ratios),
        ratio_high=max(ratios),
        gpu_ms=min(floor_ms, step_ms),
        limited_by=limited_by,
        leaves=[*change.leaves, *([PACED] if paced else [])],
        try_it=try_it,
    )


def factor_of(plain: Replays, known_ms: float) -> float | None:
    """Factor of the host's times, from LEAST_FACTOR to MOST_FACTOR, with which a step replays as
    long as `known_ms`; None where there is none.

    At the ends of that range the GPU may be as fast or as slow as an interval has it. Each try is a
    replay, so the step counts as a straight line between two of them; where it is bent, as the GPU
    limits it below, halving the range in turns with that comes nearer.
    """
    low, high = (LEAST_FACTOR, 1.0) if known_ms < plain.step_ms() else (1.0, MOST_FACTOR)
    factor = 1.0
    for number in range(TRIES):
        step_ms = plain.step_ms(factor)
        if abs(step_ms / known_ms - 1) <= CLOSE:
            break
        low, high = (factor, high) if step_ms < known_ms else (low, factor)
        low_ms, high_ms = plain.step_ms(low), plain.step_ms(high)
        if known_ms < low_ms:
            return low if plain.step_ms(low, GPU_FAST) <= known_ms else None
        if known_ms > high_ms:
            return high if plain.step_ms(high, GPU_SLOW) >= known_ms else None
        share = 0.5 if number % 2 else (known_ms - low_ms) / (high_ms - low_ms)
        factor = low + share * (high - low)
    return factor


def loading_ns(work: Work) -> float:
    return float(np.minimum(work.host.think_ns, work.host.data_ns).sum())


def stalled_ms(work: Work) -> float:
    """Milliseconds of a step that are stalls, make its batch, or pass in calls that allocate."""
    host = work.host
    stalled_ns = np.maximum(host.think_ns, 0)[host.is_stall | (host.data_ns > 0)].sum()
    allocating_ns = host.took_ns[host.kind == ALLOCATION].sum()
    return float(stalled_ns + allocating_ns) / 1e6 / work.steps


def interval(scene: Scene, replays: Replays, step_ms: float) -> tuple[float, float]:
    """Ends of the interval of the step with the change."""
    own, doubt = scene.own_host, scene.doubt
    low_ms = min(replays.step_ms(own / doubt, GPU_FAST, 1 / doubt), step_ms * GPU_FAST)
    high_ms = replays.step_ms(own * doubt, GPU_SLOW, doubt)
    if scene.host_factor is not None and step_ms > GPU_BOUND * replays.gpu_ms:
        low_ms = min(low_ms, step_ms / scene.doubt)
    away_ms = AWAY_DOUBT * max(scene.free.ms - step_ms, 0)
    low_ms = min(low_ms, max(step_ms - away_ms, GPU_FAST * replays.gpu_alone_ms))
    return low_ms, max(high_ms, step_ms * GPU_SLOW, step_ms + away_ms)


def with_stalls(
    replays: Replays, step_ms: float, low_ms: float, high_ms: float
) -> tuple[float, float]:
    """The interval, with the doubt of how long the stalls that the change leaves take."""
    left_ms = min(stalled_ms(replays.changed), step_ms - replays.gpu_alone_ms)
    shorter_ms, longer_ms = (1 - 1 / STALL_DOUBT) * left_ms, (STALL_DOUBT - 1) * left_ms
    return min(low_ms, step_ms - shorter_ms), max(high_ms, step_ms + longer_ms)


def answer_of(ratios: list[float]) -> Answer:
    if all(abs(ratio - 1) < SURE for ratio in ratios):
        return "nothing"
    if SURE_SHARE * (1 - max(ratios)) > SURE:
        return "shorter"
    return "longer" if SURE_SHARE * (min(ratios) - 1) > SURE else "cannot tell"


def why_unknown(ratios: list[float]) -> str:
    shorter, longer = 100 * (1 - min(ratios)), 100 * (max(ratios) - 1)
    most = f"{longer:.0f} % longer" if longer > shorter else f"{shorter:.0f} % shorter"
    if max(shorter, longer) <= 100 * SURE / SURE_SHARE:
        return f"at most {most}, too little to be sure of"
    return f"{most} or not at all: it depends on how fast the host is without a profiler"
