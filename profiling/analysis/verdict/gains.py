"""Say what a step could gain, and rank the classes by it. Called by verdict.diagnosis.

No class gains more than the step without a profiler has room for: its idle time, and what the GPU
does for that class itself, as copies. Recorded events explain less than capturing adds where it
slows the host as a whole, so what they leave may be more.
"""

from profiling.analysis.records import BUSY_PARTS, Gain, Report, TypicalStep
from profiling.analysis.verdict import copies, gpu
from profiling.analysis.verdict.advice import above_roof_ms, most_above_roof
from profiling.shared.causes import PART, VERDICT
from profiling.shared.units import ROUNDING_MS


def possible_gains_ms(
    report: Report, step: TypicalStep, lost: dict[str, float]
) -> dict[str, float]:
    """Verdict -> the most that a step can gain, where `lost` is what each one costs."""
    most_idle_ms = free_idle_ms(report, step)
    possible, read_ms = {}, copies.numbers_ms(report)
    for name, ms in lost.items():
        busy_ms = sum(step.parts_ms[part] for part in BUSY_PARTS if PART[part].verdict == name)
        if name == "synchronization":
            busy_ms += read_ms
        possible[name] = min(ms, most_idle_ms + busy_ms)
    return possible


def free_idle_ms(report: Report, step: TypicalStep) -> float:
    """The step without a profiler, measured or estimated, less the time for which the GPU is busy.

    The idle time of the typical step where nobody knows that step.
    """
    free_ms = report.health.free_step_ms
    if free_ms is None:
        free_ms = report.estimated_free_ms
    return step.idle_ms if free_ms is None else max(0.0, free_ms - step.busy_ms)


def ranking(
    report: Report,
    possible: dict[str, float],
    verdict: str,
    computing: dict[str, float],
    step: TypicalStep,
) -> list[Gain]:
    """The most that each class could give back, in ms per step, the largest first.

    `computing` is kernel time of a step by family, without communication. The GPU's classes could
    give back the time above the roofline's floor, or all time of a family without a floor. They
    give back nothing while the GPU waits for a host that does not wait for it: kernels that end
    sooner would only make it wait longer.
    """
    floors = report.roofline.families if report.roofline else []
    percent = {row.family: row.percent_of_bound for row in floors}
    gains = possible | {"gpu_compute": 0.0, "gpu_memory": 0.0}
    waits = VERDICT[verdict].waiting is not None and verdict != "synchronization"
    if not waits:
        streaming = gpu.streaming_ms(report, computing)
        for family, ms in computing.items():
            above = max(0.0, ms * (1 - percent.get(family, 0.0) / 100))
            moves = streaming.get(family, 0.0) / ms if ms else 0.0
            matrix = 1 - moves if family in gpu.MATRIX_FAMILIES else 0.0
            gains["gpu_compute"] += matrix * above
            gains["gpu_memory"] += (1 - matrix) * above
    ranked = [
        Gain(name, ms)
        if ms > ROUNDING_MS
        else Gain(name, 0.0, why_nothing_to_gain(name, report, step, waits))
        for name, ms in gains.items()
    ]
    return sorted(ranked, key=lambda gain: -gain.recoverable_ms_per_step)


def why_nothing_to_gain(verdict: str, report: Report, step: TypicalStep, waits: bool) -> str:
    """The reason why a class has 0 to gain; `waits`: on a host that does not wait for the GPU."""
    if verdict in ("gpu_compute", "gpu_memory"):
        if waits:
            return "while the GPU waits, faster kernels would only make it wait longer"
        return "no such kernel ran, or all are at their roof"
    if verdict == "copies" and copies.numbers_ms(report):
        return "only single numbers went to the host, which counts as synchronization"
    if any(ms for name, ms in step.parts_ms.items() if PART[name].verdict == verdict):
        return "capturing added as much"
    if verdict in ("copies", "communication"):
        which = "from or to the host " if verdict == "copies" else ""
        return f"none {which}ran, or kernels hid all of it"
    return "the GPU was not idle for this reason"


def host_ms(costs_ms: dict[str, float]) -> float:
    """The part of these costs, by verdict, that is the host's."""
    return sum(ms for name, ms in costs_ms.items() if VERDICT[name].host)


def most_to_gain(
    report: Report,
    verdict: str,
    possible: dict[str, float],
    computing: dict[str, float],
    step: TypicalStep,
) -> str | None:
    """The one thing to work on, with the most it could gain, or None if nothing can be said."""
    gains = possible | {"host": min(host_ms(possible), free_idle_ms(report, step))}
    if verdict in gains:
        return f"{VERDICT[verdict].title}, up to {gains[verdict]:.2f} of {step.ms:.2f} ms per step"
    if most := most_above_roof(report.roofline):
        return (
            f"{most.family}, up to {above_roof_ms(most):.2f} of {step.ms:.2f} ms per step "
            f"(it runs at {most.percent_of_bound:.0f} % of its roof)"
        )
    if verdict == "unknown" or not computing:
        return None
    family, ms = max(computing.items(), key=lambda item: item[1])
    return (
        f"{family}, {ms:.2f} of {step.ms:.2f} ms per step (without a roofline we cannot say "
        "how much of it can be saved)"
    )
