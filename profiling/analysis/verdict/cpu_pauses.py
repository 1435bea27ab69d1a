"""Describe the pauses of a run without a GPU: where they lie and what went on. Called by cpu."""

from collections.abc import Iterator

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import Intervals, name_mask
from profiling.analysis.gpu_time.covers import tightest
from profiling.analysis.records import Cover, CoverKind, Report
from profiling.analysis.verdict.cpu_waits import OTHER
from profiling.shared.units import milliseconds

MOST = 0.5  # of the pauses


def pause_sentences(
    analysis: Analysis, report: Report, pauses: Intervals, cover: Cover | None
) -> Iterator[str]:
    """Lines on pauses, the times in which no phase computes and no operator runs."""
    pause_ms = pauses.total_ns() / 1e6 / analysis.step_count
    if cover is None and (place := between_phases(analysis, pauses)):
        before, after = place
        where = f"{before} and {after}" if before != after else f"one {before} and the next"
        yield f"Most of this time lies between {where}."
    if (how := at_work(report, pause_ms)) is not None:
        yield how


def cover_of(analysis: Analysis, times: Intervals, kinds: frozenset[CoverKind]) -> Cover | None:
    """Name of what the steps' thread did in most of these times."""
    thread = -1 if analysis.steps.thread is None else analysis.steps.thread
    return tightest(analysis, {thread: times}, analysis.step_count, "cpu", kinds)


def cover_sentence(analysis: Analysis, times: Intervals, cover: Cover) -> str:
    within = f" (in {cover.within})" if cover.within else ""
    samples = analysis.trace.sampled if analysis.trace.frames is None else None
    by = ""
    if samples is not None and cover.kind == "function":
        time_ns = np.unique(samples.start_ns)
        by = f", by {times.ns_within(time_ns, time_ns + 1).sum()} samples"
    return (
        f"{milliseconds(cover.ms)} of these {milliseconds(cover.of_ms)} ms are inside "
        f"{cover.name}{within}{by}."
    )


def between_phases(analysis: Analysis, pauses: Intervals) -> tuple[str, str] | None:
    """The phases between which most of the pauses lie, the earlier one first."""
    phases, names = analysis.steps.phases, analysis.trace.names
    known = phases.rows(~name_mask(names, phases.name, OTHER.__eq__))
    by_end = known.rows(np.argsort(known.end_ns, kind="stable"))
    first = np.searchsorted(by_end.end_ns, pauses.start_ns, side="right") - 1
    then = np.searchsorted(known.start_ns, pauses.end_ns)
    inner = (first >= 0) & (then < len(known.name))
    if not inner.any():
        return None
    pairs = np.stack([by_end.name[first[inner]], known.name[then[inner]]])
    length_ns = (pauses.end_ns - pauses.start_ns)[inner]
    kinds, which = np.unique(pairs, axis=1, return_inverse=True)
    total_ns = np.bincount(which.ravel(), weights=length_ns)
    most = int(total_ns.argmax())
    if total_ns[most] < MOST * pauses.total_ns():
        return None
    before, behind = (names[number].split("#")[0] for number in kinds[:, most])
    return before, behind


def at_work(report: Report, pause_ms: float) -> str | None:
    """Whether the process computed in its pauses or waited, where its CPU time leaves no doubt."""
    process, step_ms = report.process, report.window.step_ms.mean
    if process is None or process.cores_used is None:
        return None
    cpu_ms = process.cores_used * step_ms
    if cpu_ms < MOST * pause_ms:
        return (
            f"The process did not run for most of it ({milliseconds(cpu_ms)} ms of CPU time per "
            "step): it waits for files, a network, a lock or a sleep, or others use the cores."
        )
    if cpu_ms - (step_ms - pause_ms) * (process.compute_threads or 1) >= MOST * pause_ms:
        return (
            f"The process used {milliseconds(cpu_ms)} ms of CPU time per step: it computes in it "
            "outside of PyTorch, or PyTorch's idle threads spin."
        )
    return None
