"""Find what may be wrong with a capture, so that nobody trusts it too far. Called by summary."""

from collections.abc import Iterator
from functools import partial
from itertools import chain

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.losses import Losses
from profiling.analysis.gpu_time.typical import are_typical
from profiling.analysis.gpu_work import roofline
from profiling.analysis.records import Finding, Health, LostKernels, Report, WindowFacts
from profiling.analysis.steps import periodic
from profiling.analysis.steps.find import used_gpus
from profiling.shared.manifest import Manifest
from profiling.shared.units import counted
from profiling.timeline.trace import GRAPH, Device, Trace

FEW_STEPS = 5
HIGH_OVERHEAD_PERCENT = 10.0
LOW_COVERAGE = 0.95
SLOW_START = 1.5  # the first step over the median of the rest
RESTLESS = 0.2  # interquartile range of the step times over their median
DISTURBANCES = ("evaluate", "checkpoint")
WHOLE_GRAPHS = "CUDA graphs were captured as a whole, without their kernels"
PERSONAL = (
    "the capture still contains personal data (environment variables, user, host or folder names)"
)
LEFT_OUT = "and is left out"
OTHERS = "this report is about"
# of the kernel time in kernels without a family: from here up families prove nothing, and it is
# worth a warning
UNKNOWN_SHARE = 0.2
TRACE_BOTH = "nsys profile --trace=cuda,nvtx"
CAPTURE_AGAIN = (
    "capture again: fewer steps (profile.steps=10), torch.cuda.synchronize() before the capture "
    "ends; nsys profile --cuda-flush-interval=1000 empties its buffers in time"
)


note, warning = partial(Finding, "note"), partial(Finding, "warning")


def health(
    analysis: Analysis, manifest: Manifest | None, report: Report, problem: str | None
) -> Health:
    """The health of a capture, whose `report` is complete but for its health and bottleneck.

    `problem` says why the run's own rows could not be read, or is None.
    """
    overhead, free_ms = overhead_percent(manifest, report.window), free_step_ms(manifest)
    is_measured = free_ms is not None and overhead is not None
    delay_ms = None if is_measured else recording_ms(analysis)
    lost = lost_kernels(analysis)
    findings = chain(
        loss_findings(analysis.losses),
        tool_findings(analysis.trace),
        overhead_findings(overhead, free_ms, report),
        manifest_findings(manifest, report.capture.gpu),
        step_findings(report, analysis.steps.unclosed, analysis.steps.endless),
        other_gpu_findings(analysis),
        content_findings(analysis.trace, report),
        [Finding("note", problem)] if problem else [],
    )
    return Health(overhead, free_ms, delay_ms, list(findings), lost)


def lost_kernels(analysis: Analysis) -> LostKernels | None:
    losses = analysis.losses
    if losses is None:
        return None
    percent = None if losses.share is None else 100 * losses.share
    return LostKernels(
        losses.kernels,
        losses.lost if losses.share is not None else None,
        percent,
        losses.allows_no_verdict,
        losses.sentence,
    )


def loss_findings(losses: Losses | None) -> Iterator[Finding]:
    if losses and losses.is_worth_a_warning:
        yield warning(losses.sentence, CAPTURE_AGAIN)


def free_step_ms(manifest: Manifest | None) -> float | None:
    """Step time without a profiler, or None; the overhead is relative to it."""
    return manifest.step_ms.free_ms if manifest else None


def overhead_percent(manifest: Manifest | None, window: WindowFacts) -> float | None:
    """Percentage by which captured steps are longer than those around them, or None.

    A manifest may have it of medians, which do not tell it of bursts, and of a step that the window
    leaves out.
    """
    if manifest is None:
        return None
    steps, written = manifest.step_ms, manifest.overhead_percent
    overhead = steps.overhead_percent if written is None or steps.bursts else written
    if overhead is not None and steps.free_ms and window.left_out_ms is not None:
        captured_ms = window.step_ms.mean if steps.bursts else window.step_ms.median
        overhead = 100 * (captured_ms / steps.free_ms - 1)
    return overhead


def free_step_range_ms(manifest: Manifest) -> tuple[float, float] | None:
    """Range of the step time without a profiler: of the medians and means before and after the
    window, since a fault of some steps is in a mean alone.

    None where one side is missing: a fault may have begun with the window, or ended with it.
    """
    before, after = manifest.step_ms.before, manifest.step_ms.after
    if not (before and after):
        return None
    means = [float(np.mean(laps.laps)) for laps in (before, after) if laps.laps]
    times_ms = [before.median, after.median, *means]
    return min(times_ms), max(times_ms)


def tool_findings(trace: Trace) -> Iterator[Finding]:
    yield from map(warning, trace.warnings)
    if trace.personal:
        cure = "python -m profiling scrub CAPTURE -o FILE"
        yield warning(PERSONAL, cure)


def overhead_findings(
    overhead: float | None, free: float | None, report: Report
) -> Iterator[Finding]:
    if overhead is None or free is None or overhead < HIGH_OVERHEAD_PERCENT:
        return
    cure = (
        "rely on the shares of GPU time, not on the step time; steps bound by kernel launches are "
        "affected most"
    )
    if report.on_cpu:
        cure = "rely on shares, not on times; steps of many short operators are affected most"
    yield warning(
        f"capturing made a step {overhead:.0f} % longer: {report.window.step_ms.median:.2f} ms "
        f"here, {free:.2f} ms without a profiler",
        cure,
    )


def manifest_findings(manifest: Manifest | None, gpu: Device | None) -> Iterator[Finding]:
    if manifest is None:
        yield note(
            "no manifest: configuration and uncaptured step times are unknown",
            "keep the window-N.json that the trainer writes next to its capture, or give "
            "--manifest",
        )
        return
    if graphs := manifest.compiled_inside.graphs:
        what = f"torch.compile compiled {graphs} graphs inside the window"
        yield warning(what, "a later profile.start=")
    if manifest.window.ended_by:
        yield warning(f"the window ended early: {manifest.window.ended_by}")
    for error in manifest.window.errors:
        yield warning(f"while capturing: {error}")
    if gpu and (why := roofline.missing_reason(manifest, gpu.name)):
        yield note(f"no roofline: {why}")


def step_findings(report: Report, unclosed: int, endless: int) -> Iterator[Finding]:
    steps, values = report.window.steps, report.window.step_ms.values
    if report.window.step_name is None:
        cure = (
            "put ranges around your steps and phases, or name existing ones: --step NAME --phases "
            "a,b"
        )
        yield warning("no range recurs as steps do: the whole capture counts as one step", cure)
    elif report.window.step_name == periodic.STEP_NAME:
        yield note(
            f"no range marks a step: one is what the launches repeat, every "
            f"{report.window.step_ms.median:.2f} ms; it may be a block of a model instead",
            "put ranges around your steps, or name existing ones: --step NAME",
        )
    elif steps < FEW_STEPS:
        yield note(f"only {steps} steps: their spread is not reliable", "profile.steps=20")
    if (left_out_ms := report.window.left_out_ms) is not None:
        yield note(
            f"the first recorded step took {left_out_ms:.2f} ms, the others "
            f"{report.window.step_ms.median:.2f}, {LEFT_OUT}: it holds the start of the profiler "
            "and the work that the warm-up had queued"
        )
    if steps >= 3 and values[0] > SLOW_START * (rest := float(np.median(values[1:]))):
        yield note(
            f"the first step took {values[0]:.2f} ms, the rest {rest:.2f}: the window starts "
            "with an empty queue, or before the program has warmed up",
            "use the median, or start the window later",
        )
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75)) if values else (0.0, 0.0, 0.0)
    if high - low > RESTLESS * middle:
        yield warning(
            f"the step times vary a lot: the fastest quarter took at most {low:.2f} ms, the "
            f"slowest quarter at least {high:.2f} ms; something outside the program may "
            "have delayed it",
            "capture again on a quieter machine, or look at the step times on the page (--html)",
        )
    for row in report.phases:
        if row.name in DISTURBANCES:
            what = f"{row.name} ran {counted(row.count, 'time')} inside the window"
            trainer = report.program.framework == "trainer"
            key = "profile.start=" if trainer else "python -m profiling run --start"
            yield warning(what, f"move the window: {key}")
    if unclosed:
        yield note(f"{unclosed} ranges were still open when the capture ended")
    if endless:
        cure = "pop each range that is pushed, or capture again with larger buffers or fewer steps"
        lost = "1 range lost its end" if endless == 1 else f"{endless} ranges lost their ends"
        yield warning(
            f"{lost}: such a step ends where the next one starts, and such a phase is left out",
            cure,
        )


def changes_figures(finding: Finding) -> bool:
    """Whether the finding says how to read the figures, and so belongs beside them."""
    return finding.level == "warning" or OTHERS in finding.what or LEFT_OUT in finding.what


def other_gpu_findings(analysis: Analysis) -> Iterator[Finding]:
    """A note where the capture holds other processes or GPUs than the report's."""
    used, steps = used_gpus(analysis.trace), analysis.steps
    if len(used) < 2:
        return
    held = ", ".join(f"process {process} on GPU {device}" for process, device, _ in used[:8])
    one_process = len({process for process, *_ in used}) == 1
    what, flag = ("GPUs", "--device") if one_process else ("processes with a GPU", "--process")
    yield note(
        f"{OTHERS} GPU {steps.device} of process {steps.process}, one of {len(used)} {what} in the "
        f"capture ({held}); sums of kernels, calls and copies cover all of them",
        f"to report on another one: {flag}",
    )


def content_findings(trace: Trace, report: Report) -> Iterator[Finding]:
    phases_from = report.window.phases_from
    if phases_from is None and (trace.ranges is None or not len(trace.ranges.start_ns)):
        yield warning("no ranges were captured: no phases", TRACE_BOTH)
    if report.on_cpu:
        return
    if trace.operations is None:
        cure = "capture with --trace=cuda,nvtx, or ProfilerActivity.CUDA, on a machine with a GPU"
        yield warning("no GPU activity was captured", cure)
        return
    if trace.calls is None and not (report.attribution and report.attribution.coverage):
        yield warning("no CUDA calls were captured: kernels belong to no phase", TRACE_BOTH)
    if np.any(trace.operations.kind == GRAPH):
        cure = "nsys profile --cuda-graph-trace=node"
        yield warning(WHOLE_GRAPHS, cure)
    total_ms, other_ms = sum(report.family_ms.values()), report.family_ms.get("other", 0.0)
    if other_ms >= UNKNOWN_SHARE * total_ms > 0:
        share = 100 * other_ms / total_ms
        yield warning(f"{share:.0f} % of the kernel time is in kernels whose names match no family")
    covered = report.attribution.coverage if report.attribution else None
    if covered is not None and covered < LOW_COVERAGE and phases_from:
        what = f"{100 * covered:.1f} % of the kernel time belongs to a phase"
        yield warning(what, "name the phases: --phases a,b")
    if phases_from == "operators":
        yield note(
            "phases are inferred from PyTorch's operators",
            "put ranges around the phases in the program",
        )


def recording_ms(analysis: Analysis) -> list[float] | None:
    """Milliseconds that recorded events delayed a typical step: [least, likely, most], or None.

    A step without a profiler is another question, which whatif answers: the host as a whole is
    slower while it is captured.
    """
    if (cost := analysis.profiler_cost) is None:
        return None
    chosen = are_typical(np.diff(analysis.bounds_ns))
    delay_ms: list[float] = (cost.step_ns[:, chosen].mean(axis=1) / 1e6).tolist()
    return delay_ms
