"""Parts of a report as answers: how long, where idle, which kernels. Nothing is computed here."""

from collections.abc import Callable
from typing import Literal

from profiling.agent import memory as of_memory
from profiling.agent.answer import Answer, Name, Number, Row
from profiling.agent.rows import numbered
from profiling.analysis.memory.memory_records import MemoryReport
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.analysis.records import Report
from profiling.report.ranks import document as of_ranks
from profiling.report.single.verdict_line import verdict_line
from profiling.shared.units import milliseconds

Section = Literal[
    "step", "idle", "kernels", "lines", "memory", "ranges", "roofline", "ranks", "health"
]
LINE = "place function exact ms percent count longest"
MEMOP = "operation count total_ns total_bytes pageable"
RANGE = "name depth count host_ms gpu_ms median_ms"
RANK = "rank step_ms compute_ms idle_ms communication.wait_ms communication.transfer_ms bottleneck"
NO_GPU = "no GPU activity is in the capture; capture with profile=nsys or profile=torch on a GPU"


def verdict(report: Report | RanksReport | MemoryReport, key: str) -> Answer:
    """Answer with what limits the step, the evidence, and what each cause could gain."""
    if isinstance(report, MemoryReport):
        return of_memory.verdict(report, key)
    if isinstance(report, RanksReport):
        return ranks(report, key)
    found = report.bottleneck
    numbers = {"median_step": Number(report.window.step_ms.median, "ms")}
    if report.gpu:
        numbers["gpu_busy"] = Number(report.gpu.busy_percent, "% of the window")
    cannot_tell = list(found.cannot_tell)
    if found.verdict == "unknown":
        cannot_tell.append(report.health.no_verdict or "what limits the step; see section health")
    return Answer(
        f"{verdict_line(report)}.",
        numbers | overhead(report),
        found.evidence,
        numbered(key, "gain", found.ranked, "class recoverable_ms_per_step why_none"),
        [*filter(None, [found.most_to_gain]), *found.next],
        cannot_tell,
        [f"{key}/typical", f"{key}/finding"],
    )


def overhead(report: Report) -> dict[str, Number]:
    """Time that capturing added to a step, if measured; else the estimated step without it."""
    health, free_ms = report.health, report.estimated_free_ms
    if health.overhead_percent is not None:
        return {"capturing_added": Number(health.overhead_percent, "% of the step, measured")}
    return {} if free_ms is None else {"without_profiler_estimated": Number(free_ms, "ms")}


def step(report: Report, key: str) -> Answer:
    times, window = report.window.step_ms, report.window
    numbers = {
        "median": Number(times.median, "ms", (times.min, times.max)),
        "mean": Number(times.mean, "ms"),
        "p95": Number(times.p95, "ms"),
        "steps": Number(window.steps, "captured steps"),
    }
    free = report.health.free_step_ms
    numbers |= {"without_profiler": Number(free, "ms")} if free is not None else {}
    unknown = "the step without a profiler: no manifest lies beside the capture; `run` writes one"
    parts: dict[str, float] = report.typical.parts_ms if report.typical else {}
    of = f"the {report.typical.of_steps} typical steps" if report.typical else "no GPU activity"
    return Answer(
        f"A step takes {milliseconds(times.median)} ms, the median of {window.steps}; the interval "
        f"is from the shortest to the longest. Rows: parts of {of}.",
        numbers | overhead(report),
        rows=[{"part": name, "ms": ms} for name, ms in parts.items() if ms],
        cannot_tell=[unknown] if free is None else [],
        evidence=[f"{key}/step", f"{key}/typical"],
    )


def idle(report: Report, key: str) -> Answer:
    if report.breakdown is None or report.gpu is None:
        return Answer("How long the GPU is idle is not known.", cannot_tell=[NO_GPU])
    numbers = {
        "idle": Number(report.breakdown.idle_ms, "ms per step"),
        "busy": Number(report.gpu.busy_percent, "% of the window"),
    }
    if report.idle is None:
        why = "why the GPU is idle: the capture has no CUDA calls; trace cuda"
        return Answer("The GPU's idle time is known, not its causes.", numbers, cannot_tell=[why])
    rows: list[Row] = []
    for cause, ms in sorted(report.idle.by_cause.items(), key=lambda item: -item[1]):
        cover = report.idle.covered_by.get(cause)
        row: Row = {"cause": cause, "ms_per_step": ms}
        covered: Row = {"covered_by": Name(cover.name), "ms_covered": cover.ms} if cover else {}
        rows.append(row | covered)
    return Answer(
        f"The GPU is idle {milliseconds(report.breakdown.idle_ms)} ms of a mean step, mostly by "
        f"{rows[0]['cause']}.",
        numbers | overhead(report),
        rows=rows,
        evidence=[f"{key}/gap", f"{key}/queue"],
    )


def kernels(report: Report, key: str) -> Answer:
    if not report.kernels:
        return Answer("No kernel is in the capture.", cannot_tell=[NO_GPU])
    numbers = {"kernels": Number(len(report.kernels), "names")}
    families = [f"{row.family} {row.percent:.1f} %" for row in report.families[:6]]
    return Answer(
        "Kernels over the whole capture, equal to nsys stats, the longest first.",
        numbers,
        [f"Shares of kernel time by family: {', '.join(families)}."],
        numbered(key, "kernel", report.kernels, "name family total_ns percent count avg_ns"),
        evidence=[f"{key}/family", f"{key}/launch"],
    )


def lines(report: Report, key: str) -> Answer:
    found = report.lines
    if found is None:
        why = (
            "which line made a kernel: the capture has no stacks of Python; profile.stack=true, "
            "`run --stack`, or torch.profiler with with_stack=True record them"
        )
        return Answer("Lines of the program are not known.", cannot_tell=[why])
    share = {} if found.percent is None else {"with_line": Number(found.percent, "% of the time")}
    return Answer(
        f"Lines of the program's own code by the time of their {found.of}, ms a step; backward "
        "counts for the line of its forward, or of the call of backward.",
        share,
        rows=numbered(key, "line", found.lines, LINE),
    )


def memory(report: Report, key: str) -> Answer:
    unknown = (
        "device memory that the program holds: allocations were not captured; nsys with "
        "--cuda-memory-usage=true or torch.profiler with profile_memory=True records them"
    )
    held = report.allocations
    numbers = {}
    if held:
        numbers = {
            "peak": Number(held.peak_bytes, "bytes above what was held when the window began"),
            "allocated": Number(held.allocated_bytes, "bytes in the window"),
            "allocations": Number(held.count, "calls"),
        }
    return Answer(
        "Copies and memsets over the whole capture, equal to nsys stats.",
        numbers,
        rows=numbered(key, "memop", report.memops, MEMOP),
        cannot_tell=[] if held else [unknown],
        evidence=[f"{key}/copy"],
    )


def ranges(report: Report, key: str) -> Answer:
    if not report.ranges:
        why = "times of phases: the capture has no ranges; capture by `run`, or mark them with nvtx"
        return Answer("The capture has no ranges.", cannot_tell=[why])
    return Answer(
        f"Ranges over {report.window.steps} steps; depth 0 is a phase, gpu_ms of its kernels.",
        rows=numbered(key, "range", report.ranges, RANGE),
    )


def roofline(report: Report, key: str) -> Answer:
    found = report.roofline
    if found is None:
        about = (each for each in report.health.findings if "roofline" in each.what)
        why = [f"{each.what}; {each.cure or 'nothing cures that'}" for each in about]
        without = "a roofline needs the model's sizes: no manifest lies beside the capture; `run` "
        return Answer("The roofline is not known.", cannot_tell=why or [f"{without}writes one"])
    numbers = {
        "peak": Number(found.peak_tflops, "TFLOP/s"),
        "bandwidth": Number(found.peak_gbps, "GB/s"),
    }
    numbers |= {"mfu": Number(found.mfu, "share of the peak")} if found.mfu is not None else {}
    return Answer(
        "Families of kernels against the GPU's peaks, a step.",
        numbers,
        rows=numbered(key, "roofline", found.families),
        cannot_tell=[] if found.mfu is not None else ["mfu: no peak is known for this dtype"],
    )


def health(report: Report | RanksReport, key: str) -> Answer:
    findings = report.findings if isinstance(report, RanksReport) else report.health.findings
    warnings = sum(each.level == "warning" for each in findings)
    numbers = {"warnings": Number(warnings, "findings")}
    if isinstance(report, Report):
        numbers |= overhead(report)
        if (lost := report.health.lost_kernels) and lost.percent is not None:
            numbers["lost_kernels"] = Number(lost.percent, "% of those launched")
    said = f"{warnings} warnings and {len(findings) - warnings} notes about the capture."
    return Answer(said, numbers, rows=numbered(key, "finding", findings))


def ranks(report: Report | RanksReport, key: str) -> Answer:
    if isinstance(report, Report):
        why = "which rank is late: this is the capture of one rank; open a folder with those of all"
        return Answer("The capture is of one rank.", cannot_tell=[why])
    numbers = {"ranks": Number(len(report.ranks), "captures")}
    advice: list[str] = []
    if late := report.straggler:
        cost = Number(late.costs_ms_per_step, "ms per step", late.costs_between_ms)
        numbers |= {"late_rank": Number(late.rank, "rank"), "costs": cost}
        numbers |= {"gain_of_mending": Number(late.gains_ms_per_step, "ms per step")}
        advice = late.next
    unknown = ["which rank is late; see section health"] if report.verdict == "unknown" else []
    return Answer(
        f"{of_ranks.verdict_line(report)}.",
        numbers,
        [*dict.fromkeys([*report.evidence, *(late.evidence if late else [])])],
        numbered(key, "rank", report.ranks, RANK),
        advice,
        unknown,
        [f"{key}/collective", f"{key}/rank"],
    )


OF_ONE: dict[Section, Callable[[Report, str], Answer]] = {
    "step": step,
    "idle": idle,
    "kernels": kernels,
    "lines": lines,
    "memory": memory,
    "ranges": ranges,
    "roofline": roofline,
}
OF_BOTH: dict[Section, Callable[[Report | RanksReport, str], Answer]] = {
    "ranks": ranks,
    "health": health,
}


def section(report: Report | RanksReport | MemoryReport, key: str, name: Section) -> Answer:
    """Answer with the part of the report of that name."""
    if isinstance(report, MemoryReport):
        return of_memory.section(report, key, name)
    if both := OF_BOTH.get(name):
        return both(report, key)
    if isinstance(report, Report):
        return OF_ONE[name](report, key)
    why = f"{name}: this is a report of several ranks; open the capture of one"
    return Answer("That part is of a single rank.", cannot_tell=[why], rows=ranks(report, key).rows)
