"""Reports made by hand, as docs/report-schema.md has them: what tests of the comparison compare."""

import copy
import statistics

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
) -> dict:
    """`families` and `idle`: ms a step; the step is their sum. `kernels`: name -> family."""
    idle = {"launch": 0.0, "synchronization": 0.0, "data": 0.0, "cpu": 0.0, "queue": 0.0} | (
        idle or {}
    )
    mean = sum(families.values()) + sum(idle.values())
    values = [mean * (1 + jitter * (-1) ** i * (1 + i % 3) / 3) for i in range(STEPS)]
    mean_of_values = sum(values) / STEPS
    idle["queue"] += mean_of_values - mean
    compute = sum(ms for name, ms in families.items() if name not in ("copy", "communication"))
    kernels = kernels or {f"{name}_kernel": name for name in families}
    return {
        "schema_version": 1,
        "capture": {
            "kind": "nsys",
            "file": file,
            "devices": [{"id": 0, "name": "NVIDIA H200"}],
            "device": 0,
        },
        "run": {
            "config": copy.deepcopy(CONFIG) | (config or {}),
            "environment": copy.deepcopy(ENVIRONMENT),
        },
        "window": {
            "steps": STEPS,
            "step_name": "iteration",
            "step_ms": {
                "median": statistics.median(values),
                "mean": mean_of_values,
                "values": values,
            },
        },
        "ranges": [
            {"name": "forward", "depth": 0, "host_ms": 0.2 * STEPS, "gpu_ms": 0.4 * mean * STEPS},
            {"name": "backward", "depth": 0, "host_ms": 0.3 * STEPS, "gpu_ms": 0.6 * mean * STEPS},
        ],
        "breakdown": {
            "compute_ms": compute,
            "communication_ms": families.get("communication", 0.0),
            "copy_ms": families.get("copy", 0.0),
            "idle_ms": sum(idle.values()),
        },
        "idle": {"by_cause": idle},
        "kernels": [
            {
                "name": name,
                "family": family,
                "count": 6 * STEPS,
                "total_ns": int(families[family] * STEPS * 1e6),
            }
            for name, family in kernels.items()
        ],
        "families": [
            {"family": name, "total_ns": int(ms * STEPS * 1e6)} for name, ms in families.items()
        ],
        "attention_backend": "slow",
        "health": {"free_step_ms": mean * 0.97, "overhead_percent": 3.0, "findings": []},
        "bottleneck": {"verdict": "gpu_memory"},
    }


def slow() -> dict:
    return report(
        "slow.sqlite", {"gemm": 5.0, "attention": 4.1, "elementwise": 1.5}, {"launch": 0.2}
    )


def flash() -> dict:
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
