"""Names the bottleneck, with its evidence and what to try next. Called by summary.

1. What keeps the GPU waiting is ranked by the milliseconds a step that it costs: idle time by cause
   (gpu_time.idle), copies of the data phase that nothing hides (data), and exposed
   communication. From 15 % of the step on, the largest is the verdict. Where the manifest knows the
   step without a profiler, what capturing added is taken off `launch` and `cpu` first: host time.
2. Otherwise the GPU is the bottleneck: gpu_latency if its kernels are too small to fill it, or wait
   for one another; else gpu_compute if matrix products and fused attention make up half of its busy
   time, else gpu_memory. Hardware counters decide instead where they are decided.

A wait for the GPU is no finding by itself: it counts only as the idle time that it causes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.breakdown import exclusive_copies
from profiling.analysis.gpu_time.idle import BLOCKING, DATA_PHASES
from profiling.analysis.report import Bottleneck, Gain, GpuTime, Health, Report
from profiling.analysis.verdict.advice import advise
from profiling.causes import PART, VERDICT
from profiling.timeline.trace import COPY, KERNEL, Device

WAITING_SHARE = 0.15
WORTH_TELLING = 0.02  # of a step
MATRIX_FAMILIES = ("gemm", "convolution", "attention")
MATRIX_SHARE = 0.5
SMALL_US = 5.0
SMALL_SHARE = 0.5
SATURATED_PERCENT = 60.0  # of a hardware counter


@dataclass(frozen=True)
class Launches:
    """What is launched in the steps, and how well single kernels fill the GPU."""

    per_step: float  # calls that launched an operation
    mean_us: float
    small_share: float  # of kernel time, in kernels that are short or have few blocks


def diagnose(analysis: Analysis, report: Report) -> Bottleneck:
    """`report`: all but its bottleneck is there."""
    cannot = list(cannot_tell(report))
    if report.gpu is None or report.breakdown is None or not report.window.step_ms.mean:
        evidence = list(host_sentences(report))
        return Bottleneck("unknown", evidence, advise("unknown", report), [], cannot)
    copy_ms, launches = data_copy_ms(analysis), launches_of(analysis, report.capture.gpu)
    lost, taken_off = lost_ms(report, copy_ms)
    step_ms = max(report.window.step_ms.mean - taken_off, 1e-9)
    waiting = {name: ms for name, ms in lost.items() if VERDICT[name].waiting}
    evidence = [busy_sentence(report, report.gpu)]
    if taken_off >= WORTH_TELLING * step_ms:
        evidence.append(overhead_sentence(report.health, taken_off))
    if report.idle is None and report.breakdown.idle_ms >= WAITING_SHARE * step_ms:
        verdict = "unknown"
        evidence.append("Why it was idle cannot be told without the CUDA calls.")
    elif sum(waiting.values()) >= WAITING_SHARE * step_ms:
        waiting = dict(sorted(waiting.items(), key=lambda item: -item[1]))
        verdict = next(iter(waiting))
        evidence += waiting_sentences(waiting, step_ms)
        evidence += host_details(report, verdict, waiting[verdict], launches)
        if verdict == "data" and copy_ms >= WORTH_TELLING * step_ms:
            evidence.append(f"Copies of the data phase run alone for {copy_ms:.2f} ms a step.")
    else:
        verdict, why = gpu_verdict(report, launches, lost.get("gpu_latency", 0.0), step_ms)
        evidence += why
    return Bottleneck(verdict, evidence, advise(verdict, report), ranking(report, lost), cannot)


def data_copy_ms(analysis: Analysis) -> float:
    """Milliseconds a step in which copies that the data phase launched run alone."""
    owned, activity = analysis.owned, analysis.activity
    if owned is None or activity is None:
        return 0.0
    is_data = owned.steps.phases_called(analysis.trace.names, DATA_PHASES)
    chosen = (owned.kind == COPY) & (owned.phase >= 0)
    chosen[chosen] = is_data[owned.phase[chosen]]
    alone_ns = exclusive_copies(activity, owned.start_ns[chosen], owned.end_ns[chosen])
    return int(alone_ns.sum()) / 1e6 / analysis.step_count


def launches_of(analysis: Analysis, gpu: Device | None) -> Launches | None:
    owned = analysis.owned
    if owned is None or not (kernel := owned.kind == KERNEL).any():
        return None
    launched = np.zeros(int(owned.call.max()) + 2, bool)
    launched[owned.call] = True  # the last is that of an unknown call, -1
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


def lost_ms(report: Report, copy_ms: float) -> tuple[dict[str, float], float]:
    """(verdict -> ms of the step that it costs, ms of the host's time that capturing added)."""
    parts = report.parts_ms
    if report.idle is None or parts is None:
        return {}, 0.0
    parts["data"] += copy_ms
    host_ms = sum(ms for name, ms in parts.items() if PART[name].host)
    taken_off = min(added_ms(report.health), host_ms)
    lost: dict[str, float] = {}
    for name, ms in parts.items():
        if PART[name].host and host_ms:
            ms -= taken_off * ms / host_ms
        if verdict := PART[name].verdict:
            lost[verdict] = lost.get(verdict, 0.0) + ms
    return lost, taken_off


def added_ms(health: Health) -> float:
    """By how much capturing lengthened a step."""
    return max(0.0, (health.free_step_ms or 0.0) * (health.overhead_percent or 0.0) / 100)


def ranking(report: Report, lost: dict[str, float]) -> list[Gain]:
    """What each class would give back at most, in ms a step, the largest first.

    Of the GPU's classes it is the time above the roofline's floor, of families without a floor all.
    """
    floors = report.roofline.families if report.roofline else []
    percent = {row.family: row.percent_of_bound for row in floors}
    gains = lost | {"gpu_compute": 0.0, "gpu_memory": 0.0}
    for family, ms in report.family_ms.items():
        if family != "communication":
            above = max(0.0, ms * (1 - percent.get(family, 0.0) / 100))
            gains["gpu_compute" if family in MATRIX_FAMILIES else "gpu_memory"] += above
    ranked = [Gain(verdict, ms) for verdict, ms in gains.items() if ms > 0]
    return sorted(ranked, key=lambda gain: -gain.recoverable_ms_per_step)


def gpu_verdict(
    report: Report, launches: Launches | None, latency_ms: float, step_ms: float
) -> tuple[str, list[str]]:
    """(verdict, evidence) for a GPU that is kept busy."""
    if latency_ms >= WAITING_SHARE * step_ms:
        share = 100 * latency_ms / step_ms
        text = f"{latency_ms:.2f} ms a step ({share:.0f} %) pass between kernels that are queued."
        return "gpu_latency", [text]
    if launches and (launches.small_share >= SMALL_SHARE or launches.mean_us < SMALL_US):
        text = (
            f"A kernel takes {launches.mean_us:.1f} us on average; "
            f"{100 * launches.small_share:.0f} % of the kernel time is in kernels that are "
            f"shorter than {SMALL_US:.0f} us or have blocks for less than half of the SMs."
        )
        return "gpu_latency", [text]
    read, written = counter(report, "DRAM Read"), counter(report, "DRAM Write") or 0.0
    if read is not None and read + written >= SATURATED_PERCENT:
        return "gpu_memory", [f"DRAM is used to {read + written:.0f} % while the GPU is busy."]
    tensor = counter(report, "Tensor Active")
    if tensor is not None and tensor >= SATURATED_PERCENT:
        return "gpu_compute", [f"Tensor cores are active {tensor:.0f} % of the busy time."]
    return by_families(report.family_ms)


def by_families(family_ms: dict[str, float]) -> tuple[str, list[str]]:
    total = sum(family_ms.values()) or 1.0
    matrix = sum(family_ms.get(name, 0.0) for name in MATRIX_FAMILIES)
    text = (
        f"Matrix products and fused attention take {matrix:.2f} of {total:.2f} ms kernel time a "
        f"step ({100 * matrix / total:.0f} %)."
    )
    top = sorted(family_ms, key=lambda name: -family_ms[name])[:3]
    largest = ", ".join(f"{name} {family_ms[name]:.2f} ms" for name in top)
    name = "gpu_compute" if matrix >= MATRIX_SHARE * total else "gpu_memory"
    return name, [text, f"The largest families: {largest} a step."]


def counter(report: Report, part: str) -> float | None:
    for row in report.gpu_metrics or []:
        if part.lower() in row.name.lower() and row.mean_busy is not None:
            return row.mean_busy
    return None


def busy_sentence(report: Report, gpu: GpuTime) -> str:
    return (
        f"The GPU is busy {gpu.busy_percent:.0f} % of the time: "
        f"{gpu.busy_ms / report.window.steps:.2f} of {report.window.step_ms.mean:.2f} ms a step."
    )


def host_sentences(report: Report) -> Iterator[str]:
    """What can be said of a capture without a GPU."""
    yield "Without GPU activity in the capture the bottleneck cannot be named."
    if report.phases:
        longest = max(report.phases, key=lambda row: row.host_ms)
        ms = longest.host_ms / report.window.steps
        yield f"The longest phase on the host: {longest.name}, {ms:.2f} ms a step."


def waiting_sentences(waiting: dict[str, float], step_ms: float) -> list[str]:
    return [
        f"{ms:.2f} ms a step ({100 * ms / step_ms:.0f} %): {VERDICT[name].waiting}."
        for name, ms in waiting.items()
        if ms >= WORTH_TELLING * step_ms
    ]


def overhead_sentence(health: Health, taken_off: float) -> str:
    return (
        f"Capturing made a step {health.overhead_percent:.0f} % longer "
        f"({health.free_step_ms:.2f} ms without it): {taken_off:.2f} ms of the idle time are "
        "not held against the host."
    )


def host_details(
    report: Report, verdict: str, ms: float, launches: Launches | None
) -> Iterator[str]:
    """Where the `ms` of the verdict come from."""
    if report.idle is None or verdict == "data":
        return
    of_phase = {
        phase: sum(part for cause, part in causes.items() if PART[cause].verdict == verdict)
        for phase, causes in report.idle.by_phase.items()
    }
    phase, most = max(of_phase.items(), key=lambda item: item[1], default=(None, 0.0))
    if phase is not None and 2 * most >= ms:
        yield f"Most of it is before what {phase} launches: {most:.2f} ms a step."
    if verdict == "launch" and launches and launches.per_step:
        yield f"{launches.per_step:.0f} launches a step."
    waits = [row for row in report.api if BLOCKING.fullmatch(row.name)]
    if verdict == "synchronization" and waits:
        often = max(waits, key=lambda row: row.count)
        yield f"{often.name} was called {often.count} times in the capture."


def cannot_tell(report: Report) -> Iterator[str]:
    """What is missing, and the option that would have captured it."""
    if report.window.phases_from is None:
        yield "which phase is slow: no phase ranges: --step NAME --phases a,b"
    if report.breakdown is None:
        yield "anything about the GPU: no GPU activity was captured: --trace=cuda,nvtx"
        return
    if report.idle is None:
        yield "why the GPU was idle: CUDA calls were not captured: --trace=cuda,nvtx"
    if report.gpu_metrics is None:
        yield "how well kernels use the SMs: GPU metrics were not captured: --preset metrics"
    if report.roofline is None:
        yield (
            "how far kernels are from the GPU's peaks: no roofline, see health; gpu_compute and "
            "gpu_memory are ranked by their whole kernel time"
        )
