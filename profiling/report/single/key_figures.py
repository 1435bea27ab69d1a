"""Key figures of a report, as (name, figure): step times, the GPU, the process, the coverage."""

from profiling.analysis.records import Report
from profiling.shared.units import ABSENT, milliseconds, percent, size_bytes


def key_figures(report: Report) -> list[tuple[str, str]]:
    """The figures that everyone asks for first, as (name, figure)."""
    typical, mfu = report.typical, report.roofline and report.roofline.mfu
    if (step_ms := judged_step_ms(report)) is None:
        step = ("whole capture", f"{milliseconds(report.window.wall_ms)} ms")
    else:
        kind = "typical" if typical else "mean" if report.on_cpu else "median"
        step = (f"{kind} step while captured", f"{milliseconds(step_ms)} ms")
    if report.on_cpu:
        return [step, *cpu_figures(report)]
    return [
        step,
        ("GPU busy", percent(typical.busy_percent if typical else None)),
        ("MFU", percent(100 * mfu if mfu else None)),
        ("attention kernels", report.attention_backend or ABSENT),
    ]


def judged_step_ms(report: Report) -> float | None:
    """The step time that the shares are of, in ms; None for a capture without steps."""
    if report.window.step_name is None:
        return None
    if report.typical:
        return report.typical.ms
    return report.window.step_ms.mean if report.on_cpu else report.window.step_ms.median


def other_step_times(report: Report) -> list[tuple[str, str]]:
    """Step times besides the one in `key_figures`, as (name, figure)."""
    if report.window.step_name is None:
        return []
    free_ms = report.health.free_step_ms
    without = "step without capturing", f"{milliseconds(free_ms)} ms" if free_ms else ABSENT
    if (estimated_ms := report.estimated_free_ms) is not None:
        about = f"about {milliseconds(estimated_ms)} ms, estimated"
        without = "mean step without capturing", about
    if not (report.typical or report.on_cpu):
        return [without]
    captured = f"{milliseconds(report.window.step_ms.median)} ms"
    return [("median step while captured", captured), without]


def step_spread(report: Report) -> tuple[str, str]:
    step = report.window.step_ms
    spread = [("min", step.min), ("mean", step.mean), ("p95", step.p95), ("max", step.max)]
    return "step, ms", ", ".join(f"{name} {milliseconds(ms)}" for name, ms in spread)


def coverage_figure(report: Report) -> list[tuple[str, str]]:
    if report.on_cpu:
        return []
    return [("kernel time that belongs to a phase", percent(coverage_percent(report)))]


def cpu_figures(report: Report) -> list[tuple[str, str]]:
    """The figures of the process, as (name, figure), if measured: an old manifest has none."""
    process = report.process
    if process is None:
        return []
    return [
        ("cores at work", ABSENT if process.cores_used is None else f"{process.cores_used:.1f}"),
        ("memory", size_bytes(process.memory_bytes)),
    ]


def coverage_percent(report: Report) -> float | None:
    known = report.attribution
    return None if known is None or known.coverage is None else 100 * known.coverage


def judged(report: Report) -> str:
    """Name of the time that the shares are of: the typical step, without a GPU the mean one, or a
    capture without steps."""
    if report.window.step_name is None:
        return "the whole capture"
    return "the mean step" if report.on_cpu else "the typical step"
