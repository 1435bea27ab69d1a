"""Samples of Python's stack, as `run` adds them to a trace of torch.profiler."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class PythonSamples:
    """Stacks of the thread that trains, at some times of a window."""

    pid: int = -1
    tid: int = -1  # of the thread, as the system has it
    names: list[str] = field(default_factory=list)  # of functions, as torch.profiler has them
    stacks: list[list[int]] = field(default_factory=list)  # places in `names`, outermost first
    times_ns: list[int] = field(default_factory=list)  # since 1970
    stack: list[int] = field(default_factory=list)  # place in `stacks`, for each of the times
