"""The manifest beside each capture: what was captured, of what run, and what capturing cost.

Written by profiling.capture.window inside the training process, read by profiling.timeline.opening.
What an older trainer did not write yet is None.
"""

from dataclasses import dataclass, field

from profiling.records import JsonObject

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class CapturedWindow:
    """Which iterations lie in the window."""

    first_iteration: int | None = None
    last_iteration: int | None = None  # None: not one was whole
    steps: int | None = None
    steps_asked: int | None = None
    moved_from: int | None = None  # where it was asked for, if an evaluation would have been inside
    complete: bool | None = None
    ended_by: str | None = None  # why before its time
    errors: list[str] = field(default_factory=list)  # of the recorder


@dataclass(frozen=True)
class Laps:
    """Step times in milliseconds."""

    median: float
    laps: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class WindowSteps:
    """Step times around and inside the window; None: there were none."""

    before: Laps | None = None
    captured: Laps | None = None
    after: Laps | None = None


@dataclass(frozen=True)
class CompileCounts:
    """What torch.compile did while the window was open: nothing, if all is well."""

    graphs: int = 0
    graph_breaks: int = 0


@dataclass(frozen=True)
class AttentionFacts:
    """What attention=KEY came to, and how that is known."""

    requested: str
    ran: str | None  # None: it could not be seen
    evidence: str


@dataclass(frozen=True)
class CompileFacts:
    compile: bool
    cuda_graphs: bool
    graphs: int
    graph_breaks: int
    compile_s: float | None
    capture_s: float | None  # of the CUDA graphs


@dataclass(frozen=True)
class Manifest:
    schema_version: int
    kind: str  # nsys | torch | memory
    window: CapturedWindow
    step_ms: WindowSteps = WindowSteps()
    overhead_percent: float | None = None  # by which captured steps are longer than those around
    backward_on_calling_thread: bool | None = None
    compiled_inside: CompileCounts = CompileCounts()
    return_codes: dict[str, int] | None = None  # nsys: of cudaProfilerStart and Stop
    nsys_attached: bool | None = None
    files: list[str] = field(default_factory=list)
    rank: int = 0
    world_size: int = 1
    device: str | None = None
    vocab_size: int | None = None
    attention: AttentionFacts | None = None
    compile: CompileFacts | None = None
    environment: JsonObject | None = None
    config: JsonObject | None = None
