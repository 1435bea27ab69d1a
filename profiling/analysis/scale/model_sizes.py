"""What a GPT of the trainer's has to send: its parameters in the order of their gradients.

Read off the keys of a manifest; tests hold it against model.GPT.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec

from profiling.manifest import Manifest
from profiling.shared_update import has_equal_parts
from profiling.travel import Travel, decide_travel

Count = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Keys:
    """What is read of a run's configuration."""

    n_layer: Count
    n_embd: Count
    block_size: Count
    batch_size: Count
    bias: bool = False
    positions: str = "learned"
    dtype: str = "bfloat16"
    kernels: str = "compiled"
    bucket_mb: Annotated[float, msgspec.Meta(ge=1)] = 25.0
    gradient_accumulation_steps: Count = 1
    compile: bool = True
    compile_scope: str = "block"
    dropout: float = 0.0
    residual_dtype: str = "float32"
    parallel: str = "ddp"
    optimizer: str = "adamw"
    cuda_graphs: bool | str = "true"

    @property
    def gradients_in_buckets(self) -> bool:
        """Whether products write them where ddp sends them from: training.replicas. In float32
        kernels.linear copies them there."""
        return self.kernels == "fused" and not self.compile and self.dtype != "float32"

    @property
    def replays_graphs(self) -> bool:
        return self.cuda_graphs in (True, "true")


@dataclass(frozen=True)
class ModelSizes:
    """Numbers of parameters, tensor by tensor, the first gradient first."""

    head: tuple[int, ...]  # the last norm: the head's own weight is the embedding's
    block: tuple[int, ...]
    blocks: int
    positions: tuple[int, ...]  # if they are learned
    table: int  # embedding and head: its gradient is complete last, or first where rows travel
    block_share: float  # of the arithmetic, all blocks together
    travel_bytes: int  # of a block's weight between ranks that share the model
    travel: Travel
    matrices: tuple[int, ...]  # of a block: those of its parameters that ranks can share

    @property
    def parameters(self) -> int:
        return self.root_parameters + self.blocks * self.block_parameters

    @property
    def block_parameters(self) -> int:
        return sum(self.block)

    @property
    def block_bytes(self) -> int:
        """Of its weights, as they travel."""
        return self.travel_bytes * self.block_parameters

    def tensors(self, rows: bool) -> list[int]:
        """All, in the order of their gradients. `rows`: those of the embedding travel."""
        blocks = self.block * self.blocks
        if rows:
            return [self.table, *self.head, *blocks, *self.positions]
        return [*self.head, *blocks, *self.positions, self.table]

    @property
    def root_parameters(self) -> int:
        """Outside of the blocks."""
        return sum(self.head) + sum(self.positions) + self.table

    @property
    def matrices_only(self) -> "ModelSizes":
        """Of these alone; ddp is to average no others where ranks share the update."""
        return replace(self, head=(), block=self.matrices, positions=())


@dataclass(frozen=True)
class EmbeddingRows:
    """What the embedding adds to the tied gradient, as a row for each token."""

    tokens: int  # of a micro-step on each GPU
    ids: int
    width: int
    number_bytes: int  # of what a row travels in

    def travel(self, gpus: int) -> bool:
        """While they are no more than the ids: training.parallel.rows_travel."""
        return gpus * self.tokens <= self.ids

    def gathered_bytes(self, gpus: int) -> int:
        return gpus * self.tokens * self.width * self.number_bytes

    def added_bytes(self, gpus: int) -> int:
        """Of memory, to read them and to add each to one of the table's."""
        added = 2 * FLOAT32_BYTES * gpus * self.tokens * self.width
        return self.gathered_bytes(gpus) + added


def keys_of(manifest: Manifest | None, file: Path) -> Keys:
    """Raises ValueError where the capture has no manifest of the trainer, or one of more ranks."""
    if manifest is None or manifest.config is None or manifest.vocab_size is None:
        raise ValueError(
            f"{file}: no manifest beside it tells the model's sizes; give a capture of this "
            "trainer (profile=torch), or its manifest: --manifest FILE"
        )
    if manifest.world_size != 1:
        raise ValueError(
            f"{file}: is of one rank of {manifest.world_size}; give a capture of a run on one GPU"
        )
    try:
        return msgspec.convert(manifest.config, Keys)
    except msgspec.ValidationError as error:
        raise ValueError(f"{file}: its manifest's configuration is damaged: {error}") from error


def sizes_of(keys: Keys, vocab_size: int) -> ModelSizes:
    """The model of training.parallel's run: GPT-2's decoder, as in model.py."""
    width, biases = keys.n_embd, int(keys.bias)
    norm = (width,) * (1 + biases)
    products = [(4 * width, width), (width, 4 * width), (width, width), (width, 3 * width)]
    matrices = tuple(a * b for a, b in products)
    proj, fc, attn_proj, attn = [(a * b, *(b,) * biases) for a, b in products]
    positions = (keys.block_size * width,) if keys.positions == "learned" else ()
    in_blocks = keys.n_layer * (12 * width**2 + keys.block_size * width)  # attention is causal
    block = (*proj, *fc, *norm, *attn_proj, *attn, *norm)
    travel_bytes = FLOAT32_BYTES if keys.dtype == "float32" else 2
    return ModelSizes(
        head=norm,
        block=block,
        blocks=keys.n_layer,
        positions=positions,
        table=vocab_size * width,
        block_share=in_blocks / (in_blocks + vocab_size * width),
        travel_bytes=travel_bytes,
        travel=decide_travel(keys.n_layer, travel_bytes * sum(block)),
        matrices=matrices,
    )


def rows_of(keys: Keys, vocab_size: int) -> EmbeddingRows | None:
    """None: the model is compiled as one, and there is no place to take rows from."""
    if keys.compile and keys.compile_scope == "model":
        return None
    short = keys.residual_dtype != "float32" and keys.dropout == 0
    tokens = keys.batch_size * keys.block_size
    return EmbeddingRows(tokens, vocab_size, keys.n_embd, 2 if short else FLOAT32_BYTES)


def buckets(tensors: list[int], bucket_mb: float) -> list[tuple[int, int]]:
    """(bytes, index of the tensor that completes it) of each of DDP's buckets.

    `tensors`: parameters in the order of their gradients. DDP closes a bucket with the tensor that
    reaches `bucket_mb` MiB; the last one has what is left.
    """
    closed, size = [], 0
    for index, parameters in enumerate(tensors):
        size += FLOAT32_BYTES * parameters
        if size >= bucket_mb * 2**20 or index == len(tensors) - 1:
            closed.append((size, index))
            size = 0
    return closed


def shared_buckets(sizes: ModelSizes, bucket_mb: float, rows: bool, gpus: int) -> dict[int, int]:
    """Parameters of each bucket that ranks can share, by the tensor that completes it.

    It is of blocks alone and has an equal part for each rank: training.shared_update. `sizes`: of
    what is in products.
    """
    tensors, shared, begin = sizes.tensors(rows), {}, 0
    table = 0 if rows else len(tensors) - 1
    for size, index in buckets(tensors, bucket_mb):
        parameters = size // FLOAT32_BYTES
        if not begin <= table <= index and has_equal_parts(parameters, gpus):
            shared[index] = parameters
        begin = index + 1
    return shared
