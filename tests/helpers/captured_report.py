"""A report of a real capture, with a manifest such as its run writes, for the tests of outputs."""

from dataclasses import replace

from profiling.analysis.analysis import Analysis
from profiling.analysis.report import Bottleneck, Report
from profiling.analysis.summary import summarize
from profiling.manifest import (
    AttentionFacts,
    CapturedWindow,
    CompileFacts,
    Laps,
    Manifest,
    WindowSteps,
)
from profiling.records import JsonObject
from tests.helpers.real_captures import CAPTURES, trace_of
from tests.helpers.real_captures import REFERENCE as SHARED

__all__ = ["CAPTURES", "SHARED", "trace_of"]  # for the tests of outputs
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
}
FREE_MS = 13.5
LAPS = Laps(FREE_MS, [FREE_MS] * 20)
MANIFEST = Manifest(
    schema_version=1,
    kind="nsys",
    window=CapturedWindow(first_iteration=100, last_iteration=119, steps=20, complete=True),
    step_ms=WindowSteps(before=LAPS, captured=LAPS, after=LAPS),
    overhead_percent=3.0,
    vocab_size=65,
    attention=AttentionFacts("slow", "slow", "no fused one in 620 kernels"),
    compile=CompileFacts(False, False, 0, 0, None, None),
    environment={"packages": {"torch": "2.11.0"}, "gpus": [{"name": "NVIDIA H200"}]},
    config=CONFIG,
)


def report_of(name: str = "slow_eager", manifest: Manifest | None = MANIFEST) -> Report:
    return summarize(Analysis(trace_of(name)), manifest, "window-1.json" if manifest else None)


def nothing_captured() -> Report:
    """The report of a capture that holds ranges alone: everything else is null."""
    report = report_of(manifest=None)
    return replace(
        report,
        gpu=None,
        breakdown=None,
        attribution=None,
        idle=None,
        family_ms={},
        kernels=[],
        families=[],
        api=[],
        memops=[],
        ranges=[replace(row, gpu_ms=None, kernels=None) for row in report.ranges],
        attention_backend=None,
        bottleneck=Bottleneck(cannot_tell=["what the GPU did: no GPU activity was captured"]),
    )
