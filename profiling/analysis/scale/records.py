"""What a step takes on more GPUs: the records of `python -m profiling scale`.

Made by profiling.analysis.scale.prediction, told by profiling.report.scale. The JSON is these
records field by field (docs/report-schema.md). What was not measured is None; what was assumed is
in `assumed`, in words.
"""

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1
Mode = Literal["one", "ddp", "fsdp", "hsdp"]  # one: a GPU alone
AllReduce = Literal["collective", "copies"]  # how ddp averages: the trainer's key
ReduceDtype = Literal["float32", "bfloat16"]  # likewise, of gradients whose update GPUs share
Source = Literal["measured", "given", "assumed"]
# host: it needs longer to launch a step than the GPUs for all of it; else what most of the
# communication that stands alone is made of; compute: that is less than 1 %
Limit = Literal["compute", "link", "network", "latency", "host"]


@dataclass(frozen=True)
class StepParts:
    """Milliseconds of one GPU's step. A micro-step is a forward and a backward pass."""

    step_ms: float  # without a profiler, where the manifest tells it
    micro_steps: int
    forward_ms: float  # of a micro-step, until its backward begins
    backward_ms: float
    block_forward_ms: float  # of a transformer block
    block_backward_ms: float
    head_backward_ms: float  # until the gradients of the last block begin
    update_ms: float  # kernels of the optimizer
    blocks_from: Literal["kernels", "arithmetic"]  # where a block begins and ends: who tells it
    # of backward, at its end: the embedding's dense gradient, not made where its rows travel; None:
    # no kernel says where it begins
    embedding_backward_ms: float | None = None
    squares_ms: float | None = None  # of the update, for the norm; None: no kernel's name tells

    @property
    def rest_ms(self) -> float:
        """Of the step, what is neither forward nor backward: the update, waits, batches."""
        return self.step_ms - self.micro_steps * (self.forward_ms + self.backward_ms)


@dataclass(frozen=True)
class ModelFacts:
    parameters: int
    blocks: int
    block_parameters: int
    last_bucket_bytes: int  # of ddp: complete when backward ends, so nothing hides it
    rows_last_bucket_bytes: int  # likewise, where the embedding's rows travel: without the table


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
    """By how much compute is longer while a collective runs beside it, or copies do."""

    percent: float  # 100: it gets half as much done
    source: Source


@dataclass(frozen=True)
class HostTime:
    """What the host takes to launch a step of fsdp or hsdp, which have no CUDA graphs."""

    step_ms: float
    low_step_ms: float  # at best
    source: Source


@dataclass(frozen=True)
class GpuMemory:
    """Bytes on each GPU; `gathered`: weights and gradients of the moment, whole, or what copies of
    gradients come to."""

    weights: int
    gradients: int
    moments: int
    gathered: int
    activations: int | None  # and all else, as the run had it; None: not measured

    @property
    def known(self) -> int:
        parts = (self.weights, self.gradients, self.moments, self.gathered)
        return sum(parts) + (self.activations or 0)


@dataclass(frozen=True)
class Prediction:
    """A step on so many GPUs; each has the work of the one that was measured."""

    gpus: int
    nodes: int
    mode: Mode
    step_ms: float
    fastest_ms: float  # with links at their high speed and the host at its best
    slowest_ms: float  # with links at their low speed
    tokens_per_s: float  # of all GPUs
    efficiency_percent: float  # of so many times one GPU
    exposed_ms: float  # communication that no compute hides
    communication_ms: float
    sent_bytes: int  # by each GPU, a step
    limited_by: Limit
    memory: GpuMemory
    fits: bool | None  # into the GPU's memory; None: not known
    all_reduce: AllReduce | None  # of ddp, by copies inside of a node alone; None: not ddp
    embedding_rows: bool  # ddp: the embedding's part of the tied gradient travels as rows
    shard_update: bool  # ddp: each GPU updates its part of the blocks' matrices: the trainer's key
    reduce_dtype: ReduceDtype | None  # of shard_update, in which their gradients are sent


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
    tokens: int  # of a step on each GPU
    bucket_mb: float
    model: ModelFacts
    measured: StepParts
    link: LinkSpeed | None  # between the GPUs of a node; None: no row needs it
    network: LinkSpeed | None  # between nodes, likewise
    slowdown: Slowdown  # beside collectives
    slowdown_beside_copies: Slowdown | None  # None: nothing is averaged by copies
    host: HostTime
    predictions: list[Prediction]
    choices: list[Choice]  # one for each number of GPUs
    assumed: list[str]
