"""Split each step by what the GPU did, so that the parts add up to the wall. Called by analysis.

Each nanosecond counts once: as compute if a kernel runs, else as communication (collectives, and
copies from GPU to GPU), else as copy (all other copies, and memsets), else as idle. So
communication_ms is only what no kernel hides.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiling.analysis.columns import Intervals, union
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.timeline.trace import COPY, MEMSET, Operations

COMMUNICATION = FAMILIES.index("communication")


@dataclass(frozen=True)
class Activity:
    """Busy times of one device, by class; as sets, `computing` <= `talking` <= `busy`."""

    begin_ns: int  # of the first step; the sets reach beyond the steps
    end_ns: int  # of the last step
    computing: Intervals
    talking: Intervals  # communicating or computing
    busy: Intervals  # communicating, computing or copying

    @cached_property
    def idle(self) -> Intervals:
        return self.busy.gaps(self.begin_ns, self.end_ns)


def activity_of(
    operations: Operations, rows: np.ndarray, family: np.ndarray, bounds_ns: np.ndarray
) -> Activity:
    """The activity of one device, whose operations are at `rows`.

    `family` is the index in FAMILIES of each of the trace's names.
    """
    start_ns, end_ns = operations.start_ns[rows], operations.end_ns[rows]
    kind, family_of_row = operations.kind[rows], family[operations.name[rows]]
    talking = family_of_row == COMMUNICATION
    copying = ((kind == COPY) | (kind == MEMSET)) & ~talking
    computing = ~copying & ~talking
    return Activity(
        int(bounds_ns[0]),
        int(bounds_ns[-1]),
        union(start_ns[computing], end_ns[computing]),
        union(start_ns[~copying], end_ns[~copying]),
        union(start_ns, end_ns),
    )


def split(activity: Activity, bounds_ns: np.ndarray) -> dict[str, np.ndarray]:
    """Class -> (steps,) nanoseconds; the four classes add up to the step exactly."""
    begin, end = bounds_ns[:-1], bounds_ns[1:]
    compute = activity.computing.ns_within(begin, end)
    talking = activity.talking.ns_within(begin, end)
    busy = activity.busy.ns_within(begin, end)
    return {
        "compute": compute,
        "communication": talking - compute,
        "copy": busy - talking,
        "idle": (end - begin) - busy,
    }
