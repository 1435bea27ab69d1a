"""The manifest beside each capture: the window, the run, and the cost of capturing.

Written by profiling.recording.window inside the training process, read by timeline.opening.
A field that an older trainer did not write yet is None.
"""

from dataclasses import dataclass, field
from statistics import fmean
from typing import Annotated

import msgspec

from profiling.shared.json_records import JsonObject
from profiling.shared.model_description import ModelDescription, Size, from_keys

SCHEMA_VERSION = 1
LONG = 1.5  # a step's time over the median
FEW = 0.1  # of the steps: so few long ones are not how the program runs
# Ranges of values that a run can have; reading a manifest refuses others (records.read_json)
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Milliseconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Cores = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
Percent = Annotated[float, msgspec.Meta(gt=-100, le=1e6)]


@dataclass(frozen=True)
class CapturedWindow:
    """The iterations in the window, and how the window ended."""

    first_iteration: Count | None = None
    last_iteration: Count | None = None  # None if no iteration was complete
    steps: Count | None = None
    steps_asked: Count | None = None
    moved_from: Count | None = (
        None  # the first iteration asked for, if an evaluation was in the way
    )
    complete: bool | None = None
    ended_by: str | None = None  # why it ended before its time
    errors: list[str] = field(default_factory=list)  # the recorder's


@dataclass(frozen=True)
class Laps:
    """Step times in milliseconds."""

    median: Milliseconds
    laps: list[Milliseconds] = field(default_factory=list)

    @property
    def long(self) -> list[int]:
        """Places of the steps that take far longer than the median."""
        return [at for at, ms in enumerate(self.laps) if ms > LONG * self.median]

    @property
    def in_bursts(self) -> bool:
        """Whether long steps come again and again, so that the median is no step's time.

        Workers of a loader that end at about the same time give one long step, and then short ones.
        Both halves must have them, as a warm-up has not, and the longest is no proof: it may be a
        pause of the machine.
        """
        half = (len(self.laps) - 1) // 2
        if half < 1 or len(self.long) <= max(1, FEW * len(self.laps)):
            return False
        longest = self.laps.index(max(self.laps))
        others = self.laps[:longest] + self.laps[longest + 1 :]
        return min(fmean(others[:half]), fmean(others[half:])) > LONG * self.median

    @property
    def mean_of_bursts(self) -> float:
        """The mean from behind the first long step to the last one, so of whole bursts."""
        long = self.long
        return fmean(self.laps[long[0] + 1 : long[-1] + 1] if len(long) > 1 else self.laps)


@dataclass(frozen=True)
class WindowSteps:
    """Step times before, inside and after the window, each None if there were none."""

    before: Laps | None = None
    captured: Laps | None = None
    after: Laps | None = None

    @property
    def bursts(self) -> list[Laps]:
        """The sides of the window whose steps come in bursts."""
        return [laps for laps in self.sides if laps.in_bursts]

    @property
    def sides(self) -> list[Laps]:
        return [laps for laps in (self.before, self.after) if laps]

    @property
    def free_ms(self) -> float | None:
        """Step time without a profiler: the mean of the medians before and after the window.

        Of bursts, their mean; a faster side without them had batches in store, and does not count.
        """
        least = min((laps.mean_of_bursts for laps in self.bursts), default=0.0)
        times = [laps.mean_of_bursts if laps.in_bursts else laps.median for laps in self.sides]
        return fmean(ms for ms in times if ms >= least) if times else None

    @property
    def overhead_percent(self) -> float | None:
        """Percentage by which captured steps are longer than free ones, or None if unknown."""
        free_ms, captured = self.free_ms, self.captured
        if not free_ms or captured is None:
            return None
        captured_ms = captured.mean_of_bursts if self.bursts and captured.laps else captured.median
        return (captured_ms / free_ms - 1) * 100


@dataclass(frozen=True)
class CompileCounts:
    """Counts of what torch.compile did while the window was open; both are 0 if all is well."""

    graphs: Count = 0
    graph_breaks: Count = 0


@dataclass(frozen=True)
class AttentionFacts:
    """The attention backend that was requested, the one that ran, and how that is known."""

    requested: str
    ran: str | None  # None if it could not be seen
    evidence: str


@dataclass(frozen=True)
class CompileFacts:
    compile: bool
    cuda_graphs: bool
    graphs: Count
    graph_breaks: Count
    compile_s: Seconds | None
    capture_s: Seconds | None  # time to capture the CUDA graphs


@dataclass(frozen=True)
class ProcessUse:
    """CPU and memory that the process used while the window was open."""

    cores_used: Cores | None = None  # CPU time of all its threads over wall time
    compute_threads: Count | None = None  # threads that PyTorch splits an operator over
    memory_bytes: Count | None = None  # resident, at the window's end


@dataclass(frozen=True)
class Manifest:
    schema_version: int
    kind: str  # nsys | torch | memory
    window: CapturedWindow
    step_ms: WindowSteps = WindowSteps()
    overhead_percent: Percent | None = None  # by the trainer; readers ask step_ms where it is None
    backward_on_calling_thread: bool | None = None
    compiled_inside: CompileCounts = CompileCounts()
    return_codes: dict[str, int] | None = None  # of cudaProfilerStart and Stop, for nsys
    nsys_attached: bool | None = None
    files: list[str] = field(default_factory=list)
    rank: Count = 0
    world_size: Size = 1
    device: str | None = None
    vocab_size: Size | None = None
    process: ProcessUse | None = None
    attention: AttentionFacts | None = None
    compile: CompileFacts | None = None
    environment: JsonObject | None = None
    config: JsonObject | None = None
    model: ModelDescription | None = None

    def described_model(self) -> ModelDescription:
        """The model of the run; of a run that did not describe it, the GPT-2 that its keys define.

        Raises ValueError with a sentence where neither is known, or the work of a step is not.
        """
        model = self.model or from_keys(self.config or {}, self.vocab_size)
        if model.unknown:
            raise ValueError(
                f"the work of the model's MLP is not known: {', '.join(model.unknown)}"
            )
        return model
