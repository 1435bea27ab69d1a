"""Schedule of a run's windows: at given iterations, or as soon as step times are stable."""

import logging
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from configs.profiling import AUTO, PlannedWindow, ProfileConfig, plan_windows
from profiling.recording.dynamo import compile_counts

log = logging.getLogger(__name__)

SETTLE_STEPS = 10  # start=auto looks at so many iterations at a time
STABLE_PERCENT = 10.0  # the halves of them may differ by so much in median step time
PATIENCE_STEPS = 200  # after so many iterations the window opens all the same


@dataclass
class Schedule:
    """The windows that are still to come."""

    profile: ProfileConfig
    first_iteration: int  # the first that this process trains
    max_iters: int
    eval_interval: int
    all_agree: Callable[[bool], bool] = bool  # whether all ranks answer yes; each gives its answer
    step: str = "iteration"  # what the run calls a step
    windows: list[PlannedWindow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.graphs = compile_counts().graphs
        self.undecided = self.profile.kind != "none"
        if self.undecided and self.profile.start != AUTO:
            self.decide(int(self.profile.start))
            past = [w.first for w in self.windows if w.first < self.first_iteration]
            self.windows = self.windows[len(past) :]
            if past:
                log.warning(
                    "profile: the run continues at iteration %d; the window at %s is skipped "
                    "because it is in the past",
                    self.first_iteration,
                    " and ".join(map(str, past)),
                )

    def next(self) -> PlannedWindow | None:
        return self.windows[0] if self.windows else None

    def finished(self) -> bool:
        return not self.windows and not self.undecided

    def wants_laps(self, iteration: int) -> bool:
        """Whether `decide_if_stable` must be called before this iteration."""
        done = iteration - self.first_iteration
        return self.undecided and done > 0 and done % SETTLE_STEPS == 0

    def decide_if_stable(self, iteration: int, laps_ms: list[float]) -> None:
        """Decide the windows of start=auto once nothing compiles and step times are stable.

        `laps_ms` are the step times of the last iterations. All ranks decide alike.
        """
        before, self.graphs = self.graphs, compile_counts().graphs
        stable = self.graphs == before and is_stable(laps_ms[-SETTLE_STEPS:])
        if not self.all_agree(stable):
            if iteration - self.first_iteration < PATIENCE_STEPS:
                return
            log.warning(
                "profile.start=auto: after %d iterations the step time still varies by more than "
                "%.0f %%, or compilation is still going on; the window opens anyway",
                PATIENCE_STEPS,
                STABLE_PERCENT,
            )
        self.decide(iteration + self.profile.lead)

    def decide(self, start: int) -> None:
        self.undecided = False
        ends = self.max_iters - self.profile.steps  # the last iteration to open a window at
        planned = plan_windows(self.profile, start, self.eval_interval)
        self.windows = [window for window in planned if window.first <= ends]
        for window in self.windows:
            last = window.first + self.profile.steps - 1
            moved = f", moved from iteration {window.asked} to after an evaluation"
            span = f"{window.first} to {last}{moved if window.moved else ''}"
            log.info("profile=%s: %ss %s", self.profile.kind, self.step, span)
        if len(self.windows) < len(planned):
            log.warning(
                "profile: %d of %d windows do not fit before max_iters=%d",
                len(planned) - len(self.windows),
                len(planned),
                self.max_iters,
            )


def is_stable(laps_ms: list[float]) -> bool:
    if len(laps_ms) < SETTLE_STEPS:
        return False
    half = len(laps_ms) // 2
    before, after = statistics.median(laps_ms[:half]), statistics.median(laps_ms[half:])
    return abs(after - before) <= STABLE_PERCENT / 100 * before
