"""What is known of one process on one GPU of a capture, part by part.

Asked by all that makes records of it: profiling.analysis.summary and what summary calls.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiling.analysis.gpu_time.attribution import (
    Owned,
    attribute,
    boundaries,
    owning_phases,
)
from profiling.analysis.gpu_time.breakdown import Activity, activity_of, split
from profiling.analysis.gpu_time.idle import Gaps, find_gaps
from profiling.analysis.gpu_time.losses import Losses, losses_of
from profiling.analysis.kernels.families import families_of
from profiling.analysis.steps.find import find_steps
from profiling.analysis.steps.steps import Steps
from profiling.timeline.trace import Trace


@dataclass(frozen=True, eq=False)
class Analysis:
    """Each part is made when it is first asked for, and once.

    `step`, `phases`, `device`, `process` choose what is otherwise found out (steps.find). The first
    part raises ValueError for one that the capture does not hold.
    """

    trace: Trace
    step: str | None = None
    phases: list[str] | None = None
    device: int | None = None
    process: int | None = None

    @cached_property
    def steps(self) -> Steps:
        return find_steps(self.trace, self.step, self.phases, self.device, self.process)

    @cached_property
    def owned(self) -> Owned | None:
        """What ran on the GPU in the steps; None where no GPU activity was captured."""
        operations = self.trace.operations
        return None if operations is None else attribute(operations, self.trace.calls, self.steps)

    @cached_property
    def owning_phase(self) -> np.ndarray | None:
        """Of each of the trace's operations the phase's index in its names, or -1."""
        return None if self.owned is None else owning_phases(self.owned)

    @cached_property
    def bounds_ns(self) -> np.ndarray:
        """The n + 1 times between the n steps, as the GPU had them.

        Raises ValueError where they are one and the same.
        """
        found = boundaries(self.steps, self.owned)
        if found[-1] <= found[0]:
            name = self.trace.file.name
            raise ValueError(f"{name}: its events take no time; is it damaged? Capture it again")
        return found

    @property
    def begin_ns(self) -> int:
        return int(self.bounds_ns[0])

    @property
    def end_ns(self) -> int:
        return int(self.bounds_ns[-1])

    @property
    def step_count(self) -> int:
        return len(self.bounds_ns) - 1

    @cached_property
    def family(self) -> np.ndarray:
        """Of each of the trace's names the index in FAMILIES; -1: nothing on a GPU is called so."""
        operations = self.trace.operations
        ran = np.empty(0, np.int32) if operations is None else operations.name
        return families_of(self.trace.names, ran)

    @cached_property
    def activity(self) -> Activity | None:
        """When the GPU was busy; None as for `owned`."""
        operations = self.trace.operations
        if operations is None:
            return None
        rows = self.steps.rows_of(operations)
        return activity_of(operations, rows, self.family, self.bounds_ns)

    @cached_property
    def split_ns(self) -> dict[str, np.ndarray] | None:
        """Nanoseconds of each class in each step (breakdown.split); None as for `owned`."""
        return None if self.activity is None else split(self.activity, self.bounds_ns)

    @cached_property
    def losses(self) -> Losses | None:
        """Kernels that were launched and are not in the capture; None where nothing tells."""
        return losses_of(self.trace, self.steps.process)

    @cached_property
    def gaps(self) -> Gaps | None:
        """Why it was idle; None as for `owned`, and without the calls that tell."""
        if self.owned is None or self.activity is None:
            return None
        return find_gaps(self.trace, self.owned, self.activity, self.bounds_ns)
