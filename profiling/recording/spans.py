"""Named ranges of the training loop: NVTX, and record_function while torch.profiler records.

train.py opens them as `with spans.phase("forward"):`, sample.py those of its tokens. All are in the
NVTX domain "nanogpt", and carry the step's number as payload. They go around a compiled call, never
inside one.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from torch.profiler import record_function

DOMAIN = "nanogpt"
NOTHING = nullcontext()

ITERATION_COLOR = 0xFF9E9E9E
LAYER_COLOR = 0xFF607D8B
PHASE_COLORS = {
    "data": 0xFF8D6E63,
    "forward": 0xFF1E88E5,
    "backward": 0xFFE53935,
    "gradient_sync": 0xFF8E24AA,
    "optimizer": 0xFF43A047,
    "clip": 0xFF9CCC65,
    "evaluate": 0xFFFDD835,
    "checkpoint": 0xFFFB8C00,
    "log": 0xFFBDBDBD,
    "prefill": 0xFF1E88E5,
    "decode": 0xFF43A047,
    "read": 0xFFBDBDBD,
}


class Range:
    """A named range, as a context manager that can be entered many times, but not inside itself."""

    __slots__ = ("spans", "name", "attributes", "function")

    def __init__(self, spans: "Spans", name: str, color: int):
        self.spans, self.name = spans, name
        # None if no tool listens: nvtx then gives a domain that does nothing
        self.attributes = spans.domain.get_event_attributes(name, color=color, payload=0)
        self.function: record_function | None = None

    def __enter__(self) -> None:
        spans = self.spans
        if self.attributes is not None:
            self.attributes.payload = spans.now
            spans.domain.push_range(self.attributes)
        if spans.recording:
            self.function = record_function(self.name)
            self.function.__enter__()
        spans.open.append(self)

    def __exit__(self, *_: object) -> None:
        spans = self.spans
        while True:  # an exception in backward leaves the ranges of layers open
            inner = spans.open.pop()
            if inner.function is not None:
                inner.function.__exit__(None, None, None)
                inner.function = None
            if inner.attributes is not None:
                spans.domain.pop_range()
            if inner is self:
                return


@dataclass
class Spans:
    """The ranges of one process."""

    step: str = "iteration"  # what a step is called
    now: int = 0  # the current iteration, the ranges' payload; the loop sets it
    recording: bool = False  # whether torch.profiler is to see the ranges too
    open: list[Range] = field(default_factory=list)
    micro_steps: list[Range] = field(default_factory=list)

    def __post_init__(self) -> None:
        import nvtx  # here, as a run without a profile opens no ranges

        self.domain = nvtx.get_domain(DOMAIN)
        self.phases = {name: Range(self, name, color) for name, color in PHASE_COLORS.items()}

    def iteration(self, number: int) -> AbstractContextManager[None]:
        return Range(self, f"{self.step} {number}", ITERATION_COLOR)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """The range of a phase; `name` is a key of PHASE_COLORS."""
        return self.phases[name]

    def micro_step(self, number: int, of: int) -> AbstractContextManager[None]:
        """The range of data, forward and backward of one micro-batch; nothing if `of`, the number
        of micro-steps in an iteration, is 1."""
        if of == 1:
            return NOTHING
        while len(self.micro_steps) <= number:
            name = f"micro_step {len(self.micro_steps)}"
            self.micro_steps.append(Range(self, name, ITERATION_COLOR))
        return self.micro_steps[number]

    def layer(self, name: str) -> Range:
        return Range(self, name, LAYER_COLOR)


@dataclass
class NoSpans:
    """Stands in for Spans in a run that is not profiled; a window on request wakes the ranges."""

    now: int = 0
    awake: Spans | None = None  # the ranges while there is such a window

    def wake(self) -> Spans:
        self.awake = self.awake or Spans(now=self.now)
        return self.awake

    def sleep(self) -> None:
        self.awake = None

    def iteration(self, number: int) -> AbstractContextManager[None]:
        return NOTHING if self.awake is None else self.awake.iteration(number)

    def phase(self, name: str) -> AbstractContextManager[None]:
        if self.awake is None:
            return NOTHING
        self.awake.now = self.now
        return self.awake.phase(name)

    def micro_step(self, number: int, of: int) -> AbstractContextManager[None]:
        return NOTHING if self.awake is None else self.awake.micro_step(number, of)


def spans_for(kind: str) -> Spans | NoSpans:
    return NoSpans() if kind == "none" else Spans()
