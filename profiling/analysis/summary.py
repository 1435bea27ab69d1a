"""Turn an analysis into the report's records (docs/report-schema.md). Called by open_report.

Parts that need rules have modules of their own; the simple ones are here.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.attribution import coverage, kernels_of_ranges
from profiling.analysis.gpu_time.covers import covers
from profiling.analysis.gpu_time.idle import Gaps
from profiling.analysis.gpu_time.launch_queue import launch_queue
from profiling.analysis.gpu_time.line_sums import lines
from profiling.analysis.gpu_time.operators import operator_work
from profiling.analysis.gpu_time.overlap import copy_speeds, overlap
from profiling.analysis.gpu_time.typical import typical_step
from profiling.analysis.gpu_work import sums
from profiling.analysis.gpu_work.families import attention_backend, gelu_in_products, ms_by_family
from profiling.analysis.gpu_work.launches import launches
from profiling.analysis.gpu_work.roofline import roofline
from profiling.analysis.records import (
    SCHEMA_VERSION,
    Breakdown,
    CaptureFacts,
    Gap,
    GpuTime,
    Idle,
    Program,
    ProgramSteps,
    RangeTotal,
    Report,
    RunFacts,
    StepTimes,
    WindowFacts,
)
from profiling.analysis.runs.run_clocks import RunClocks
from profiling.analysis.steps.steps import without_ids
from profiling.analysis.verdict.diagnosis import diagnose
from profiling.analysis.verdict.health import free_step_ms, health
from profiling.analysis.verdict.program import program_of
from profiling.analysis.whatif.whatif_records import WhatIf
from profiling.shared.causes import CAUSES
from profiling.shared.manifest import Manifest
from profiling.timeline.trace import KERNEL, Trace

MOST_GAPS = 10


def summarize(
    analysis: Analysis,
    manifest: Manifest | None = None,
    manifest_name: str | None = None,
    clocks: RunClocks | None = None,
    program_steps: ProgramSteps | None = None,
    what_if: WhatIf | None = None,
) -> Report:
    """The complete report of an analysis; its idle time is explained in a second thread.

    Raises ValueError for a step, phase or device that the capture does not hold.
    """
    trace = analysis.trace
    capture, window = capture_facts(analysis, manifest, manifest_name), window_facts(analysis)
    gpu, breakdown = gpu_time(analysis), breakdown_of(analysis)
    with ThreadPoolExecutor(1) as beside:  # numpy works without Python's lock, on another core
        idle, typical = beside.submit(idle_time, analysis), beside.submit(typical_step, analysis)
        beside.submit(getattr, analysis, "losses")  # which its health needs
        kernels, families = sums.kernels(analysis), family_ms(analysis)
        names = [row.name for row in kernels]
        own_run = None if manifest is None else manifest.config is not None
        program = program_of(analysis, own_run)
        backend = backend_of(names, program)
        report = Report(
            schema_version=SCHEMA_VERSION,
            capture=capture,
            run=run_facts(manifest, clocks, program_steps),
            window=window,
            gpu=gpu,
            breakdown=breakdown,
            ranges=range_totals(analysis),
            attribution=coverage(analysis.owned) if analysis.owned is not None else None,
            family_ms=families,
            kernels=kernels,
            launches=launches(analysis, capture.gpu),
            families=sums.sum_by_family(kernels),
            api=sums.calls(analysis.summed),
            os_calls=sums.os_calls(trace),
            memops=sums.memops(analysis.summed),
            copies=copy_speeds(analysis, capture.gpu),
            overlap=overlap(analysis),
            launch_queue=launch_queue(analysis),
            allocations=sums.allocations(analysis),
            gpu_metrics=sums.counters(analysis),
            operators=sums.operators(analysis),
            operator_work=operator_work(analysis, capture.gpu),
            lines=lines(analysis),
            attention_backend=backend,
            roofline=roofline(
                manifest,
                capture.gpu.name if capture.gpu else None,
                backend,
                families,
                free_step_ms(manifest) or window.step_ms.mean,
                gelu_in_products(names),
            ),
            program=program,
            what_if=what_if,
            idle=idle.result(),
            typical=typical.result(),
        )
    problem = clocks.problem if clocks else None
    report = replace(report, health=health(analysis, manifest, report, problem))
    return replace(report, bottleneck=diagnose(analysis, report))


def backend_of(names: list[str], program: Program) -> str | None:
    """The attention backend that the kernels' names tell; None where no attention was seen."""
    backend = attention_backend(names)
    attends = program.attention or program.framework == "trainer"
    return backend if attends or backend not in ("slow", "unknown") else None


def capture_facts(
    analysis: Analysis, manifest: Manifest | None, manifest_name: str | None
) -> CaptureFacts:
    trace, config = analysis.trace, (manifest and manifest.config) or {}
    on_cpu = "cpu" in (config.get("device"), manifest and manifest.device)
    return CaptureFacts(
        kind=trace.kind,
        file=trace.file.name,
        tool_version=trace.tool_version,
        schema_version=trace.schema_version,
        devices=trace.devices,
        manifest=manifest_name,
        personal=trace.personal,
        process=analysis.steps.process,
        device=analysis.steps.device,
        no_gpu=on_cpu or (trace.no_gpu and trace.operations is None),
    )


def run_facts(
    manifest: Manifest | None, clocks: RunClocks | None, program_steps: ProgramSteps | None
) -> RunFacts | None:
    if manifest is None:
        return None
    return RunFacts(
        manifest.config,
        manifest.environment,
        manifest.attention,
        manifest.compile,
        manifest.process,
        clocks.of_rank(manifest.rank) if clocks else None,
        program_steps,
    )


def window_facts(analysis: Analysis) -> WindowFacts:
    step_ms = np.diff(analysis.bounds_ns) / 1e6
    left_out_ns = analysis.steps.left_out_ns
    return WindowFacts(
        steps=len(step_ms),
        wall_ms=(analysis.end_ns - analysis.begin_ns) / 1e6,
        first_iteration=analysis.steps.first_iteration,
        step_name=analysis.steps.name,
        phases_from=analysis.steps.phases_from,
        step_ms=StepTimes(
            median=float(np.median(step_ms)),
            mean=float(step_ms.mean()),
            min=float(step_ms.min()),
            max=float(step_ms.max()),
            p95=float(np.percentile(step_ms, 95)),
            values=step_ms.tolist(),
        ),
        left_out_ms=None if left_out_ns is None else left_out_ns / 1e6,
    )


def gpu_time(analysis: Analysis) -> GpuTime | None:
    if analysis.activity is None:
        return None
    wall_ns = analysis.end_ns - analysis.begin_ns
    idle_ns = analysis.activity.idle.total_ns()
    busy_ns = wall_ns - idle_ns
    return GpuTime(busy_ns / 1e6, idle_ns / 1e6, 100 * busy_ns / wall_ns if wall_ns else 0.0)


def breakdown_of(analysis: Analysis) -> Breakdown | None:
    if (parts := analysis.split_ns) is None:
        return None
    ms = {f"{name}_ms": int(ns.sum()) / 1e6 / analysis.step_count for name, ns in parts.items()}
    return Breakdown(**ms)


def range_totals(analysis: Analysis) -> list[RangeTotal]:
    """Totals for each name and depth of ranges: host time, and the kernels that they own."""
    ranges, owned = analysis.steps.ranges, analysis.owned
    inside = np.flatnonzero(ranges.start_ns < analysis.end_ns)
    gpu_ns, kernels = kernels_of_ranges(owned) if owned is not None else (None, None)
    totals = []
    keys = ranges.name[inside] * 64 + np.minimum(ranges.depth[inside], 63)
    host_ns = (ranges.end_ns - ranges.start_ns)[inside]
    durations = dict(sums.durations_by_name(keys, host_ns))
    for key in dict.fromkeys(keys.tolist()):
        rows = inside[keys == key]
        count, total_ns, _, *single_ns = durations[key]
        median_ms, min_ms, max_ms, stddev_ms = (ns / 1e6 for ns in single_ns)
        totals.append(
            RangeTotal(
                name=without_ids(analysis.trace.names[key // 64]),
                depth=key % 64,
                count=count,
                host_ms=total_ns / 1e6,
                gpu_ms=None if gpu_ns is None else int(gpu_ns[rows].sum()) / 1e6,
                kernels=None if kernels is None else int(kernels[rows].sum()),
                min_ms=min_ms,
                median_ms=median_ms,
                max_ms=max_ms,
                stddev_ms=stddev_ms,
            )
        )
    return totals


def idle_time(analysis: Analysis) -> Idle | None:
    gaps, owning_phase = analysis.gaps, analysis.owning_phase
    if gaps is None or owning_phase is None:
        return None
    # a gap counts for the phase that launched the operation after it
    phase = np.where(gaps.after >= 0, owning_phase[gaps.after], -1)
    names, steps = analysis.trace.names, analysis.step_count
    phase_ns = np.zeros((len(CAUSES), len(names) + 1), np.int64)  # the last column: no phase
    for total_ns, cause_ns in zip(phase_ns, gaps.cause_ns, strict=True):
        np.add.at(total_ns, phase, cause_ns)
    by_phase = {}
    for name in np.flatnonzero(phase_ns[:, :-1].any(axis=0)).tolist():
        of_phase = ms_by_cause(phase_ns[:, name], steps)
        by_phase[names[name]] = {cause: ms for cause, ms in of_phase.items() if ms}
    return Idle(
        by_cause=ms_by_cause(phase_ns.sum(axis=1), steps),
        by_phase=by_phase,
        gaps=longest_gaps(analysis, gaps, phase),
        covered_by=covers(analysis),
    )


def ms_by_cause(cause_ns: np.ndarray, steps: int) -> dict[str, float]:
    """Cause -> milliseconds a step, from (CAUSES,) nanoseconds over all steps."""
    return {cause: ns / 1e6 / steps for cause, ns in zip(CAUSES, cause_ns.tolist(), strict=True)}


def longest_gaps(analysis: Analysis, gaps: Gaps, phase: np.ndarray) -> list[Gap]:
    """The MOST_GAPS longest gaps, longest first.

    `phase` is (gaps,): index in Trace.names of the phase that launched the operation after the gap,
    or -1.
    """
    length_ns = gaps.end_ns - gaps.start_ns
    if not len(length_ns):
        return []
    rows = np.argpartition(-length_ns, min(MOST_GAPS, len(length_ns) - 1))[:MOST_GAPS].tolist()
    step = np.searchsorted(analysis.bounds_ns, gaps.start_ns, side="right") - 1
    return [
        Gap(
            start_ms=int(gaps.start_ns[row] - analysis.begin_ns) / 1e6,
            ms=int(length_ns[row]) / 1e6,
            step=int(min(step[row], analysis.step_count - 1)),
            cause=CAUSES[int(np.argmax(gaps.cause_ns[:, row]))],
            phase=analysis.trace.names[phase[row]] if phase[row] >= 0 else None,
            before=operation_name(analysis.trace, gaps.before[row]),
            after=operation_name(analysis.trace, gaps.after[row]),
        )
        for row in sorted(rows, key=lambda row: (-length_ns[row], row))
    ]


def operation_name(trace: Trace, row: int) -> str | None:
    if trace.operations is None or row < 0:
        return None
    return trace.names[int(trace.operations.name[row])]


def family_ms(analysis: Analysis) -> dict[str, float]:
    """Kernel time of each family in the steps, in ms per step."""
    owned = analysis.owned
    if owned is None:
        return {}
    kernel = owned.kind == KERNEL
    family = analysis.family[owned.name[kernel]]
    return ms_by_family(family, owned.duration_ns[kernel], analysis.step_count)
