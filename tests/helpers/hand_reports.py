"""Reports made by hand, and the sides that a comparison makes of them."""

import copy
import statistics

from profiling.analysis.difference.compared import Compared, compared_capture
from profiling.analysis.report import (
    Bottleneck,
    Breakdown,
    CaptureFacts,
    FamilySum,
    Health,
    Idle,
    KernelSum,
    RangeTotal,
    Report,
    RunFacts,
    StepTimes,
    WindowFacts,
)
from profiling.causes import CAUSES
from profiling.timeline.trace import Device

CONFIG = {
    "n_layer": 6,
    "attention": "slow",
    "compile": False,
    "cuda_graphs": "false",
    "batch_size": 64,
    "block_size": 256,
    "gradient_accumulation_steps": 1,
    "dtype": "bfloat16",
    "seed": 1337,
    "out_dir": "out-slow",
    "profile": {"kind": "nsys", "steps": 20},
    "wandb": {"mode": "disabled", "name": None},
}
PACKAGES = {"torch": "2.11.0+cu130", "triton": "3.6.0"}
GIT = {"commit": "0123456789abcdef", "dirty": False}
ENVIRONMENT = {"packages": PACKAGES, "cuda": "13.0", "cudnn": 91002, "git": GIT}
STEPS = 20


def report(
    file: str,
    families: dict[str, float],
    idle: dict[str, float] | None = None,
    jitter: float = 0.01,
    config: dict | None = None,
    kernels: dict[str, str] | None = None,
) -> Report:
    """`families` and `idle`: ms a step; the step is their sum. `kernels`: name -> family."""
    idle = dict.fromkeys(CAUSES, 0.0) | (idle or {})
    mean = sum(families.values()) + sum(idle.values())
    values = [mean * (1 + jitter * (-1) ** i * (1 + i % 3) / 3) for i in range(STEPS)]
    mean_of_values = sum(values) / STEPS
    idle["queue"] += mean_of_values - mean
    compute = sum(ms for name, ms in families.items() if name not in ("copy", "communication"))
    kernels = kernels or {f"{name}_kernel": name for name in families}
    step_ms = StepTimes(
        median=statistics.median(values),
        mean=mean_of_values,
        min=min(values),
        max=max(values),
        p95=max(values),
        values=values,
    )
    return Report(
        schema_version=1,
        capture=CaptureFacts(
            kind="nsys",
            file=file,
            tool_version=None,
            schema_version=None,
            devices=[Device(0, "NVIDIA H200")],
            manifest="window-0.json",
            personal=False,
            process=1,
            device=0,
        ),
        run=RunFacts(
            config=copy.deepcopy(CONFIG) | (config or {}),
            environment=copy.deepcopy(ENVIRONMENT),
            attention=None,
            compile=None,
        ),
        window=WindowFacts(
            steps=STEPS,
            wall_ms=sum(values),
            first_iteration=100,
            step_name="iteration",
            phases_from="ranges",
            step_ms=step_ms,
        ),
        gpu=None,
        breakdown=Breakdown(
            compute_ms=compute,
            communication_ms=families.get("communication", 0.0),
            copy_ms=families.get("copy", 0.0),
            idle_ms=sum(idle.values()),
        ),
        ranges=[
            RangeTotal("forward", 0, STEPS, 0.2 * STEPS, 0.4 * mean * STEPS, 60),
            RangeTotal("backward", 0, STEPS, 0.3 * STEPS, 0.6 * mean * STEPS, 60),
        ],
        attribution=None,
        idle=Idle(by_cause=idle, by_phase={}, gaps=[]),
        family_ms=families,
        kernels=[kernel_sum(name, family, families[family]) for name, family in kernels.items()],
        families=[
            FamilySum(name, 6 * STEPS, int(ms * STEPS * 1e6), 0.0) for name, ms in families.items()
        ],
        api=[],
        memops=[],
        allocations=None,
        gpu_metrics=None,
        operators=None,
        attention_backend="slow",
        roofline=None,
        health=Health(overhead_percent=3.0, free_step_ms=mean * 0.97, findings=[]),
        bottleneck=Bottleneck("gpu_memory", evidence=[], next=[], ranked=[], cannot_tell=[]),
    )


def kernel_sum(name: str, family: str, ms: float) -> KernelSum:
    count, total_ns = 6 * STEPS, int(ms * STEPS * 1e6)
    each_ns = total_ns // count
    return KernelSum(
        name, count, total_ns, each_ns, each_ns, each_ns, each_ns, 0.0, family, percent=0.0
    )


def side(*words, **options) -> Compared:
    """As `report` takes them."""
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
