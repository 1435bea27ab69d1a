"""Compare the least cost of a step with the GPU's peaks. Called by summary.

The run's model description has the work of a token by family, in FLOPs and in values that are read
or written (profiling.shared.model_description). Per step and GPU, with M = tokens = batch_size *
block_size * micro-steps, C = n_embd, L = n_layer, S = M * block_size * n_head elements of scores,
s = bytes of a value in `dtype`, r = of the residual stream and its norms in `residual_dtype`
(embeddings, optimizer: float32), this comes to:

- gemm: s bytes a value, and 3 s i o for each i x o matrix. With slow attention the FLOPs of
  attention too, and 3 s (2S + 4 M C) bytes a layer
- attention (fused): half of its FLOPs, since it skips what the causal mask hides; s bytes a value
- softmax (slow), elementwise, loss: s bytes a value. norm: r bytes a value; residual sums can ride
  on it. embedding: half of its values in float32, half in r bytes
- dropout: 4 FLOPs and (4 s + 2) bytes an element of (2L + 1) M C, and in eager slow attention of
  L S (torch.compile fuses that one into the softmax). optimizer: 14 FLOPs and 28 bytes a parameter,
  and 12 bytes where gradients are clipped; of AdamW alone
- kernels=fused: norm 24 FLOPs and 5 r + 4 s bytes an element of the blocks' norms, with the sum and
  the dropout before it in the same kernels (5 r + 3 s without dropout and r = s: both gradients are
  one), and the first one in the embedding's, 24 FLOPs and 2 r + 2 s bytes of M C. optimizer: 16 and
  34 a parameter, with clipping and copies in 16 bits. loss: half of its values, the gradient in the
  logits' place. Where products make GELU, gemm has its FLOPs, and 2 of its 5 values: its input
  written beside its output, and read once more

The floor of a family is the longer of FLOPs / peak and bytes / bandwidth; percent_of_bound is
floor / time, and more than 100 where fusion moved a family's work into another's kernels. mfu is
the trainer's: ModelDescription.flops_per_token * M / time / peak.
"""

from dataclasses import dataclass
from math import prod
from typing import Annotated

import msgspec

from configs.backends import is_fused
from profiling.analysis.records import Roofline, RooflineRow
from profiling.shared.hardware import mfu, peak_bytes_per_s, peak_flops_per_s
from profiling.shared.manifest import Manifest
from profiling.shared.model_description import ModelDescription, Size, matrices_of, norm_width

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class StepConfig:
    """The keys of a run's configuration that say what a step computes."""

    n_head: Size
    block_size: Size
    batch_size: Size
    dtype: str
    dropout: Annotated[float, msgspec.Meta(ge=0, le=1)]
    grad_clip: Annotated[float, msgspec.Meta(ge=0)]
    compile: bool = False
    kernels: str = "compiled"
    residual_dtype: str = "float32"
    optimizer: str = "adamw"
    shard_update: bool = False
    gradient_accumulation_steps: Size = 1


@dataclass(frozen=True)
class Work:
    """The work of one step on one rank, and the peaks of its GPU."""

    config: StepConfig
    model: ModelDescription
    tokens: int
    device_name: str
    flops_per_s: float
    bytes_per_s: float


def work_of(manifest: Manifest | None, device_name: str | None) -> Work:
    """The work of a step; raises ValueError with a sentence that says what is not known."""
    if manifest is None:
        raise ValueError("the capture has no manifest, so the model's shapes are not known")
    if "max_new_tokens" in (manifest.config or {}):
        raise ValueError("the work of a training step is known, not that of a token of sample.py")
    model = manifest.described_model()
    config = step_config(manifest)
    if device_name is None:
        raise ValueError("no GPU was captured")
    peaks = peak_flops_per_s(device_name, config.dtype), peak_bytes_per_s(device_name)
    if not peaks[0] or not peaks[1]:
        raise ValueError(f"the peaks of {device_name} are not known (profiling/shared/hardware.py)")
    micro_steps = max(1, config.gradient_accumulation_steps // (manifest.world_size or 1))
    tokens = config.batch_size * config.block_size * micro_steps
    return Work(config, model, tokens, device_name, peaks[0], peaks[1])


def step_config(manifest: Manifest) -> StepConfig:
    try:
        config = msgspec.convert(manifest.config or {}, StepConfig)
    except msgspec.ValidationError as error:
        raise ValueError(f"the manifest's config: {error}") from error
    if config.dtype not in BYTES:
        raise ValueError(f"the manifest's dtype={config.dtype} is not known")
    if config.residual_dtype not in BYTES:
        raise ValueError(f"the manifest's residual_dtype={config.residual_dtype} is not known")
    return config


def missing_reason(manifest: Manifest | None, device_name: str | None) -> str | None:
    """Why there is no roofline, in a sentence; None if there can be one."""
    try:
        work_of(manifest, device_name)
    except ValueError as error:
        return str(error)
    return None


def costs(
    work: Work, fused_attention: bool, gelu_in_products: bool = False
) -> dict[str, tuple[float, float]]:
    """family -> (FLOPs, bytes) a step, by the formulae above."""
    config, model, of, M = work.config, work.model, work.model.work, work.tokens
    C, blocks, N = model.width, model.blocks, model.parameter_count
    s, r = BYTES[config.dtype], BYTES[config.residual_dtype]
    LS = M * config.block_size * config.n_head * len(blocks)
    gemm_flops: float = M * of.gemm.flops
    gemm_bytes = s * (M * of.gemm.values + 3 * sum(map(prod, matrices_of(model.parameters))))
    dropped = (2 * len(blocks) + 1) * M * C
    by_family: dict[str, tuple[float, float]] = {
        "norm": (M * of.norm.flops, r * M * of.norm.values),
        "elementwise": (M * of.elementwise.flops, s * M * of.elementwise.values),
        "optimizer": (14 * N, (40 if config.grad_clip else 28) * N),
        "loss": (M * of.loss.flops, s * M * of.loss.values),
        "embedding": (M * of.embedding.flops, (4 + r) * M * of.embedding.values // 2),
    }
    if fused_attention:
        by_family["attention"] = (M * of.attention.flops / 2, s * M * of.attention.values)
    else:
        gemm_flops += M * of.attention.flops
        gemm_bytes += 3 * s * (2 * LS + 4 * len(blocks) * M * C)
        by_family["softmax"] = (M * of.softmax.flops, s * M * of.softmax.values)
        dropped += 0 if config.compile else LS
    if gelu_in_products:
        gemm_flops += by_family.pop("elementwise")[0]
        gemm_bytes += s * M * of.elementwise.values * 2 // 5
    by_family["gemm"] = (gemm_flops, gemm_bytes)
    if config.kernels == "fused":
        moved = 5 * r + (4 if config.dropout or r != s else 3) * s
        normed = M * sum(map(norm_width, blocks))
        by_family["norm"] = (24 * normed, moved * normed)
        by_family["embedding"] = (24 * M * C, (2 * r + 2 * s) * M * C)
        by_family["loss"] = (M * of.loss.flops, s * M * of.loss.values // 2)
        by_family["optimizer"] = (16 * N, 34 * N)
        if config.shard_update:
            del by_family["optimizer"]  # each rank updates a part, whose size only the run knows
    elif config.dropout:
        by_family["dropout"] = (4 * dropped, (4 * s + 2) * dropped)
    if config.optimizer != "adamw":
        by_family.pop("optimizer", None)  # the formulae are AdamW's
    return by_family


def roofline(
    manifest: Manifest | None,
    device_name: str | None,
    backend: str | None,
    family_ms: dict[str, float],
    step_ms: float,
    gelu_in_products: bool = False,
) -> Roofline | None:
    """The roofline of a step, or None where `missing_reason` has a reason.

    `family_ms` is kernel time a step; `step_ms` is the step of the MFU.
    """
    try:
        work = work_of(manifest, device_name)
    except ValueError:
        return None
    rows = [
        row_of(family, *cost, ms, work)
        for family, cost in costs(work, is_fused(backend), gelu_in_products).items()
        if cost[1] and (ms := family_ms.get(family, 0.0))
    ]
    tokens_per_s = work.tokens / step_ms * 1e3
    return Roofline(
        work.flops_per_s / 1e12,
        work.bytes_per_s / 1e9,
        mfu(work.model.flops_per_token, tokens_per_s, work.device_name, work.config.dtype, 1),
        sorted(rows, key=lambda row: -row.ms),
    )


def row_of(family: str, flops: float, size: float, ms: float, work: Work) -> RooflineRow:
    compute_ms, memory_ms = flops / work.flops_per_s * 1e3, size / work.bytes_per_s * 1e3
    percent_of_bound = 100 * max(compute_ms, memory_ms) / ms
    return RooflineRow(
        family=family,
        flops=float(flops),
        bytes=float(size),
        ms=ms,
        tflops=flops / ms / 1e9,
        gbps=size / ms / 1e6,
        flops_per_byte=flops / size,
        bound="compute" if compute_ms >= memory_ms else "memory",
        percent_of_bound=percent_of_bound,
    )
