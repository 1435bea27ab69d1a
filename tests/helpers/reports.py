"""Reports: one of a real capture with a manifest as its run writes it, and others made by hand.

Comparisons are tested on the latter, in which the time of each family of kernels and of each cause
of idle time is given.
"""

import statistics
from dataclasses import replace

from profiling.analysis.analysis import Analysis
from profiling.analysis.difference.compared import Compared, compared_capture
from profiling.analysis.records import (
    Bottleneck,
    Breakdown,
    Health,
    Idle,
    RangeTotal,
    Report,
    RunFacts,
    StepTimes,
)
from profiling.analysis.sum_records import FamilySum, KernelSum
from profiling.analysis.summary import summarize
from profiling.shared.causes import CAUSES
from profiling.shared.json_records import JsonObject
from profiling.shared.manifest import (
    AttentionFacts,
    CapturedWindow,
    CompileFacts,
    Laps,
    Manifest,
    WindowSteps,
)
from tests.helpers.captures import trace_of

CONFIG: JsonObject = {
    "n_layer": 6,
    "n_head": 6,
    "n_embd": 384,
    "block_size": 256,
    "batch_size": 64,
    "gradient_accumulation_steps": 1,
    "dtype": "bfloat16",
    "dropout": 0.2,
    "grad_clip": 1.0,
    "bias": False,
    "attention": "slow",
    "compile": False,
    "cuda_graphs": "false",
    "seed": 1337,
    "out_dir": "out-slow",
    "profile": {"kind": "nsys", "steps": 20},
    "wandb": {"mode": "disabled", "name": None},
}
PACKAGES = {"torch": "2.11.0+cu130", "triton": "3.6.0"}
GIT = {"commit": "0123456789abcdef", "dirty": False}
ENVIRONMENT = {"packages": PACKAGES, "cuda": "13.0", "cudnn": 91002, "git": GIT}
STEPS = 20
FREE_MS = 13.5
LAPS = Laps(FREE_MS, [FREE_MS] * STEPS)
MANIFEST = Manifest(
    schema_version=1,
    kind="nsys",
    window=CapturedWindow(first_iteration=100, last_iteration=119, steps=STEPS, complete=True),
    step_ms=WindowSteps(before=LAPS, captured=LAPS, after=LAPS),
    overhead_percent=3.0,
    vocab_size=65,
    attention=AttentionFacts("slow", "slow", "no fused kernel among 620 kernels"),
    compile=CompileFacts(False, False, 0, 0, None, None),
    environment={"packages": {"torch": "2.11.0"}, "gpus": [{"name": "NVIDIA H200"}]},
    config=CONFIG,
)


def report_with_manifest() -> Report:
    return summarize(Analysis(trace_of("slow_eager")), MANIFEST, "window-1.json")


def nothing_captured() -> Report:
    """Report of a capture that holds only ranges: everything else is null."""
    return summarize(Analysis(replace(trace_of("slow_eager"), operations=None, calls=None)))


def report(
    file: str,
    families: dict[str, float],
    idle: dict[str, float] | None = None,
    jitter: float = 0.01,
    config: dict | None = None,
    kernels: dict[str, str] | None = None,
) -> Report:
    """Report made by hand. `families` and `idle`: ms per step, which sum up to the step.

    `kernels`: name -> family.
    """
    idle = dict.fromkeys(CAUSES, 0.0) | (idle or {})
    mean = sum(families.values()) + sum(idle.values())
    values = [mean * (1 + jitter * (-1) ** i * (1 + i % 3) / 3) for i in range(STEPS)]
    idle["queue"] += statistics.fmean(values) - mean
    compute = sum(ms for name, ms in families.items() if name not in ("copy", "communication"))
    kernels = kernels or {f"{name}_kernel": name for name in families}
    nothing = nothing_captured()
    return replace(
        nothing,
        capture=replace(nothing.capture, file=file, manifest="window-0.json"),
        run=RunFacts(CONFIG | (config or {}), ENVIRONMENT, attention=None, compile=None),
        window=replace(nothing.window, wall_ms=sum(values), step_ms=step_times(values)),
        breakdown=Breakdown(
            compute_ms=compute,
            communication_ms=families.get("communication", 0.0),
            copy_ms=families.get("copy", 0.0),
            idle_ms=sum(idle.values()),
        ),
        ranges=[
            RangeTotal("forward", 0, STEPS, 0.2 * STEPS, 0.4 * mean * STEPS, 60, *4 * (0.2,)),
            RangeTotal("backward", 0, STEPS, 0.3 * STEPS, 0.6 * mean * STEPS, 60, *4 * (0.3,)),
        ],
        idle=Idle(by_cause=idle, by_phase={}, gaps=[]),
        family_ms=families,
        kernels=[kernel_sum(name, family, families[family]) for name, family in kernels.items()],
        families=[
            FamilySum(name, 6 * STEPS, int(ms * STEPS * 1e6), 0.0) for name, ms in families.items()
        ],
        attention_backend="slow",
        health=Health(overhead_percent=3.0, free_step_ms=mean * 0.97),
        bottleneck=Bottleneck("gpu_memory"),
    )


def step_times(values: list[float]) -> StepTimes:
    return StepTimes(
        median=statistics.median(values),
        mean=statistics.fmean(values),
        min=min(values),
        max=max(values),
        p95=max(values),
        values=values,
    )


def kernel_sum(name: str, family: str, ms: float) -> KernelSum:
    count, total_ns = 6 * STEPS, int(ms * STEPS * 1e6)
    each_ns = total_ns // count
    return KernelSum(name, count, total_ns, each_ns, each_ns, each_ns, each_ns, 0.0, 0.0, family)


def side(*words, **options) -> Compared:
    """Side of a comparison, from the arguments of `report`."""
    return compared_capture(report(*words, **options))


def slow_report() -> Report:
    families = {"gemm": 5.0, "attention": 4.1, "elementwise": 1.5}
    return report("slow.sqlite", families, {"launch": 0.2})


def flash_report() -> Report:
    return report(
        "flash.sqlite",
        {"gemm": 5.0, "attention": 0.9, "elementwise": 1.5},
        {"launch": 0.21},
        config={"attention": "flash", "out_dir": "out-flash"},
        kernels={
            "gemm_kernel": "gemm",
            "flash_fwd": "attention",
            "elementwise_kernel": "elementwise",
        },
    )


def slow() -> Compared:
    return compared_capture(slow_report())


def flash() -> Compared:
    return compared_capture(flash_report())
