"""What a step of this GPT costs at least, against what the GPU can do. Called by summary.

Per step and GPU, with M = tokens = batch_size * block_size * micro-steps, C = n_embd, L = n_layer,
T = block_size, H = n_head, V = vocabulary, N = parameters, S = M * T * H elements of scores,
s = bytes of an element in `dtype` (residual stream, norms, optimizer: float32).

FLOPs, forward and twice that for backward:
- gemm: 6 M (12 L C^2 + C V); with slow attention 12 L M T C more, its two batched products
- attention (fused): half of 12 L M T C, since it skips what the causal mask hides
- softmax (slow): 8 an element of L S. norm: 20 an element of (2L + 1) M C. elementwise: GELU, 30 an
  element of 4 L M C. dropout: 4 an element. optimizer: 14 a parameter. loss: 8 a logit.

Bytes: each input read and each output written once, as if nothing stayed in the cache:
- gemm: 3 s (M i + i o + M o) for each i x o matrix; slow attention's products 3 s (2S + 4 M C) a
  layer
- attention: 12 s M C a layer. softmax: 5 s S a layer. norm: 5 * 4 M C each
- elementwise: 5 s * 4 M C a layer for GELU; residual sums can ride on the norms
- dropout: (4 s + 2) an element of (2L + 1) M C, and in eager slow attention of L S (torch.compile
  fuses that one into the softmax). optimizer: 28 a parameter, and 12 where gradients are clipped.
  loss: 4 s M V. embedding: 4 * 4 M C

The floor of a family is the longer of FLOPs / peak and bytes / bandwidth; percent_of_bound is
floor / time, and more than 100 where fusion moved a family's work into another's kernels. mfu is
the trainer's: (6 N' + 12 L C T) M / time / peak, with N' = N without position embeddings, whatever
attention does.
"""

import math
from typing import Any

from profiling.hardware import mfu, peak_bytes_per_s, peak_flops_per_s

NEEDED = (
    "n_layer",
    "n_head",
    "n_embd",
    "block_size",
    "batch_size",
    "dtype",
    "dropout",
    "grad_clip",
)
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def vocab_size_of(manifest: dict[str, Any]) -> int | None:
    config = manifest.get("config") or {}
    return manifest.get("vocab_size") or config.get("vocab_size")


def missing(manifest: dict[str, Any] | None, device_name: str | None) -> str | None:
    """Why there is no roofline, in a sentence; None if there can be one."""
    if manifest is None:
        return "the capture has no manifest, so the model's shapes are not known"
    config = manifest.get("config") or {}
    for key in NEEDED:
        if key not in config:
            return f"the manifest's config has no {key}"
    if config["dtype"] not in BYTES:
        return f"the manifest's dtype={config['dtype']} is not known"
    if vocab_size_of(manifest) is None:
        return "the manifest does not say vocab_size"
    if device_name is None:
        return "no GPU was captured"
    if not peak_flops_per_s(device_name, config["dtype"]) or not peak_bytes_per_s(device_name):
        return f"the peaks of {device_name} are not known (profiling/hardware.py)"
    return None


def parameters(config: dict[str, Any], vocab_size: int) -> int:
    """Of model.GPT without position embeddings, as the trainer counts them."""
    C, L = config["n_embd"], config["n_layer"]
    biases = L * (9 * C + 2 * C) + C if config.get("bias") else 0
    return 12 * L * C * C + (2 * L + 1) * C + vocab_size * C + biases


def tokens_per_step(manifest: dict[str, Any]) -> int:
    """Of one rank."""
    config = manifest["config"]
    ranks = manifest.get("world_size") or 1
    micro_steps = max(1, config.get("gradient_accumulation_steps", 1) // ranks)
    return config["batch_size"] * config["block_size"] * micro_steps


def costs(manifest: dict[str, Any], fused: bool) -> dict[str, tuple[float, float]]:
    """family -> (FLOPs, bytes) a step, by the formulae above."""
    config, V = manifest["config"], vocab_size_of(manifest)
    C, L, T, H = (config[key] for key in ("n_embd", "n_layer", "block_size", "n_head"))
    M, s = tokens_per_step(manifest), BYTES[config["dtype"]]
    S = M * T * H
    N = parameters(config, V) + T * C
    matrices = [(C, 3 * C), (C, C), (C, 4 * C), (4 * C, C)] * L + [(C, V)]
    gemm_flops = 6 * M * (12 * L * C * C + C * V)
    gemm_bytes = sum(3 * s * (M * i + i * o + M * o) for i, o in matrices)
    products = 12 * L * M * T * C
    dropped = (2 * L + 1) * M * C
    found = {
        "norm": (20 * (2 * L + 1) * M * C, 20 * (2 * L + 1) * M * C),
        "elementwise": (120 * L * M * C, 20 * s * L * M * C),
        "optimizer": (14 * N, (40 if config["grad_clip"] else 28) * N),
        "loss": (8 * M * V, 4 * s * M * V),
        "embedding": (2 * M * C, 16 * M * C),
    }
    if fused:
        found["attention"] = (products / 2, 12 * s * L * M * C)
    else:
        gemm_flops += products
        gemm_bytes += 3 * s * L * (2 * S + 4 * M * C)
        found["softmax"] = (8 * L * S, 5 * s * L * S)
        dropped += 0 if config.get("compile") else L * S
    found["gemm"] = (gemm_flops, gemm_bytes)
    if config["dropout"]:
        found["dropout"] = (4 * dropped, (4 * s + 2) * dropped)
    return found


def roofline(
    manifest: dict[str, Any] | None,
    device_name: str | None,
    backend: str | None,
    family_ms: dict[str, float],
    step_ms: float,
) -> dict[str, Any] | None:
    """`family_ms`: kernel time a step. None where `missing` says why."""
    if missing(manifest, device_name):
        return None
    config = manifest["config"]
    dtype = config["dtype"]
    flops_per_s, bytes_per_s = peak_flops_per_s(device_name, dtype), peak_bytes_per_s(device_name)
    tokens = tokens_per_step(manifest)
    attention = 12 * config["n_layer"] * config["n_embd"] * config["block_size"]
    flops_per_token = 6 * parameters(config, vocab_size_of(manifest)) + attention
    rows = []
    for family, (flops, size) in costs(manifest, backend not in ("slow", None)).items():
        ms = family_ms.get(family, 0.0)
        if not ms:
            continue
        compute_ms, memory_ms = flops / flops_per_s * 1e3, size / bytes_per_s * 1e3
        rows.append(
            {
                "family": family,
                "flops": float(flops),
                "bytes": float(size),
                "ms": ms,
                "tflops": flops / ms / 1e9,
                "gbps": size / ms / 1e6,
                "flops_per_byte": flops / size,
                "bound": "compute" if compute_ms >= memory_ms else "memory",
                "percent_of_bound": 100 * max(compute_ms, memory_ms) / ms,
            }
        )
    assert all(math.isfinite(row["percent_of_bound"]) for row in rows)
    return {
        "peak_tflops": flops_per_s / 1e12,
        "peak_gbps": bytes_per_s / 1e9,
        "mfu": mfu(flops_per_token, tokens / step_ms * 1e3, device_name, dtype, 1),
        "families": sorted(rows, key=lambda row: -row["ms"]),
    }
