"""Questions that a capture leaves open. Called by verdict.diagnosis."""

from collections.abc import Iterator

from profiling.analysis.records import Report
from profiling.analysis.verdict.advice import is_of_driver_alone


def cannot_tell(report: Report) -> Iterator[str]:
    """Questions that the capture leaves open, each with the option that would have answered it."""
    if report.window.phases_from is None:
        yield "which phase is slow: no phase ranges: --step NAME --phases a,b"
    if report.breakdown is None:
        if not report.on_cpu:
            yield "anything about the GPU: no GPU activity was captured: --trace=cuda,nvtx"
        return
    if is_of_driver_alone(report):
        yield (
            "whether the host waited for the GPU or allocated memory: of CUDA's driver, which the "
            "program calls, torch.profiler records only launches: nsys profile "
            "--trace=cuda,nvtx,osrt"
        )
    elif report.idle is None:
        yield "why the GPU was idle: CUDA calls were not captured: --trace=cuda,nvtx"
    if report.gpu_metrics is None:
        how = "nsys profile --gpu-metrics-devices=all"
        if report.program.framework == "trainer":
            how = "python -m profiling run --preset metrics"
        yield f"how well kernels use the SMs: GPU metrics were not captured: {how}"
    if report.roofline is None:
        yield (
            "how far kernels are from the GPU's peaks: there is no roofline (the health of the "
            "capture says why)"
        )
