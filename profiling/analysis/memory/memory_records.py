"""Records of the report on a memory snapshot. docs/report-schema.md describes them field by
field."""

from dataclasses import dataclass, field, fields
from typing import Literal

SCHEMA_VERSION = 1
MOST_TAKEN = 20 << 20  # bytes; for a block the allocator takes no larger multiple from the GPU
# out_of_memory: the GPU had no more; leak: some lines keep more with each step; fragmented: more
# was taken from the GPU while much of what was reserved lay free between blocks; peak: none of
# these; state: there is no history, so that the peak is not known
Answer = Literal["out_of_memory", "leak", "fragmented", "peak", "state"]

# source: the class was read there; call: the source is not at hand, so that the line stands for it;
# none: the stack is of no module, or there is none
ToldBy = Literal["source", "call", "none"]


@dataclass(frozen=True)
class Place:
    """A line of Python, or why none is known."""

    line: str | None  # FILE:LINE
    function: str  # without a line, what stands for it: threads of autograd, or no stack
    own: bool  # of the user's code; else the innermost line of a library


@dataclass(frozen=True)
class Moment:
    """A moment of the history, and how much there was."""

    event: int | None  # number in the device's trace; None: the end, without a history
    ms: float | None  # since the first event
    phase: str | None  # forward, backward, optimizer
    step: int | None  # number of the step in the history, from 0
    allocated_bytes: int
    reserved_bytes: int
    inactive_bytes: int  # reserved and not allocated: cached, or of no use in pieces


@dataclass(frozen=True)
class KindBytes:
    """Bytes of one kind; the kinds add up to the allocated bytes."""

    kind: str
    bytes: int
    allocations: int
    percent: float  # of the allocated bytes


@dataclass(frozen=True)
class LineBytes:
    """Bytes from one line."""

    place: Place
    kind: str  # the one with the most bytes
    bytes: int
    allocations: int
    percent: float


@dataclass(frozen=True)
class ModuleBytes:
    """Bytes from one module."""

    module: str  # CLASS of FILE, or called at FILE:LINE, or made; behind it torch.nn's in it
    told_by: ToldBy
    kind: str  # the one with the most bytes
    bytes: int
    allocations: int
    percent: float


@dataclass(frozen=True)
class Allocation:
    """Blocks of one size and stack."""

    blocks: int
    bytes: int  # of each
    kind: str
    place: Place
    stack: list[str]  # FILE:LINE in FUNCTION, the innermost first; Python alone


@dataclass(frozen=True)
class PhaseBytes:
    """One part of the steps: the most that was allocated in it."""

    phase: str
    peak_bytes: int
    rise_bytes: int  # the most that was added within one occurrence


@dataclass(frozen=True)
class Step:
    """One step of the history."""

    step: int
    ms: float | None  # at its end, since the first event
    event: int  # at its end
    peak_bytes: int
    end_bytes: int


@dataclass(frozen=True)
class Leak:
    """A line that keeps more with each step."""

    place: Place
    kind: str
    bytes_per_step: int  # median
    steps: int  # in which it grew, one after the other
    bytes_at_end: int


@dataclass(frozen=True)
class Pinned:
    """A line whose blocks keep segments from being used or given back, at the tightest moment."""

    place: Place
    bytes: int  # of its blocks there
    inactive_bytes: int  # beside them
    segments: int


@dataclass(frozen=True)
class OutOfMemory:
    """The allocation that failed."""

    asked_bytes: int
    place: Place
    gpu_free_bytes: int | None  # that the GPU had left outside the allocator
    largest_free_bytes: int  # largest piece that was reserved and free
    frees: list[Allocation]  # these would have sufficed; at most three
    enough: bool  # whether they would
    assumed: str

    @property
    def is_limited(self) -> bool:
        """Whether the GPU had enough left, so that a limit of the process kept it away."""
        taken = -(-self.asked_bytes // MOST_TAKEN) * MOST_TAKEN
        return self.gpu_free_bytes is not None and self.gpu_free_bytes >= taken


@dataclass(frozen=True)
class Curve:
    """The history, in at most some thousand points; peaks are kept."""

    ms: list[float] | None  # since the first event; None: no times were written
    event: list[int]
    allocated_bytes: list[int]
    reserved_bytes: list[int]


@dataclass(frozen=True)
class DevicePeak:
    """The peak of one GPU, in one file."""

    file: str
    device: int
    rank: int | None
    peak_bytes: int | None
    reserved_bytes: int | None
    phase: str | None
    answer: Answer


@dataclass(frozen=True)
class Plan:
    """Changes of a program that are made at once; None: as recorded."""

    batch: int | None = None
    context: int | None = None
    layers: int | None = None
    checkpointing: bool = False  # blocks keep their inputs, and are computed again
    moments: bool = False  # in bfloat16
    zero1: int | None = None  # ranks that share the moments
    fsdp: int | None = None  # ranks that share weights, gradients and moments

    @property
    def text(self) -> str:
        words = {
            "checkpointing": "blocks computed again in backward",
            "moments": "moments in bfloat16",
            "zero1": f"moments shared by {self.zero1} ranks (ZeRO-1)",
            "fsdp": f"whole state shared by {self.fsdp} ranks (fsdp)",
        }
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        parts = [words.get(name, f"{name} {value}") for name, value in given.items() if value]
        return ", ".join(parts) or "as recorded"


@dataclass(frozen=True)
class Largest:
    """Largest value of a key that fits on the GPU."""

    key: str  # batch, context, layers
    now: int | None  # in the snapshot
    fits: int | None  # up to this one it fits; 0: none does
    may_fit: int | None  # beyond this one it does not
    peak_bytes: int | None  # expected with `fits`
    assumes: str  # or why it cannot be told


@dataclass(frozen=True)
class Predicted:
    """A peak as it would be after a change."""

    change: str
    peak_bytes: int | None  # expected; None: it cannot be told
    least_bytes: int | None
    most_bytes: int | None
    phase: str | None  # in which it would be reached
    fits: bool | None  # None: not known
    assumes: str  # or why it cannot be told


@dataclass(frozen=True)
class Fit:
    """Sizes that would fit on the GPU, by the allocations of the snapshot."""

    sentence: str
    memory_bytes: int | None  # of the GPU; None: not known
    largest: list[Largest]
    predicted: list[Predicted]


@dataclass(frozen=True)
class MemoryReport:
    """Report on a GPU's memory: the peak, what lay there, and what put it there."""

    file: str
    device: int
    answer: Answer
    sentence: str
    peak: Moment | None  # None: no history
    reaches_back: bool  # the history has all events of the program, so this is its peak
    at: Moment  # the moment that the tables are about: the peak, the failure, the end
    tightest: Moment  # when the allocator took the last large segment from the GPU, or else `at`
    # free then between blocks of other segments, and more than was asked for; 0: not as much
    stranded_bytes: int
    kinds: list[KindBytes]
    lines: list[LineBytes]
    modules: list[ModuleBytes]
    largest: list[Allocation]
    phases: list[PhaseBytes]
    steps: list[Step]
    steps_from: str | None  # how the steps are known
    leaks: list[Leak]
    pinned: list[Pinned]
    out_of_memory: OutOfMemory | None
    curve: Curve | None
    events: int
    notes: list[str]
    devices: list[DevicePeak]  # of all files and devices that were given
    fit: Fit | None  # None: it was not asked for
    schema_version: int = field(default=SCHEMA_VERSION, kw_only=True)


# less, more: of the candidate's peak; equal: within the tolerance; cannot_tell: a peak is not known
Verdict = Literal["less", "more", "equal", "cannot_tell"]


@dataclass(frozen=True)
class Side:
    """One of the snapshots that are compared."""

    file: str
    device: int
    answer: Answer
    peak_bytes: int | None
    reserved_bytes: int
    sure: bool  # whether the history has the peak of a step
    sentence: str


@dataclass(frozen=True)
class Change:
    """A kind or a line, and what lay there at the peak on both sides."""

    name: str
    baseline_bytes: int
    candidate_bytes: int
    change_bytes: int


@dataclass(frozen=True)
class MemoryComparison:
    """The difference of two peaks."""

    verdict: Verdict
    sentence: str
    why: str | None  # why that cannot be told
    ratio: float | None  # candidate / baseline
    equal_within_percent: float
    baseline: Side
    candidate: Side
    kinds: list[Change]
    lines: list[Change]
    schema_version: int = field(default=SCHEMA_VERSION, kw_only=True)
