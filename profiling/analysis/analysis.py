"""Analysis of one process on one GPU of a capture, part by part.

Read by all code that makes records of it: profiling.analysis.summary and the modules that it calls.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiling.analysis.gpu_time.attribution import (
    OwnedOperations,
    attribute,
    boundaries,
    owning_phases,
)
from profiling.analysis.gpu_time.breakdown import Activity, activity_of, split
from profiling.analysis.gpu_time.idle import Gaps, find_gaps
from profiling.analysis.gpu_time.losses import Losses, losses_of
from profiling.analysis.gpu_work.families import families_of
from profiling.analysis.steps.find import find_steps
from profiling.analysis.steps.steps import Steps
from profiling.timeline.trace import Trace


@dataclass(frozen=True, eq=False)
class Analysis:
    """The parts of an analysis, each computed once, when it is first read.

    `step`, `phases`, `device`, `process` override what steps.find would choose. The first part that
    is read raises ValueError for one that the capture does not hold.
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
    def owned(self) -> OwnedOperations | None:
        """GPU operations that belong to the steps, or None where no GPU activity was captured."""
        operations = self.trace.operations
        return None if operations is None else attribute(operations, self.trace.calls, self.steps)

    @cached_property
    def owning_phase(self) -> np.ndarray | None:
        """(operations of the trace,): index in Trace.names of the phase that owns each, or -1."""
        return None if self.owned is None else owning_phases(self.owned)

    @cached_property
    def bounds_ns(self) -> np.ndarray:
        """The n + 1 boundaries of the n steps on the GPU's time line, in ns.

        Raises ValueError if all of them are equal.
        """
        bounds = boundaries(self.steps, self.owned)
        if bounds[-1] <= bounds[0]:
            name = self.trace.file.name
            raise ValueError(
                f"{name}: all of its events have zero duration, so the file may be damaged; "
                "capture it again"
            )
        return bounds

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
        """(names of the trace,): index in FAMILIES of each, or -1 if no GPU operation has it."""
        operations = self.trace.operations
        ran = np.empty(0, np.int32) if operations is None else operations.name
        return families_of(self.trace.names, ran)

    @cached_property
    def activity(self) -> Activity | None:
        """The times at which the GPU was busy, or None where no GPU activity was captured."""
        operations = self.trace.operations
        if operations is None:
            return None
        rows = self.steps.rows_of(operations)
        return activity_of(operations, rows, self.family, self.bounds_ns)

    @cached_property
    def split_ns(self) -> dict[str, np.ndarray] | None:
        """Class -> (steps,) nanoseconds (breakdown.split), or None without GPU activity."""
        return None if self.activity is None else split(self.activity, self.bounds_ns)

    @cached_property
    def losses(self) -> Losses | None:
        """Kernels that were launched but are not in the capture, or None if that is not known."""
        return losses_of(self.trace, self.steps.process)

    @cached_property
    def gaps(self) -> Gaps | None:
        """Idle gaps of the GPU by cause, or None without GPU activity or without CUDA calls."""
        if self.owned is None or self.activity is None:
            return None
        return find_gaps(self.trace, self.owned, self.activity, self.bounds_ns)
