"""Judge what a busy GPU is busy with. Called by diagnosis.

gpu_latency: its kernels are too small to fill it. gpu_gaps: it pauses between larger ones. Else
gpu_compute if matrix products, convolutions and fused attention make up half of the kernel time,
gpu_memory if they cannot, and `gpu` if that depends on kernels that the capture does not name. The
verdict is the larger of two bounds: work that is not matrix work moves bytes. So do attention of a
few new tokens to a cache, which reads each key and value for little arithmetic, and a product with
few rows, which reads each weight so, and copies within the GPU. Where the bounds lie close
together, the evidence has both. Hardware counters decide instead, if they were captured and are
clear.

Triton names kernels as their program does. One without the shared memory that a product's operands
need multiplies no matrices, so it moves bytes, like the element-wise kernels whose names are known.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import name_mask
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.analysis.records import Report, TypicalStep
from profiling.analysis.verdict.copies import within_gpu_ms
from profiling.analysis.verdict.health import UNKNOWN_SHARE
from profiling.timeline.trace import GRAPH, KERNEL, Device

WAITING_SHARE = 0.15  # of a step: from here up, waiting is what limits the step
MATRIX_FAMILIES = ("gemm", "convolution", "attention")
MATRIX_SHARE = 0.5
# attention kernels that split keys and values over blocks, since there are too few queries, or that
# read a cache for one token; a prefill with a cache is arithmetic
DECODING = re.compile(
    r"(?!.*prefill)(.*(split_?kv|decod|paged_attention|masked_multihead|mmha_|withkvcache|"
    r"_fwd_grouped_kernel_stage|attention_3d|flash_mla))",
    re.IGNORECASE | re.DOTALL,
)
# products of a matrix and a few vectors: cuBLAS's tiles of at most 16 rows or columns (16 products
# for each weight of 2 bytes, where an H100 needs 300), the sums of parts of such a product, and
# triangular systems with one right-hand side
THIN = re.compile(
    r".*(gemv|trsv|gemmk1_|splitkreduce|nvjet_[a-z0-9]+_[a-z]+_((8|16)x\d+|\d+x(8|16))_)",
    re.IGNORECASE | re.DOTALL,
)
STREAMING = {"attention": DECODING, "gemm": THIN}  # kernels of a family that mostly move bytes
# Triton launches by this call alone, and its names have no types
TRITON_LAUNCH, TRITON_NAME = re.compile(r"cuLaunchKernelEx(_ptsz)?"), re.compile(r"[a-zA-Z_]\w*")
# the smallest operand of a product of Triton, 16 x 16 elements of 16 bits; all are in shared memory
OPERAND_BYTES = 512
CLOSE = 1.5  # the longer bound over the shorter: below this, both are worth work
SMALL_US = 5.0
SMALL_SHARE = 0.5
SATURATED_PERCENT = 60.0  # of a hardware counter


@dataclass(frozen=True)
class Launches:
    """Number of launches in the steps, and how well single kernels fill the GPU."""

    per_step: float  # calls that launched an operation
    mean_us: float
    small_share: float  # share of the kernel time in kernels that are short or have few blocks


def verdict(
    analysis: Analysis, report: Report, step: TypicalStep, gaps_ms: float, step_ms: float
) -> tuple[str, list[str]]:
    """(verdict, evidence) for a GPU that is kept busy.

    `gaps_ms` is the time between queued kernels in a step, `step_ms` the step without what
    capturing added.
    """
    family_ms = step.family_ms
    if 2 * gaps_ms >= step_ms:
        return "gpu_gaps", [gaps_sentence(gaps_ms, step)]
    unnamed_ms, copied_ms = whole_graphs_ms(analysis), within_gpu_ms(report)
    launches = launches_of(analysis, report.capture.gpu)
    small = launches and (launches.small_share >= SMALL_SHARE or launches.mean_us < SMALL_US)
    if launches and small and unnamed_ms + copied_ms < sum(family_ms.values()) - copied_ms:
        text = (
            f"A kernel takes {launches.mean_us:.1f} us on average; "
            f"{100 * launches.small_share:.0f} % of the kernel time is in kernels that are "
            f"shorter than {SMALL_US:.0f} us or have too few blocks to occupy half of the SMs."
        )
        gaps = [gaps_sentence(gaps_ms, step)] if gaps_ms >= WAITING_SHARE * step_ms else []
        return "gpu_latency", [text, *gaps]
    if gaps_ms >= WAITING_SHARE * step_ms:
        return "gpu_gaps", [gaps_sentence(gaps_ms, step)]
    read, written = counter(report, "DRAM Read"), counter(report, "DRAM Write") or 0.0
    if read is not None and read + written >= SATURATED_PERCENT:
        return "gpu_memory", [
            f"DRAM bandwidth is used to {read + written:.0f} % while the GPU is busy."
        ]
    tensor = counter(report, "Tensor Active")
    if tensor is not None and tensor >= SATURATED_PERCENT:
        return "gpu_compute", [f"Tensor cores are active {tensor:.0f} % of the busy time."]
    plain_ms = without_product_share(analysis) * family_ms.get("other", 0.0)
    streaming = streaming_ms(report, family_ms) | {"other": plain_ms}
    named, evidence = verdict_by_families(family_ms, unnamed_ms, streaming)
    if copied_ms > UNKNOWN_SHARE * sum(family_ms.values()):
        evidence.append(
            f"Copies within the GPU, and memsets, take {copied_ms:.2f} ms: they move data as "
            "kernels that copy do."
        )
    return named, evidence


def streaming_ms(report: Report, family_ms: dict[str, float]) -> dict[str, float]:
    """The parts of attention's and the products' ms a step that move bytes and compute little.

    Attention is judged by shapes where they and the GPU's peaks are known; everything else by the
    kernels' names.
    """
    shares: dict[str, float] = {}
    for family, pattern in STREAMING.items():
        kernels = [row for row in report.kernels if row.family == family]
        if whole := sum(row.total_ns for row in kernels):
            part = sum(row.total_ns for row in kernels if pattern.match(row.name))
            shares[family] = part / whole
    work = [row for row in report.operator_work or [] if "attention" in row.name and row.bound]
    if whole := sum(row.gpu_ns for row in work):
        part = sum(row.gpu_ns for row in work if row.bound == "memory")
        shares["attention"] = part / whole
    return {name: family_ms.get(name, 0.0) * share for name, share in shares.items()}


def without_product_share(analysis: Analysis) -> float:
    """Share of the time of kernels without a family in Triton's that multiply no matrices, 0-1."""
    owned, calls, names = analysis.owned, analysis.trace.calls, analysis.trace.names
    if owned is None or calls is None:
        return 0.0
    unknown = analysis.family[owned.name] == FAMILIES.index("other")
    rows = np.flatnonzero((owned.kind == KERNEL) & unknown)
    name, call, took_ns = owned.name[rows], owned.call[rows], owned.duration_ns[rows]
    by_triton = (call >= 0) & name_mask(names, calls.name[call], TRITON_LAUNCH.fullmatch)
    by_triton &= name_mask(names, name, TRITON_NAME.fullmatch)
    shared_bytes = owned.operations.shared_bytes[owned.row[rows]]
    # the call of a kernel may lie before the capture
    plain = np.isin(name, name[by_triton]) & (shared_bytes >= 0) & (shared_bytes < OPERAND_BYTES)
    return float(took_ns[plain].sum() / max(1, took_ns.sum()))


def clock_sentences(report: Report) -> list[str]:
    """One sentence if something held the GPU's clock down over the run, else none."""
    clock = report.run and report.run.gpu_clock
    if not clock or not clock.held_down_by:
        return []
    return [f"Over the run the GPU's clock was {clock.text}."]


def gaps_sentence(gaps_ms: float, step: TypicalStep) -> str:
    share = 100 * gaps_ms / step.ms
    return f"{gaps_ms:.2f} ms per step ({share:.0f} %) is idle time between queued kernels."


def verdict_by_families(
    family_ms: dict[str, float], unnamed_ms: float, streaming_ms: Mapping[str, float]
) -> tuple[str, list[str]]:
    """(verdict, evidence) by the kernel families that compute.

    `unnamed_ms` is the time a step in CUDA graphs that were captured without their kernels, and
    `streaming_ms` the parts of attention, products and kernels without a family that move bytes.
    """
    family_ms = {name: ms for name, ms in family_ms.items() if name != "communication"}
    total = sum(family_ms.values()) + unnamed_ms or 1.0
    matrix = sum(family_ms.get(name, 0.0) for name in MATRIX_FAMILIES)
    matrix -= sum(streaming_ms.get(name, 0.0) for name in MATRIX_FAMILIES)
    plain_ms = streaming_ms.get("other", 0.0)
    unnamed_ms += family_ms.get("other", 0.0) - plain_ms
    evidence = [
        f"Matrix products, convolutions and fused attention take {matrix:.2f} of {total:.2f} ms "
        f"of GPU work per step ({100 * matrix / total:.0f} %)."
    ]
    top = sorted(family_ms, key=lambda name: -family_ms[name])[:3]
    largest = ", ".join(f"{name} {family_ms[name]:.2f} ms" for name in top)
    if largest:
        evidence.append(f"The largest kernel families per step: {largest}.")
    if decoding_ms := streaming_ms.get("attention"):
        evidence.append(
            f"Attention of new tokens to a cache takes {decoding_ms:.2f} ms: it reads the cache "
            "and computes little, so it counts as moving data."
        )
    if (thin_ms := streaming_ms.get("gemm", 0.0)) > UNKNOWN_SHARE * total:
        evidence.append(
            f"Products with few rows take {thin_ms:.2f} ms: they read the weights and compute "
            "little, so they count as moving data."
        )
    if plain_ms > UNKNOWN_SHARE * total:
        evidence.append(
            f"Kernels with names of the program's own take {plain_ms:.2f} ms and have too little "
            "shared memory for a matrix product, so they count as moving data."
        )
    bytes_ms = total - matrix - unnamed_ms
    if max(matrix, bytes_ms) < CLOSE * min(matrix, bytes_ms):
        evidence.append(
            f"Kernels that mostly move data take {bytes_ms:.2f} ms ({100 * bytes_ms / total:.0f} "
            "%): the two are close, so both are worth optimising."
        )
    if matrix >= MATRIX_SHARE * total:
        return "gpu_compute", evidence
    if matrix + unnamed_ms < MATRIX_SHARE * total or unnamed_ms < UNKNOWN_SHARE * total:
        return "gpu_memory", evidence
    evidence.append(
        f"Another {unnamed_ms:.2f} ms ({100 * unnamed_ms / total:.0f} %) go to kernels whose names "
        "do not show what they compute."
    )
    return "gpu", evidence


def whole_graphs_ms(analysis: Analysis) -> float:
    """Milliseconds a step in CUDA graphs whose kernels were not captured."""
    owned = analysis.owned
    if owned is None:
        return 0.0
    return int(owned.duration_ns[owned.kind == GRAPH].sum()) / 1e6 / analysis.step_count


def launches_of(analysis: Analysis, gpu: Device | None) -> Launches | None:
    owned = analysis.owned
    if owned is None or not (kernel := owned.kind == KERNEL).any():
        return None
    launched = np.zeros(int(owned.call.max()) + 2, bool)
    launched[owned.call] = True  # the last one stands for unknown calls, -1
    duration_ns = owned.duration_ns[kernel]
    small = duration_ns < SMALL_US * 1000
    if gpu is not None and gpu.sm_count:
        blocks = owned.operations.blocks[owned.row[kernel]]
        small |= (blocks >= 0) & (2 * blocks < gpu.sm_count)
    return Launches(
        per_step=int(launched[:-1].sum()) / analysis.step_count,
        mean_us=float(duration_ns.mean()) / 1e3,
        small_share=float(duration_ns[small].sum() / max(1, duration_ns.sum())),
    )


def counter(report: Report, part: str) -> float | None:
    for row in report.gpu_metrics or []:
        if part.lower() in row.name.lower() and row.mean_busy is not None:
            return row.mean_busy
    return None
