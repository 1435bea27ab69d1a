"""What a report is about, as records: the steps of one process on one GPU, and their phases.

Made by profiling.analysis.steps.find; asked by all that measure something in the window.
"""

from dataclasses import dataclass

import numpy as np

from profiling.analysis.columns import called
from profiling.timeline.trace import Trace


@dataclass(frozen=True)
class Spans:
    """Ranges that the report is about, sorted by start. `depth` 0: a phase."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    name: np.ndarray  # index in Trace.names
    thread: np.ndarray
    depth: np.ndarray


NO_SPANS = Spans(*(np.empty(0, np.int64) for _ in range(5)))


@dataclass(frozen=True)
class Window:
    """The steps of one process, as the host had them."""

    process: int | None
    device: int | None
    thread: int | None  # the one that opens the steps
    step_name: str | None  # without the number; None: the whole capture is one step
    first_iteration: int | None
    start_ns: np.ndarray  # of each step on the host, ascending
    end_ns: np.ndarray
    phases_from: str | None  # ranges | operators
    spans: Spans  # phases and what is inside them
    unclosed: int = 0  # ranges among them that the capture cut off

    def phases(self) -> Spans:
        return rows_of(self.spans, self.spans.depth == 0)

    def host_end_ns(self) -> int:
        """Until when launches belong to the last step: what logs or saves it is behind it."""
        last = int(self.end_ns[-1])
        phases = self.phases()
        after = phases.start_ns >= last
        after &= np.isin(phases.name, phases.name[~after])  # not what follows the training
        return int(phases.end_ns[after].max(initial=last))

    def phases_called(self, trace: Trace, names: tuple[str, ...]) -> np.ndarray:
        """Which of the phases have one of these names, in any case."""
        return called(trace.names, self.phases().name, lambda name: name.lower() in names)


def rows_of(spans: Spans, chosen: np.ndarray) -> Spans:
    columns = (spans.start_ns, spans.end_ns, spans.name, spans.thread, spans.depth)
    return Spans(*(column[chosen] for column in columns))
