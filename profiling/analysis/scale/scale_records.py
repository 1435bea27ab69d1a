"""Records of `python -m profiling scale`: how long a step takes on more GPUs.

profiling.analysis.scale.prediction makes them and profiling.report.scale renders them. The JSON is
these records field by field (docs/report-schema.md). What was not measured is None; what was
assumed is in `assumed`, in words.
"""

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1
Mode = Literal["one", "ddp", "fsdp", "hsdp"]  # one: a single GPU
AllReduce = Literal["collective", "copies"]  # the trainer's key: how ddp averages gradients
ReduceDtype = Literal["float32", "bfloat16"]  # likewise, for gradients whose update GPUs share
Source = Literal["measured", "given", "assumed"]
# host: it takes longer to launch a step than the GPUs take to run it; compute: less than 1 % of the
# step is exposed communication; otherwise what most of the communication's time is spent on
Limit = Literal["compute", "link", "network", "latency", "host"]


@dataclass(frozen=True)
class StepParts:
    """Parts of one GPU's step in ms. A micro-step is a forward and a backward pass."""

    step_ms: float  # without a profiler, where the manifest has that time
    micro_steps: int
    forward_ms: float  # of a micro-step, until its backward begins
    backward_ms: float  # of a micro-step
    block_forward_ms: float  # of one transformer block
    block_backward_ms: float  # of one transformer block
    head_backward_ms: float  # from the start of backward until the last block's gradients begin
    update_ms: float  # kernels of the optimizer
    blocks_from: Literal["kernels", "arithmetic"]  # source of the times of a block
    # the end of backward that computes the embedding's dense gradient, which is not computed where
    # the embedding's rows travel; None: no kernel shows where it begins
    embedding_backward_ms: float | None = None
    # the part of the update that sums squares for the norm; None: no kernel's name shows it
    squares_ms: float | None = None

    @property
    def rest_ms(self) -> float:
        """Time of the step outside of forward and backward: the update, waits, batches."""
        return self.step_ms - self.micro_steps * (self.forward_ms + self.backward_ms)


@dataclass(frozen=True)
class ModelFacts:
    parameters: int
    blocks: int
    block_parameters: int
    last_bucket_bytes: int  # ddp's last bucket: complete when backward ends, so nothing hides it
    rows_last_bucket_bytes: int  # likewise where the embedding's rows travel, without the table


@dataclass(frozen=True)
class LinkSpeed:
    """Bus bandwidth that collectives reach, in GB/s of a GPU, each way."""

    gb_per_s: float
    low_gb_per_s: float
    high_gb_per_s: float
    source: Source
    why: str


@dataclass(frozen=True)
class Slowdown:
    """Slowdown of compute while a collective, or copies, run beside it."""

    percent: float  # 100: it gets half as much done
    source: Source


@dataclass(frozen=True)
class HostTime:
    """Time in which the host launches a step of fsdp or hsdp, which have no CUDA graphs."""

    step_ms: float
    low_step_ms: float  # at best
    source: Source


@dataclass(frozen=True)
class GpuMemory:
    """Bytes on each GPU.

    `gathered` are the whole weights and gradients that fsdp and hsdp hold for a moment, or, with
    all_reduce=copies, the place that receives gradients.
    """

    weights: int
    gradients: int
    moments: int
    gathered: int
    activations: int | None  # and everything else in the measured run; None: not measured

    @property
    def known(self) -> int:
        parts = (self.weights, self.gradients, self.moments, self.gathered)
        return sum(parts) + (self.activations or 0)


@dataclass(frozen=True)
class Prediction:
    """A step on `gpus` GPUs, each with the work of the one that was measured."""

    gpus: int
    nodes: int
    mode: Mode
    step_ms: float
    fastest_ms: float  # with links at their high speed and the host at its best
    slowest_ms: float  # with links at their low speed and GPUs at their power limits
    tokens_per_s: float  # of all GPUs together
    efficiency_percent: float  # share of `gpus` times the throughput of one GPU
    exposed_ms: float  # communication that no compute hides
    communication_ms: float
    sent_bytes: int  # by each GPU in a step
    limited_by: Limit
    memory: GpuMemory
    fits: bool | None  # whether it fits into the GPU's memory; None: not known
    all_reduce: AllReduce | None  # of ddp; copies are for a single node; None: not ddp
    embedding_rows: bool  # ddp: the embedding's part of the tied gradient travels as rows
    shard_update: bool  # ddp: each GPU updates its part of the blocks' matrices: the trainer's key
    reduce_dtype: ReduceDtype | None  # in which the gradients of shard_update are sent


@dataclass(frozen=True)
class Choice:
    gpus: int
    mode: Mode
    why: str


@dataclass(frozen=True)
class Scale:
    schema_version: int
    file: str
    gpu: str | None
    memory_bytes: int | None  # of that GPU
    gpus_per_node: int
    tokens: int  # in a step on each GPU
    bucket_mb: float
    model: ModelFacts
    measured: StepParts
    link: LinkSpeed | None  # between the GPUs of a node; None: no row needs it
    network: LinkSpeed | None  # between nodes, likewise
    slowdown: Slowdown  # of compute beside collectives
    slowdown_beside_copies: Slowdown | None  # None: nothing is averaged by copies
    host: HostTime
    predictions: list[Prediction]
    choices: list[Choice]  # one for each number of GPUs
    assumed: list[str]
