"""Compare the least cost of a step of this GPT with the GPU's peaks. Called by summary.

Per step and GPU, with M = tokens = batch_size * block_size * micro-steps, C = n_embd, L = n_layer,
T = block_size, H = n_head, V = vocabulary, N = parameters, S = M * T * H elements of scores,
s = bytes of an element in `dtype`, r = of the residual stream and its norms in `residual_dtype`
(embeddings, optimizer: float32).

FLOPs, forward and twice that for backward:
- gemm: 6 M (12 L C^2 + C V); with slow attention 12 L M T C more, its two batched products
- attention (fused): half of 12 L M T C, since it skips what the causal mask hides
- softmax (slow): 8 an element of L S. norm: 20 an element of (2L + 1) M C. elementwise: GELU, 30 an
  element of 4 L M C. dropout: 4 an element. optimizer: 14 a parameter. loss: 8 a logit.

Bytes: each input read and each output written once, as if nothing stayed in the cache:
- gemm: 3 s (M i + i o + M o) for each i x o matrix; slow attention's products 3 s (2S + 4 M C) a
  layer
- attention: 12 s M C a layer. softmax: 5 s S a layer. norm: 5 r M C each
- elementwise: 5 s * 4 M C a layer for GELU; residual sums can ride on the norms
- dropout: (4 s + 2) an element of (2L + 1) M C, and in eager slow attention of L S (torch.compile
  fuses that one into the softmax). optimizer: 28 a parameter, and 12 where gradients are clipped.
  loss: 4 s M V. embedding: (8 + 2 r) M C
- kernels=fused: norm (5 r + 4 s) M C each of 2L, with the sum and the dropout before it in the same
  kernels (5 r + 3 s without dropout and r = s: both gradients are one), and the first one in the
  embedding's, (2 r + 2 s) M C. optimizer: 34 a parameter, with clipping and copies in 16 bits.
  loss: 2 s M V, the gradient in the logits' place. Where products make GELU, gemm has its FLOPs,
  and 2 s * 4 M C a layer: its input written beside its output, and read once more

The floor of a family is the longer of FLOPs / peak and bytes / bandwidth; percent_of_bound is
floor / time, and more than 100 where fusion moved a family's work into another's kernels. mfu is
the trainer's: (6 N' + 12 L C T) M / time / peak, with N' = N without position embeddings, whatever
attention does.
"""

from dataclasses import dataclass
from typing import Annotated

import msgspec

from configs.attention import is_fused
from profiling.analysis.report import Roofline, RooflineRow
from profiling.shared.hardware import mfu, peak_bytes_per_s, peak_flops_per_s
from profiling.shared.manifest import Manifest, Size

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
Layers = Annotated[int, msgspec.Meta(ge=1, le=100_000)]  # a row of matrices is made for each


@dataclass(frozen=True)
class StepConfig:
    """The keys of a run's configuration that say what a step computes."""

    n_layer: Layers
    n_head: Size
    n_embd: Size
    block_size: Size
    batch_size: Size
    dtype: str
    dropout: Annotated[float, msgspec.Meta(ge=0, le=1)]
    grad_clip: Annotated[float, msgspec.Meta(ge=0)]
    bias: bool = False
    compile: bool = False
    kernels: str = "compiled"
    residual_dtype: str = "float32"
    optimizer: str = "adamw"
    shard_update: bool = False
    gradient_accumulation_steps: Size = 1
    vocab_size: Size | None = None  # the manifest has it


@dataclass(frozen=True)
class Work:
    """The work of one step on one rank, and the peaks of its GPU."""

    config: StepConfig
    vocab_size: int
    tokens: int
    device_name: str
    flops_per_s: float
    bytes_per_s: float

    @property
    def parameters(self) -> int:
        """Number of parameters of model.GPT without position embeddings, as the trainer counts."""
        C, L = self.config.n_embd, self.config.n_layer
        biases = L * (9 * C + 2 * C) + C if self.config.bias else 0
        return 12 * L * C * C + (2 * L + 1) * C + self.vocab_size * C + biases


def work_of(manifest: Manifest | None, device_name: str | None) -> Work:
    """The work of a step; raises ValueError with a sentence that says what is not known."""
    if manifest is None:
        raise ValueError("the capture has no manifest, so the model's shapes are not known")
    config = step_config(manifest)
    vocab_size = manifest.vocab_size or config.vocab_size
    if vocab_size is None:
        raise ValueError("the manifest does not contain vocab_size")
    if device_name is None:
        raise ValueError("no GPU was captured")
    peaks = peak_flops_per_s(device_name, config.dtype), peak_bytes_per_s(device_name)
    if not peaks[0] or not peaks[1]:
        raise ValueError(f"the peaks of {device_name} are not known (profiling/shared/hardware.py)")
    micro_steps = max(1, config.gradient_accumulation_steps // (manifest.world_size or 1))
    tokens = config.batch_size * config.block_size * micro_steps
    return Work(config, vocab_size, tokens, device_name, peaks[0], peaks[1])


def step_config(manifest: Manifest) -> StepConfig:
    if "max_new_tokens" in (manifest.config or {}):
        raise ValueError(
            "the arithmetic is known for a training step, but not for a token of sample.py"
        )
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
    config, M, V = work.config, work.tokens, work.vocab_size
    C, L, T, H = config.n_embd, config.n_layer, config.block_size, config.n_head
    s, r = BYTES[config.dtype], BYTES[config.residual_dtype]
    S = M * T * H
    N = work.parameters + T * C
    matrices = [(C, 3 * C), (C, C), (C, 4 * C), (4 * C, C)] * L + [(C, V)]
    gemm_flops: float = 6 * M * (12 * L * C * C + C * V)
    gemm_bytes = sum(3 * s * (M * i + i * o + M * o) for i, o in matrices)
    products = 12 * L * M * T * C
    dropped = (2 * L + 1) * M * C
    by_family: dict[str, tuple[float, float]] = {
        "norm": (20 * (2 * L + 1) * M * C, 5 * r * (2 * L + 1) * M * C),
        "elementwise": (120 * L * M * C, 20 * s * L * M * C),
        "optimizer": (14 * N, (40 if config.grad_clip else 28) * N),
        "loss": (8 * M * V, 4 * s * M * V),
        "embedding": (2 * M * C, (8 + 2 * r) * M * C),
    }
    if fused_attention:
        by_family["attention"] = (products / 2, 12 * s * L * M * C)
    else:
        gemm_flops += products
        gemm_bytes += 3 * s * L * (2 * S + 4 * M * C)
        by_family["softmax"] = (8 * L * S, 5 * s * L * S)
        dropped += 0 if config.compile else L * S
    if gelu_in_products:
        gemm_flops += by_family.pop("elementwise")[0]
        gemm_bytes += 8 * s * L * M * C
    by_family["gemm"] = (gemm_flops, gemm_bytes)
    if config.kernels == "fused":
        moved = 5 * r + (4 if config.dropout or r != s else 3) * s
        by_family["norm"] = (48 * L * M * C, moved * 2 * L * M * C)
        by_family["embedding"] = (24 * M * C, (2 * r + 2 * s) * M * C)
        by_family["loss"] = (8 * M * V, 2 * s * M * V)
        if config.optimizer == "adamw":
            by_family["optimizer"] = (16 * N, 34 * N)
        if config.shard_update:
            del by_family["optimizer"]  # each rank updates a part, whose size only the run knows
    elif config.dropout:
        by_family["dropout"] = (4 * dropped, (4 * s + 2) * dropped)
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

    `family_ms` is kernel time a step.
    """
    try:
        work = work_of(manifest, device_name)
    except ValueError:
        return None
    config = work.config
    rows = [
        row_of(family, *cost, ms, work)
        for family, cost in costs(work, is_fused(backend), gelu_in_products).items()
        if (ms := family_ms.get(family, 0.0))
    ]
    flops_per_token = 6 * work.parameters + 12 * config.n_layer * config.n_embd * config.block_size
    return Roofline(
        work.flops_per_s / 1e12,
        work.bytes_per_s / 1e9,
        mfu(flops_per_token, work.tokens / step_ms * 1e3, work.device_name, config.dtype, 1),
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
