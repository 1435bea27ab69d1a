"""Records of the lab's measurements, which verbs print and write as JSON. No torch, no numpy."""

from dataclasses import dataclass, replace
from typing import Literal

from configs import backends

COMPILE = replace(
    backends.BACKENDS["slow"],
    name="compile",
    meaning="torch.compile of slow",
    dropout_on_cpu="compile",
    colour="attention",
)
Status = Literal["ok", "refused", "out_of_memory"]
BACKENDS = backends.BACKENDS | {COMPILE.name: COMPILE}  # those of the model, and the lab's own


@dataclass(frozen=True)
class LaunchCount:
    """A kernel (on a CPU an operator) and how many times one call launches it."""

    name: str
    count: int


@dataclass(frozen=True)
class Attempt:
    """A backend at a shape, and how the measurement went."""

    backend: str  # of BACKENDS
    direction: str  # forward, backward; for one that failed also both
    batch: int
    heads: int
    seq: int
    head_dim: int
    dtype: str
    dropout: float
    status: Status
    reason: str | None  # why nothing was measured


@dataclass(frozen=True)
class Timing:
    """Statistics of the samples of one call, in milliseconds.

    `ci95_ms` encloses the median with 95 % confidence by order statistics, if samples are
    independent. `launch_ms` is the host's shortest time to queue the call, None on a CPU. `stable`
    says that the warm-up ended because times had become stable, `precise` that the interval became
    as narrow as asked.
    """

    median_ms: float
    quartiles_ms: tuple[float, float]
    ci95_ms: tuple[float, float]
    samples: int
    launch_ms: float | None
    stable: bool
    precise: bool


@dataclass(frozen=True)
class Measurement(Timing, Attempt):
    """A successful attempt. A value that this device or PyTorch does not provide is None."""

    flops: int  # these three are the function's own need, the same for all backends
    bytes: int
    flops_per_byte: float
    tflops: float  # a second
    percent_of_peak: float | None
    gbps: float
    percent_of_bandwidth: float | None
    percent_of_roof: float | None  # the nearer of the two limits
    peak_memory_bytes: int | None  # above the inputs
    max_abs_error: float | None  # against float64
    relative_error: float | None
    kernels: list[LaunchCount] | None
    kernels_missing: str | None  # why the kernels are not known
    ran: str | None  # the backend whose kernels ran, or unfused
    note: str | None  # where another backend ran than `backend` says


@dataclass(frozen=True, kw_only=True)
class AttentionResults:
    """All attempts, with what they share."""

    kind: Literal["attention"] = "attention"
    device: str
    torch: str
    dtype: str
    dropout: float
    heads: int
    head_dim: int
    tokens: int | None  # tokens in a call, or None if the batch was given
    backward: bool
    peak_tflops: float | None  # from the data sheet, as the next
    peak_gbps: float | None
    empty_launch_ms: float | None
    l2_flushed: bool
    rows: list[Attempt]

    @property
    def measurements(self) -> list[Measurement]:
        """The successful attempts."""
        return [row for row in self.rows if isinstance(row, Measurement)]


@dataclass(frozen=True)
class Variant:
    """A way to square a matrix; by itself one that could not be timed here, and why."""

    name: str
    bytes: int  # size of the matrix
    median_ms: float | None
    result: str | None  # exact, or how far off it is
    missing: str | None  # what it lacks, or what is wrong


@dataclass(frozen=True)
class TimedVariant(Variant):
    median_ms: float
    quartiles_ms: tuple[float, float]
    ci95_ms: tuple[float, float]
    samples: int
    launch_ms: float | None
    gbps: float
    percent_of_copy: float


@dataclass(frozen=True, kw_only=True)
class SquareResults:
    kind: Literal["square"] = "square"
    device: str
    torch: str
    dtype: str
    peak_gbps: float | None
    empty_launch_ms: float | None
    l2_flushed: bool
    rows: list[Variant]


@dataclass(frozen=True)
class KernelTiming:
    """Times of an operation of kernels=fused in one way and direction; None where not measured."""

    operation: str
    way: str  # eager, compile or fused
    direction: str  # forward, backward, or both where neither ran
    median_ms: float | None = None
    ci95_ms: tuple[float, float] | None = None
    samples: int | None = None
    bytes: int | None = None  # bytes that it has to read and write, each tensor once
    gbps: float | None = None  # bandwidth for these bytes
    relative_error: float | None = None  # the largest, of outputs and gradients, against float64
    missing: str | None = None  # why there is no time


@dataclass(frozen=True, kw_only=True)
class KernelResults:
    kind: Literal["kernels"] = "kernels"
    device: str
    torch: str
    dtype: str
    tokens: int
    width: int
    vocabulary: int
    dropout: float
    peak_gbps: float | None
    empty_launch_ms: float | None
    l2_flushed: bool
    rows: list[KernelTiming]


@dataclass(frozen=True)
class Rate:
    what: str
    unit: str
    measured: float
    uncertainty_percent: float
    nominal: float | None  # the data sheet's
    percent_of_nominal: float | None


@dataclass(frozen=True)
class Ridge:
    """FLOP per byte above which arithmetic, no longer memory, is the limit."""

    measured: float | None
    nominal: float | None


@dataclass(frozen=True)
class DeviceResults:
    """Facts that the driver states about a device, and its measured rates; None if unknown here."""

    torch: str
    device: str
    capability: str | None
    multiprocessors: int | None
    l2_bytes: int | None
    memory_bytes: int | None
    sm_clock_mhz: int | None  # the highest, as the next
    memory_clock_mhz: int | None
    bandwidth: Rate
    products: dict[str, Rate]  # by dtype
    empty_launch_ms: float | None
    empty_launch_host_ms: float | None
    ridge_flops_per_byte: dict[str, Ridge]  # by dtype
