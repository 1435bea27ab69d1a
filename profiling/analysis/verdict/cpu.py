"""Describe the parts of a step on a CPU, for a run without a GPU. Called by diagnosis."""

from collections.abc import Iterator

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import distinct
from profiling.analysis.gpu_time.covers import ALL_KINDS, FUNCTIONS
from profiling.analysis.records import Bottleneck, Cover, RangeTotal, Report
from profiling.analysis.verdict.advice import advise
from profiling.analysis.verdict.cpu_operators import has_float64_inputs, operator_habits
from profiling.analysis.verdict.cpu_pauses import cover_of, cover_sentence, pause_sentences
from profiling.analysis.verdict.cpu_phases import PhaseHabits, phase_habits
from profiling.analysis.verdict.cpu_waits import HostTimes, host_times
from profiling.analysis.verdict.gpu import WAITING_SHARE
from profiling.shared.causes import VERDICT as TITLES
from profiling.shared.units import milliseconds, size_bytes

VERDICT = "cpu_only"
SHOWN = 3  # number of operators, and of phases, that are named
WAITING = 0.8  # cores: fewer than the training thread alone would use
WORTH_TELLING = 0.05  # of a step
WAITS = {  # class of cpu_waits -> the beginning of a sentence with its time
    "data": "The next batch is made while nothing else runs",
    "evaluation": "An evaluation runs inside the step",
    "checkpoint": "A checkpoint is saved inside the step",
    "logging": "Logging and metrics run inside the step",
    "communication": "Ranks exchange data, or wait for one another, while no operator runs",
    "cpu": "No operator runs between the phases that compute, only Python, files or waits",
}


def bottleneck(analysis: Analysis, report: Report, cannot_tell: list[str]) -> Bottleneck:
    """The bottleneck of a run without a GPU; `report` is complete but for its bottleneck.

    What takes WAITING_SHARE of a step without computing is the verdict, since nothing runs beside
    it: the class that takes most. Pauses between the phases are not, where one of the phases'
    habits takes more.
    """
    times = host_times(analysis)
    waiting = times.waiting_ms
    verdict, waited_ms = max(waiting.items(), key=lambda item: item[1], default=(VERDICT, 0.0))
    habits = phase_habits(analysis, report, times)
    outweighed = verdict == "cpu" and habits.most_ms > waited_ms
    if outweighed or waited_ms < WAITING_SHARE * report.window.step_ms.mean:
        verdict = VERDICT
    least_ms = WORTH_TELLING * report.window.step_ms.mean
    covers = {
        name: cover_of(analysis, times.by_class[name], ALL_KINDS if name == "cpu" else FUNCTIONS)
        for name, ms in waiting.items()
        if ms >= least_ms
    }
    settings = list(setting_sentences(report))
    evidence = [
        *settings,
        *habit_of_phases_sentences(analysis, report, habits),
        *waiting_sentences(analysis, report, times, covers),
        *phase_sentences(report),
        *operator_sentences(analysis, report, times),
        *process_sentences(analysis, report),
    ]
    if verdict == VERDICT:
        most = None if settings else most_to_gain(report, habits)  # these slow all operators
    else:
        most = f"{TITLES[verdict].title}, up to {share_of_step(report, waited_ms)}"
    return Bottleneck(
        verdict,
        evidence,
        advise(verdict, report, habits, covers["data"] if verdict == "data" else None),
        most_to_gain=most,
        cannot_tell=cannot_tell,
    )


def setting_sentences(report: Report) -> Iterator[str]:
    """Lines on settings, and a type, that slow all operators."""
    if report.program.anomaly_mode:
        yield "Autograd's anomaly mode is on: it keeps a traceback of each forward operator."
    if has_float64_inputs(report):
        yield "The model's inputs are float64, which takes twice the time of float32 or more."
    threads = report.process.compute_threads if report.process else None
    if threads and report.cpu_cores and threads > report.cpu_cores:
        yield f"PyTorch computes with {threads} threads on {report.cpu_cores} cores."


def habit_of_phases_sentences(
    analysis: Analysis, report: Report, habits: PhaseHabits
) -> Iterator[str]:
    """Lines on passes that are many, and on what runs in a phase or between two of them."""
    if passes := habits.small_passes:
        yield (
            f"A step has {passes.count:.0f} backwards, of small operators. With their forwards "
            f"they take {share_of_step(report, passes.ms)}."
        )
    if untrained := habits.untrained:
        yield (
            f"{untrained.count:.0f} forwards in a step are without gradients: "
            f"{share_of_step(report, untrained.ms)}."
        )
    if quiet := habits.quiet:
        yield (
            f"No operator runs in {quiet.phase} for {share_of_step(report, quiet.ms)}: Python, or "
            "code that PyTorch does not see."
        )
        if habits.function:
            yield cover_sentence(analysis, quiet.times, habits.function)
    if between := habits.between:
        where = "" if between.place is None else ", most behind {} and before {}"
        yield (
            f"Operators outside the phases take {share_of_step(report, between.ms)}"
            f"{where.format(*between.place or ())}."
        )


def waiting_sentences(
    analysis: Analysis, report: Report, times: HostTimes, covers: dict[str, Cover | None]
) -> Iterator[str]:
    """Lines on what takes time without computing, and on what the host does in most of it.

    `covers` has the classes that are worth a line, the longest first.
    """
    for name, cover in covers.items():
        yield f"{WAITS[name]}: {share_of_step(report, times.waiting_ms[name])}."
        if cover:
            yield cover_sentence(analysis, times.by_class[name], cover)
        if name == "cpu":
            yield from pause_sentences(analysis, report, times.by_class[name], cover)
        if name == "checkpoint" and report.window.phases_from == "operators":
            yield (
                "That it is a checkpoint is inferred: many tensors are detached, as by "
                "state_dict(), and then no operator runs."
            )


def longest_phase(report: Report) -> RangeTotal | None:
    return max(report.phases, key=lambda row: row.host_ms, default=None)


def share_of_step(report: Report, ms: float) -> str:
    """The share of a step that `ms` milliseconds are: '16.36 of 29.63 ms per step (55 %)'."""
    step_ms = report.window.step_ms.mean
    return f"{milliseconds(ms)} of {milliseconds(step_ms)} ms per step ({100 * ms / step_ms:.0f} %)"


def phase_sentences(report: Report) -> Iterator[str]:
    steps, step_ms = report.window.steps, report.window.step_ms.mean
    if not report.phases:
        return
    first, *others = sorted(report.phases, key=lambda row: -row.host_ms)
    phases = [
        f"{row.name} {milliseconds(row.host_ms / steps)} ms"
        for row in others[:SHOWN]
        if row.host_ms / steps >= WORTH_TELLING * step_ms
    ]
    then = f"; then {', '.join(phases)}" if phases else ""
    share = share_of_step(report, first.host_ms / steps)
    yield f"The longest phase is {first.name}: {share}{then}."


def operator_sentences(analysis: Analysis, report: Report, times: HostTimes) -> Iterator[str]:
    """Lines on how much of a step PyTorch's operators take, and which ones take most."""
    if analysis.trace.operators is None or not report.operators:
        return
    busy_ms = times.operators.total_ns() / 1e6 / analysis.step_count
    yield f"Operators take {share_of_step(report, busy_ms)}, Python and waits the rest."
    yield from habit_sentences(report)
    step_ms = report.window.step_ms.mean
    longest = [
        f"{row.name} {milliseconds(ms)} ms ({100 * ms / step_ms:.0f} %)"
        for row in report.operators[:SHOWN]
        for ms in [row.self_ns / 1e6 / analysis.step_count]
    ]
    yield f"Operators with the most time per step: {', '.join(longest)}."


def habit_sentences(report: Report) -> Iterator[str]:
    """Lines on how operators are used."""
    habits = operator_habits(report)
    if habits.small:
        count, us = habits.small
        yield (
            f"Most operators are small: {count:,} calls per step of {us:.1f} us on average, "
            "about what PyTorch needs to start one."
        )
    for what, ms in (
        ("Copies of tensors (copy_, contiguous, clone, to) take", habits.copies_ms),
        ("Attention is written out, and its softmax alone takes", habits.softmax_ms),
        ("Gradients as large as an embedding's whole table take", habits.dense_ms),
    ):
        if ms is not None:
            yield f"{what} {share_of_step(report, ms)}."


def process_sentences(analysis: Analysis, report: Report) -> Iterator[str]:
    """Lines on the cores and the memory that the process used, as far as they were measured."""
    process, table = report.process, analysis.trace.operators
    if process and process.cores_used is not None:
        of_cores = f" of {report.cpu_cores}" if report.cpu_cores else ""
        threads = process.compute_threads
        in_threads = "1 thread" if threads == 1 else f"{threads} threads"
        shared = f"; PyTorch computes with {in_threads}" if threads else ""
        yield f"On average {process.cores_used:.1f}{of_cores} cores were at work{shared}."
        if process.cores_used < WAITING:
            yield (
                "The process had to wait: for files, other processes or a lock, or because other "
                "programs used the cores."
            )
    elif table is not None and (mine := table.process == analysis.steps.process).any():
        count = len(np.unique(distinct(table.thread[mine])))
        yield f"Operators were called on {count} thread{'s' if count != 1 else ''}."
    if process and process.memory_bytes is not None:
        yield f"The process used {size_bytes(process.memory_bytes)} of memory."


def most_to_gain(report: Report, habits: PhaseHabits) -> str | None:
    if not report.operators:
        return None
    largest, steps = report.operators[0], report.window.steps
    if (small := operator_habits(report).small) is not None:
        count, us = small
        return f"fewer and larger operators, at most {share_of_step(report, count * us / 1000)}"
    if passes := habits.small_passes:
        return f"fewer and larger passes, at most {share_of_step(report, passes.ms)}"
    if untrained := habits.untrained:
        return f"forwards without gradients, at most {share_of_step(report, untrained.ms)}"
    if quiet := habits.quiet:
        return f"Python in {quiet.phase}, at most {share_of_step(report, quiet.ms)}"
    if (between := habits.between) and between.behind_the_passes:
        return f"operators outside the phases, at most {share_of_step(report, between.ms)}"
    return f"{largest.name}, at most {share_of_step(report, largest.self_ns / 1e6 / steps)}"
