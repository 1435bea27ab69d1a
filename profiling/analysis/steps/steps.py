"""The subject of a report: the steps of one process on one GPU, and their phases.

Made by profiling.analysis.steps.find; used by all modules that measure something in steps.
"""

import re
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from profiling.analysis.columns import name_mask
from profiling.timeline.trace import Operations, Table

# numbers in the names of XLA's ranges that differ from process to process
IDS = re.compile(r",?\b(program|run|launch|correlation)_id=-?\d+")


def without_ids(name: str) -> str:
    """The range's name without the ids that XLA puts into it, so that two captures compare."""
    return IDS.sub("", name)


@dataclass(frozen=True)
class StepRanges(Table):
    """Phases and the ranges inside them, sorted by start. `depth` 0: a phase."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    name: np.ndarray  # index in Trace.names
    thread: np.ndarray
    depth: np.ndarray


NO_RANGES = StepRanges.empty()


@dataclass(frozen=True)
class Steps:
    """The steps of one process, in the host's time."""

    process: int | None
    device: int | None
    thread: int | None  # the thread that opens the steps
    name: str | None  # without the number; None: the whole capture is one step
    first_iteration: int | None
    start_ns: np.ndarray  # of each step on the host, ascending
    end_ns: np.ndarray
    ranges: StepRanges = NO_RANGES
    phases_from: str | None = None  # ranges | operators
    unclosed: int = 0  # number of these ranges that the capture cut off
    endless: int = 0  # number of ranges without an end, though the program went on
    begin_ns: int | None = None  # end on the GPU of the step that was left out before these
    left_out_ns: int | None = None  # how long that step took
    cut_off_ns: int | None = None  # begin on the host of a step that the program's end cut off

    @cached_property
    def phases(self) -> StepRanges:
        return self.ranges.rows(self.ranges.depth == 0)

    def host_end_ns(self) -> int:
        """The time up to which launches belong to the last step, including its trailing phases.

        A trailing phase (logging or saving the step) has the name of a phase in an earlier step.
        """
        last = int(self.end_ns[-1])
        after = self.phases.start_ns >= last
        # a name that is new here is not part of the loop: it follows the training
        after &= np.isin(self.phases.name, self.phases.name[~after])
        return int(self.phases.end_ns[after].max(initial=last))

    def phase_mask(self, names: list[str], wanted: tuple[str, ...]) -> np.ndarray:
        """(phases,) mask of those with one of the `wanted` names, in upper or lower case.

        `names` is Trace.names.
        """
        return name_mask(names, self.phases.name, lambda name: name.lower() in wanted)

    def without_first(self, bounds_ns: np.ndarray) -> "Steps":
        """All steps but the first; `bounds_ns` are their boundaries on the GPU's time line."""
        begun = self.ranges.start_ns >= self.start_ns[1]
        return replace(
            self,
            first_iteration=None if self.first_iteration is None else self.first_iteration + 1,
            start_ns=self.start_ns[1:],
            end_ns=self.end_ns[1:],
            ranges=self.ranges.rows(begun),
            begin_ns=int(bounds_ns[1]),
            left_out_ns=int(bounds_ns[1] - bounds_ns[0]),
        )

    def up_to(self, last_iteration: int) -> "Steps":
        """The steps without one behind `last_iteration`, the last that was complete."""
        complete = last_iteration + 1 - (self.first_iteration or 0)
        if self.first_iteration is None or not 0 < complete < len(self.start_ns):
            return self
        cut_off_ns = int(self.start_ns[complete])
        return replace(
            self,
            start_ns=self.start_ns[:complete],
            end_ns=self.end_ns[:complete],
            ranges=self.ranges.rows(self.ranges.start_ns < cut_off_ns),
            cut_off_ns=cut_off_ns,
        )

    def is_counted(self, host_ns: np.ndarray) -> np.ndarray:
        """Mask of the times on the host that lie in no step that is left out or cut off."""
        counted = np.ones(len(host_ns), bool)
        if self.begin_ns is not None:
            counted &= host_ns >= self.start_ns[0]
        if self.cut_off_ns is not None:
            counted &= host_ns < self.cut_off_ns
        return counted

    def rows_of(self, operations: Operations) -> np.ndarray:
        """Rows of the operations of this process on this GPU, in the steps or not."""
        mine = (operations.process == self.process) & (operations.device == self.device)
        return np.flatnonzero(mine)
