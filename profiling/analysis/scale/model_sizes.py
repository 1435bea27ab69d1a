"""Sizes of a run's model that have to be sent: parameters in the order of their gradients.

They are read off the description of the model in the manifest.
"""

from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Annotated

import msgspec

from configs.sharing import Travel, decide_travel, has_equal_parts
from profiling.shared.manifest import Manifest
from profiling.shared.memory_sizes import FLOAT32_BYTES
from profiling.shared.model_description import (
    HEAD,
    IN_BLOCK,
    POSITIONS,
    TABLE,
    ModelDescription,
    Shapes,
)

Count = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]


@dataclass(frozen=True)
class Keys:
    """The keys of a run's configuration that matter here."""

    block_size: Count
    batch_size: Count
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
    # the tensors of one block whose update ranks can share; the last makes queries, keys and values
    matrices: tuple[int, ...]

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

    @property
    def behind_attention(self) -> float:
        """Share of a block's products that backward runs after attention: those of q, k and v."""
        return self.matrices[-1] / sum(self.matrices)

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


def model_of(manifest: Manifest, file: Path) -> ModelDescription:
    """Description of the model in the manifest of capture `file`.

    Raises ValueError where it is not known, or a prediction cannot be made of such a model.
    """
    try:
        model = manifest.described_model()
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    first, *others = model.blocks
    if any(block != first for block in others):
        raise ValueError(f"{file}: a model whose blocks differ in size; they have to be alike here")
    if HEAD in model.parameters:
        raise ValueError(f"{file}: {HEAD} is not the embedding; they have to be one here")
    return model


def sizes_of(model: ModelDescription, dtype: str, gpu_bytes: int | None = None) -> ModelSizes:
    """Sizes of a model of equal blocks, trained in `dtype` on GPUs with `gpu_bytes` of memory."""
    blocks, vocabulary, work = model.blocks, model.vocab_size, model.work
    block = in_gradient_order(blocks[0])
    matrices: Shapes = {name: shape for name, shape in blocks[0].items() if len(shape) == 2}
    outside = {name: each for name, each in model.parameters.items() if not IN_BLOCK.match(name)}
    del outside[TABLE]
    positions = outside.pop(POSITIONS, None)
    head_flops = 6 * vocabulary * model.width
    flops = work.gemm.flops + work.attention.flops // 2  # attention is causal
    travel_bytes = FLOAT32_BYTES if dtype == "float32" else 2
    return ModelSizes(
        head=in_gradient_order(outside),
        block=block,
        blocks=len(blocks),
        positions=(prod(positions),) if positions else (),
        table=vocabulary * model.width,
        block_share=(flops - head_flops) / flops,
        travel_bytes=travel_bytes,
        travel=decide_travel(len(blocks), travel_bytes * sum(block), gpu_bytes),
        matrices=in_gradient_order(matrices),
    )


def in_gradient_order(parameters: Shapes) -> tuple[int, ...]:
    """Sizes of a layer's parameters, the last module first, as backward completes gradients."""
    modules: dict[str, list[int]] = {}
    for name, shape in parameters.items():
        modules.setdefault(name.rpartition(".")[0], []).append(prod(shape))
    return tuple(size for sizes in reversed(modules.values()) for size in sizes)


def rows_of(keys: Keys, model: ModelDescription) -> EmbeddingRows | None:
    """Rows of the embedding's gradient; None if the model is compiled as a whole.

    Then there is no place from which rows could be taken.
    """
    if keys.compile and keys.compile_scope == "model":
        return None
    short = keys.residual_dtype != "float32" and keys.dropout == 0
    tokens = keys.batch_size * keys.block_size
    number_bytes = 2 if short else FLOAT32_BYTES
    return EmbeddingRows(tokens, model.vocab_size, model.width, number_bytes)


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
