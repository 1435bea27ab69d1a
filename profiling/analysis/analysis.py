"""Analysis of one process on one GPU of a capture, part by part.

Read by all code that makes records of it: profiling.analysis.summary and the modules that it calls.
"""

from dataclasses import dataclass, replace
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
from profiling.analysis.gpu_time.launch_lines import Stacks, stacks_of
from profiling.analysis.gpu_time.losses import Losses, losses_of
from profiling.analysis.gpu_time.profiler_cost import ProfilerCost, profiler_cost
from profiling.analysis.gpu_work.families import families_of
from profiling.analysis.source.provenance import KernelLines, kernel_lines
from profiling.analysis.steps.find import find_steps
from profiling.analysis.steps.steps import Steps
from profiling.shared.manifest import Manifest
from profiling.timeline.trace import Trace

SLOW_FIRST = 1.25  # over the median of the others: a step so far from it is not a typical one
FEWEST_STEPS = 3  # among which one can be found to be slow


def starts_slowly(bounds_ns: np.ndarray) -> bool:
    """Whether the first of the steps takes longer than the others."""
    length_ns = np.diff(bounds_ns)
    if len(length_ns) < FEWEST_STEPS:
        return False
    return bool(length_ns[0] > SLOW_FIRST * np.median(length_ns[1:]))


def last_complete(manifest: Manifest | None, step: str | None) -> int | None:
    """The last complete iteration of the window, or None if the manifest does not know it.

    None also where `step` names other ranges, which are numbered otherwise.
    """
    return manifest.window.last_iteration if manifest and step is None else None


@dataclass(frozen=True, eq=False)
class Analysis:
    """The parts of an analysis, each computed once, when it is first read.

    `step`, `phases`, `device`, `process` override what steps.find would choose. The first part that
    is read raises ValueError for one that the capture does not hold.

    A slow first step of torch.profiler is left out: it holds the start of the profiler and the work
    that the warm-up had queued. `keep_first` keeps it. A step behind `last_iteration`, which the
    end of the program cut off, is left out, too.
    """

    trace: Trace
    step: str | None = None
    phases: list[str] | None = None
    device: int | None = None
    process: int | None = None
    keep_first: bool = False
    last_iteration: int | None = None  # the last complete one, as the manifest knows it

    @cached_property
    def steps_with_bounds(self) -> tuple[Steps, OwnedOperations | None, np.ndarray]:
        """(the steps, the operations that they own, their boundaries on the GPU's time line)."""
        steps = find_steps(self.trace, self.step, self.phases, self.device, self.process)
        if self.last_iteration is not None:
            steps = steps.up_to(self.last_iteration)
        owned = self.owned_by(steps)
        bounds_ns = boundaries(steps, owned)
        if self.keep_first or self.trace.kind != "kineto" or not starts_slowly(bounds_ns):
            return steps, owned, bounds_ns
        steps = steps.without_first(bounds_ns)
        return steps, self.owned_by(steps), bounds_ns[1:]

    def owned_by(self, steps: Steps) -> OwnedOperations | None:
        operations = self.trace.operations
        return None if operations is None else attribute(operations, self.trace.calls, steps)

    @cached_property
    def stacks(self) -> Stacks | None:
        """Python's frames and the program's own ones around each, or None without stacks."""
        return stacks_of(self.trace)

    @property
    def has_stacks(self) -> bool:
        """Whether Python's frames were recorded, as calls of their own or at calls of CUDA."""
        return self.stacks is not None or self.trace.call_stacks is not None

    @cached_property
    def compiled_lines(self) -> KernelLines:
        """Kernel of torch.compile -> its lines, if inductor's record is beside the capture."""
        try:
            return kernel_lines(self.trace.file)
        except ValueError as error:
            self.trace.warnings.append(f"lines of compiled kernels are not known: {error}")
            return {}

    @property
    def steps(self) -> Steps:
        return self.steps_with_bounds[0]

    @property
    def owned(self) -> OwnedOperations | None:
        """GPU operations that belong to the steps, or None where no GPU activity was captured."""
        return self.steps_with_bounds[1]

    @cached_property
    def summed(self) -> Trace:
        """The trace without the host's events and the launches up to a step that was left out, and
        without those of a step that was cut off; that of nsys is whole."""
        trace, steps = self.trace, self.steps
        if trace.kind != "kineto" or (steps.begin_ns is None and steps.cut_off_ns is None):
            return trace
        calls, operations = trace.calls, trace.operations
        if operations is not None:
            launch_ns = operations.start_ns
            if calls is not None:
                known = operations.call >= 0
                launch_ns = np.where(known, calls.start_ns[operations.call], launch_ns)
            operations = operations.rows(steps.is_counted(launch_ns))
        if calls is not None:
            calls = calls.rows(steps.is_counted(calls.start_ns))
        return replace(trace, operations=operations, calls=calls)

    @cached_property
    def owning_phase(self) -> np.ndarray | None:
        """(operations of the trace,): index in Trace.names of the phase that owns each, or -1."""
        return None if self.owned is None else owning_phases(self.owned)

    @cached_property
    def bounds_ns(self) -> np.ndarray:
        """The n + 1 boundaries of the n steps on the GPU's time line, in ns.

        Raises ValueError if all of them are equal.
        """
        bounds = self.steps_with_bounds[2]
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
    def host_begin_ns(self) -> int:
        """The time from which on events of the host belong to the steps."""
        first_ns = int(self.steps.start_ns[0])
        return self.begin_ns if self.steps.begin_ns is None else first_ns

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

    @cached_property
    def profiler_cost(self) -> ProfilerCost | None:
        """An estimate of what capturing added to the steps, or None if nothing tells it."""
        return profiler_cost(
            self.trace, self.steps, self.owned, self.activity, self.gaps, self.bounds_ns
        )
