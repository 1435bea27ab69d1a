"""Sizes of the trainer's GPT that have to be sent: parameters in the order of their gradients.

They are computed from the keys in a manifest; tests compare them with model.GPT.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec

from configs.shared_update import has_equal_parts
from configs.travel import Travel, decide_travel
from profiling.shared.manifest import Manifest

Count = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Keys:
    """The keys of a run's configuration that matter here."""

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
        """Whether matrix products write gradients straight into ddp's buckets.

        See training.step.replicas. In float32 kernels.linear copies them there instead.
        """
        return self.kernels == "fused" and not self.compile and self.dtype != "float32"

    @property
    def replays_graphs(self) -> bool:
        return self.cuda_graphs in (True, "true")


@dataclass(frozen=True)
class ModelSizes:
    """Numbers of parameters per tensor, in the order in which their gradients are complete."""

    head: tuple[int, ...]  # the last norm: the head's own weight is the embedding's
    block: tuple[int, ...]  # of one block
    blocks: int  # number of blocks
    positions: tuple[int, ...]  # position embedding; () if it is not learned
    table: int  # embedding and head: its gradient is complete last, or first where rows travel
    block_share: float  # share of the arithmetic that all blocks together have
    travel_bytes: int  # bytes per weight of a block that travels between ranks sharing the model
    travel: Travel
    matrices: tuple[int, ...]  # the tensors of one block whose update ranks can share

    @property
    def parameters(self) -> int:
        return self.root_parameters + self.blocks * self.block_parameters

    @property
    def block_parameters(self) -> int:
        return sum(self.block)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block's weights as they travel."""
        return self.travel_bytes * self.block_parameters

    def tensors(self, rows: bool) -> list[int]:
        """Sizes of all tensors in the order of their gradients.

        With `rows` the embedding's gradient travels as rows, so the table's is complete first.
        """
        blocks = self.block * self.blocks
        if rows:
            return [self.table, *self.head, *blocks, *self.positions]
        return [*self.head, *blocks, *self.positions, self.table]

    @property
    def root_parameters(self) -> int:
        """Number of parameters outside of the blocks."""
        return sum(self.head) + sum(self.positions) + self.table

    @property
    def matrices_only(self) -> "ModelSizes":
        """The sizes without norms, biases and positions.

        Where ranks share the update, these are all that ddp averages in its buckets.
        """
        return replace(self, head=(), block=self.matrices, positions=())


@dataclass(frozen=True)
class EmbeddingRows:
    """The embedding's part of the tied gradient as a row for each token."""

    tokens: int  # in a micro-step on each GPU
    ids: int  # size of the vocabulary
    width: int
    number_bytes: int  # bytes per number of a row that travels

    def travel(self, gpus: int) -> bool:
        """Whether there are no more rows than ids, as in training.machine.parallel.rows_travel."""
        return gpus * self.tokens <= self.ids

    def gathered_bytes(self, gpus: int) -> int:
        return gpus * self.tokens * self.width * self.number_bytes

    def added_bytes(self, gpus: int) -> int:
        """Bytes of memory traffic to read all rows and add each to a row of the table."""
        added = 2 * FLOAT32_BYTES * gpus * self.tokens * self.width
        return self.gathered_bytes(gpus) + added


def keys_of(manifest: Manifest | None, file: Path) -> Keys:
    """Keys in the manifest of capture `file`.

    Raises ValueError where there is no manifest of the trainer, or it is of several ranks, or its
    configuration is damaged.
    """
    if manifest is None or manifest.config is None or manifest.vocab_size is None:
        raise ValueError(
            f"{file}: there is no manifest beside the capture with the model's sizes; give a "
            "capture of this trainer (profile=torch), or its manifest: --manifest FILE"
        )
    if manifest.world_size != 1:
        raise ValueError(
            f"{file}: the capture is from one rank of {manifest.world_size}; give a capture of a "
            "run on one GPU"
        )
    try:
        return msgspec.convert(manifest.config, Keys)
    except msgspec.ValidationError as error:
        raise ValueError(
            f"{file}: the configuration in its manifest is damaged: {error}"
        ) from error


def sizes_of(keys: Keys, vocab_size: int) -> ModelSizes:
    """Sizes of the model that training.machine.parallel runs: GPT-2's decoder, as in model.py."""
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
    """Rows of the embedding's gradient; None if the model is compiled as a whole.

    Then there is no place from which rows could be taken.
    """
    if keys.compile and keys.compile_scope == "model":
        return None
    short = keys.residual_dtype != "float32" and keys.dropout == 0
    tokens = keys.batch_size * keys.block_size
    return EmbeddingRows(tokens, vocab_size, keys.n_embd, 2 if short else FLOAT32_BYTES)


def buckets(tensors: list[int], bucket_mb: float) -> list[tuple[int, int]]:
    """(bytes, index of the tensor that completes it) for each of DDP's buckets.

    `tensors` are numbers of parameters in the order of their gradients. DDP closes a bucket with
    the tensor that reaches `bucket_mb` MiB; the last bucket has what is left.
    """
    closed, size = [], 0
    for index, parameters in enumerate(tensors):
        size += FLOAT32_BYTES * parameters
        if size >= bucket_mb * 2**20 or index == len(tensors) - 1:
            closed.append((size, index))
            size = 0
    return closed


def shared_buckets(sizes: ModelSizes, bucket_mb: float, rows: bool, gpus: int) -> dict[int, int]:
    """Number of parameters of each bucket that ranks can share, by the tensor that completes it.

    Such a bucket holds parameters of blocks only and has an equal part for each rank, as in
    training.optimizers.shared_update. `sizes` are ModelSizes.matrices_only.
    """
    tensors, shared, begin = sizes.tensors(rows), {}, 0
    table = 0 if rows else len(tensors) - 1
    for size, index in buckets(tensors, bucket_mb):
        parameters = size // FLOAT32_BYTES
        if not begin <= table <= index and has_equal_parts(parameters, gpus):
            shared[index] = parameters
        begin = index + 1
    return shared
