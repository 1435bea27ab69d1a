"""What a report is about: the steps of one process on one GPU, and their phases.

Made by profiling.analysis.steps.find; asked by all that measure something in them.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiling.analysis.columns import called
from profiling.timeline.trace import Operations, Table


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
    """The steps of one process, as the host had them."""

    process: int | None
    device: int | None
    thread: int | None  # the one that opens the steps
    name: str | None  # without the number; None: the whole capture is one step
    first_iteration: int | None
    start_ns: np.ndarray  # of each step on the host, ascending
    end_ns: np.ndarray
    ranges: StepRanges = NO_RANGES
    phases_from: str | None = None  # ranges | operators
    unclosed: int = 0  # ranges among them that the capture cut off
    endless: int = 0  # ranges whose end is not in the capture, though the program went on

    @cached_property
    def phases(self) -> StepRanges:
        return self.ranges.rows(self.ranges.depth == 0)

    def host_end_ns(self) -> int:
        """Until when launches belong to the last step: what logs or saves it is behind it."""
        last = int(self.end_ns[-1])
        after = self.phases.start_ns >= last
        # not what follows the training
        after &= np.isin(self.phases.name, self.phases.name[~after])
        return int(self.phases.end_ns[after].max(initial=last))

    def phases_called(self, names: list[str], wanted: tuple[str, ...]) -> np.ndarray:
        """Which of the phases have one of the wanted names, in any case; `names`: the trace's."""
        return called(names, self.phases.name, lambda name: name.lower() in wanted)

    def rows_of(self, operations: Operations) -> np.ndarray:
        """Rows of what ran for the process on the GPU, in the steps or not."""
        mine = (operations.process == self.process) & (operations.device == self.device)
        return np.flatnonzero(mine)
