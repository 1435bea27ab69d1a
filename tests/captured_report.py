"""A report of a real capture, with a manifest such as its run writes, for the tests of outputs."""

from functools import cache
from pathlib import Path
from typing import Any

from profiling.analysis.summary import summarize
from profiling.timeline.opening import open_capture
from profiling.timeline.trace import Trace

CAPTURES = Path(__file__).resolve().parent / "captures"
SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "captures"
CONFIG = {
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
}
FREE_MS = 13.5
MANIFEST = {
    "schema_version": 1,
    "kind": "nsys",
    "window": {"first_iteration": 100, "last_iteration": 119, "steps": 20, "complete": True},
    "step_ms": {
        when: {"median": FREE_MS, "laps": [FREE_MS] * 20}
        for when in ("before", "after", "captured")
    },
    "overhead_percent": 3.0,
    "vocab_size": 65,
    "world_size": 1,
    "config": CONFIG,
    "environment": {"torch": "2.11.0+cu130", "gpu": "NVIDIA H200"},
    "attention": {"requested": "slow", "kernels": []},
    "compile": {"compile": False},
}


@cache
def trace_of(name: str = "slow_eager") -> Trace:
    return open_capture(CAPTURES / f"{name}.sqlite.gz")


def report_of(name: str = "slow_eager", manifest: dict[str, Any] | None = MANIFEST) -> dict:
    """A new dict each time."""
    return summarize(trace_of(name), manifest, manifest and "window-1.json")


def nothing_captured() -> dict[str, Any]:
    """The report of a capture that holds ranges alone: everything else is null."""
    report = report_of(manifest=None)
    absent = ("gpu", "attribution", "breakdown", "idle", "allocations", "gpu_metrics", "operators")
    report |= dict.fromkeys((*absent, "attention_backend", "roofline", "run"))
    report |= {"kernels": [], "families": [], "api": [], "memops": []}
    report["ranges"] = [row | {"gpu_ms": None, "kernels": None} for row in report["ranges"]]
    report["bottleneck"] = {
        "verdict": "unknown",
        "evidence": [],
        "next": [],
        "ranked": [],
        "cannot_tell": ["what the GPU did: no GPU activity was captured"],
    }
    return report
