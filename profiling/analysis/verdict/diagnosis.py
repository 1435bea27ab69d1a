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

from dataclasses import dataclass
from typing import Any

from profiling.analysis.gpu_time.idle import BLOCKING
from profiling.analysis.verdict.advice import advice

HOST_CLASSES = ("launch", "synchronization", "data", "cpu", "communication")
WAITING_SHARE = 0.15
WORTH_TELLING = 0.02  # of a step
MATRIX_FAMILIES = ("gemm", "attention")
MATRIX_SHARE = 0.5
SMALL_US = 5.0
SMALL_SHARE = 0.5
SATURATED_PERCENT = 60.0  # of a hardware counter
WORDS = {
    "launch": "work had not been launched yet (CUDA API and the framework's dispatch)",
    "synchronization": "the host had waited for the GPU and launched too late after it",
    "data": "the next batch was being prepared or copied",
    "cpu": "the host was busy with something else (Python)",
    "communication": "only communication ran",
}


@dataclass(frozen=True)
class Launches:
    """What is launched in the window, and how well single kernels fill the GPU. None: not known."""

    per_step: float | None  # calls that launched an operation
    mean_us: float | None
    small_share: float | None  # of kernel time, in kernels that are short or have few blocks


def diagnose(report: dict[str, Any], launches: Launches, data_copy_ms: float) -> dict[str, Any]:
    """The dict `bottleneck` of a report whose other parts are there.

    `data_copy_ms`: copies of the data phase that no kernel hides, a step.
    """
    cannot = cannot_tell(report)
    if report["breakdown"] is None or not report["window"]["step_ms"]["mean"]:
        return verdict(report, "unknown", host_sentences(report), [], cannot)
    waiting, taken_off = waiting_ms(report, data_copy_ms)
    step_ms = max(report["window"]["step_ms"]["mean"] - taken_off, 1e-9)
    evidence = [busy_sentence(report)]
    if taken_off >= WORTH_TELLING * step_ms:
        evidence.append(overhead_sentence(report, taken_off))
    ranked = ranking(report, waiting)
    if waiting is None:
        if report["breakdown"]["idle_ms"] >= WAITING_SHARE * step_ms:
            evidence.append("Why it was idle cannot be told without the CUDA calls.")
            return verdict(report, "unknown", evidence, ranked, cannot)
    elif sum(waiting.values()) >= WAITING_SHARE * step_ms:
        largest = max(waiting, key=waiting.get)
        for name in sorted(waiting, key=waiting.get, reverse=True):
            if waiting[name] >= WORTH_TELLING * step_ms:
                evidence.append(waiting_sentence(name, waiting[name], step_ms))
        evidence += host_details(report, largest, waiting[largest], launches)
        if largest == "data" and data_copy_ms >= WORTH_TELLING * step_ms:
            evidence.append(f"Copies of the data phase run alone for {data_copy_ms:.2f} ms a step.")
        return verdict(report, largest, evidence, ranked, cannot)
    name, why = gpu_class(report, launches, step_ms)
    return verdict(report, name, evidence + why, ranked, cannot)


def verdict(
    report: dict[str, Any],
    name: str,
    evidence: list[str],
    ranked: list[dict[str, Any]],
    cannot: list[str],
) -> dict[str, Any]:
    return {
        "verdict": name,
        "evidence": evidence,
        "next": advice(name, report),
        "ranked": ranked,
        "cannot_tell": cannot,
    }


def waiting_ms(
    report: dict[str, Any], data_copy_ms: float
) -> tuple[dict[str, float] | None, float]:
    """(class -> ms a step that the GPU waits, ms of the host's time that capturing added)."""
    if report["idle"] is None:
        return None, 0.0
    causes = report["idle"]["by_cause"]
    found = {name: causes.get(name, 0.0) for name in HOST_CLASSES}
    found["data"] += data_copy_ms
    found["communication"] = report["breakdown"]["communication_ms"]
    health = report["health"]
    added = 0.0
    if health["free_step_ms"] and (health["overhead_percent"] or 0) > 0:
        added = health["free_step_ms"] * health["overhead_percent"] / 100
    slowed = found["launch"] + found["cpu"]
    taken_off = min(added, slowed)
    for name in ("launch", "cpu"):
        found[name] -= taken_off * found[name] / slowed if slowed else 0.0
    return found, taken_off


def ranking(report: dict[str, Any], waiting: dict[str, float] | None) -> list[dict[str, Any]]:
    """What each class would give back at most, in ms a step, the largest first.

    Of the GPU's classes it is the time above the roofline's floor, of families without a floor all.
    """
    found = dict(waiting or {})
    if report["idle"] is not None:
        found["gpu_latency"] = report["idle"]["by_cause"]["queue"]
    floors = {row["family"]: row for row in (report["roofline"] or {}).get("families", [])}
    above = {"gpu_compute": 0.0, "gpu_memory": 0.0}
    for family, ms in report["family_ms"].items():
        if family == "communication":
            continue
        row = floors.get(family)
        if row is not None:
            ms = max(0.0, ms * (1 - row["percent_of_bound"] / 100))
        above["gpu_compute" if family in MATRIX_FAMILIES else "gpu_memory"] += ms
    found |= above
    rows = [{"class": name, "recoverable_ms_per_step": ms} for name, ms in found.items() if ms > 0]
    return sorted(rows, key=lambda row: -row["recoverable_ms_per_step"])


def gpu_class(report: dict[str, Any], launches: Launches, step_ms: float) -> tuple[str, list[str]]:
    """(verdict, evidence) for a GPU that is kept busy."""
    queue_ms = report["idle"]["by_cause"]["queue"] if report["idle"] else 0.0
    if queue_ms >= WAITING_SHARE * step_ms:
        share = 100 * queue_ms / step_ms
        text = f"{queue_ms:.2f} ms a step ({share:.0f} %) pass between kernels that are queued."
        return "gpu_latency", [text]
    tensor, dram = counter(report, "Tensor Active"), counter(report, "DRAM Read")
    written = counter(report, "DRAM Write")
    small = launches.small_share is not None and launches.small_share >= SMALL_SHARE
    if launches.mean_us is not None and (small or launches.mean_us < SMALL_US):
        text = f"A kernel takes {launches.mean_us:.1f} us on average"
        if launches.small_share is not None:
            text += (
                f"; {100 * launches.small_share:.0f} % of the kernel time is in kernels that are "
                f"shorter than {SMALL_US:.0f} us or have blocks for less than half of the SMs"
            )
        return "gpu_latency", [text + "."]
    if dram is not None and dram + (written or 0.0) >= SATURATED_PERCENT:
        text = f"DRAM is used to {dram + (written or 0.0):.0f} % while the GPU is busy."
        return "gpu_memory", [text]
    if tensor is not None and tensor >= SATURATED_PERCENT:
        return "gpu_compute", [f"Tensor cores are active {tensor:.0f} % of the busy time."]
    return by_families(report)


def by_families(report: dict[str, Any]) -> tuple[str, list[str]]:
    families = report["family_ms"]
    total = sum(families.values()) or 1.0
    matrix = sum(families.get(name, 0.0) for name in MATRIX_FAMILIES)
    text = (
        f"Matrix products and fused attention take {matrix:.2f} of {total:.2f} ms kernel time a "
        f"step ({100 * matrix / total:.0f} %)."
    )
    top = sorted(families, key=families.get, reverse=True)[:3]
    largest = ", ".join(f"{name} {families[name]:.2f} ms" for name in top)
    name = "gpu_compute" if matrix >= MATRIX_SHARE * total else "gpu_memory"
    return name, [text, f"The largest families: {largest} a step."]


def counter(report: dict[str, Any], part: str) -> float | None:
    for row in report["gpu_metrics"] or []:
        if part.lower() in row["name"].lower() and row["mean_busy"] is not None:
            return row["mean_busy"]
    return None


def busy_sentence(report: dict[str, Any]) -> str:
    steps, gpu = report["window"]["steps"], report["gpu"]
    return (
        f"The GPU is busy {gpu['busy_percent']:.0f} % of the time: {gpu['busy_ms'] / steps:.2f} of "
        f"{report['window']['step_ms']['mean']:.2f} ms a step."
    )


def host_sentences(report: dict[str, Any]) -> list[str]:
    """What can be said of a capture without a GPU."""
    found = ["Without GPU activity in the capture the bottleneck cannot be named."]
    phases = [row for row in report["ranges"] if row["depth"] == 0]
    if phases:
        longest = max(phases, key=lambda row: row["host_ms"])
        ms = longest["host_ms"] / report["window"]["steps"]
        found.append(f"The longest phase on the host: {longest['name']}, {ms:.2f} ms a step.")
    return found


def waiting_sentence(name: str, ms: float, step_ms: float) -> str:
    return f"{ms:.2f} ms a step ({100 * ms / step_ms:.0f} %): {WORDS[name]}."


def overhead_sentence(report: dict[str, Any], taken_off: float) -> str:
    health = report["health"]
    return (
        f"Capturing made a step {health['overhead_percent']:.0f} % longer "
        f"({health['free_step_ms']:.2f} ms without it): {taken_off:.2f} ms of the idle time are "
        "not held against the host."
    )


def host_details(report: dict[str, Any], name: str, ms: float, launches: Launches) -> list[str]:
    """Where the `ms` of the class that won come from."""
    if report["idle"] is None or name in ("communication", "data"):
        return []
    found = []
    of_phase = {phase: ms.get(name, 0.0) for phase, ms in report["idle"]["by_phase"].items()}
    phase = max(of_phase, key=of_phase.get, default=None)
    if phase is not None and 2 * of_phase[phase] >= ms:
        most = of_phase[phase]
        found.append(f"Most of it is before what {phase} launches: {most:.2f} ms a step.")
    if name == "launch" and launches.per_step:
        found.append(f"{launches.per_step:.0f} launches a step.")
    if name == "synchronization":
        waits = [row for row in report["api"] if BLOCKING.fullmatch(row["name"])]
        if waits:
            often = max(waits, key=lambda row: row["count"])
            found.append(f"{often['name']} was called {often['count']} times in the capture.")
    return found


def cannot_tell(report: dict[str, Any]) -> list[str]:
    """What is missing, and the option that would have captured it."""
    found = []
    if report["window"]["phases_from"] is None:
        found.append("which phase is slow: no phase ranges: --step NAME --phases a,b")
    if report["breakdown"] is None:
        found.append("anything about the GPU: no GPU activity was captured: --trace=cuda,nvtx")
        return found
    if report["idle"] is None:
        found.append("why the GPU was idle: CUDA calls were not captured: --trace=cuda,nvtx")
    if report["gpu_metrics"] is None:
        found.append(
            "how well kernels use the SMs: GPU metrics were not captured: --preset metrics"
        )
    if report["roofline"] is None:
        found.append(
            "how far kernels are from the GPU's peaks: no roofline, see health; gpu_compute and "
            "gpu_memory are ranked by their whole kernel time"
        )
    return found
