"""Name the bottleneck, with its evidence and what to try next. Called by summary.

The typical step (gpu_time.typical) is judged, less the idle time that recording explains. It is
estimated for each cause from the recorded events (gpu_time.profiler_cost). If the manifest has the
measured time, verdict.capturing scales the estimates to it. Where the estimate's least and most
lead to different verdicts, the evidence gives both.

1. What keeps the GPU waiting is ranked by the milliseconds a step that it costs: idle time by cause
   (gpu_time.idle), and communication, and copies from and to the host, that no kernel hides (but
   copies of single numbers go with the waits for them, verdict.copies). The largest is the verdict
   if it is 15 % of the step or more, and the host costs no more than the GPU is idle in a step
   without a profiler, as the replay of whatif estimates it. The host's reasons count together for
   that; if two of them are about as large, or only their sum is the largest, the verdict is `host`.
   Allocation alone is certain, because the names of its calls show it: where it is the largest of
   all it is the verdict, whatever comes second. Where the causes are not known, copies or
   communication are the verdict if they take longer than the GPU is idle, else there is none.
2. Otherwise the GPU itself is the bottleneck, and verdict.gpu says why. This is also so where half
   of the step passes between kernels that are queued.

A run without a GPU is judged by verdict.cpu. A capture that lost too many kernels has no verdict.

The advice to `host` is that to its largest reasons.

A wait for the GPU is no finding by itself: it counts only as the idle time that it causes.
"""

from collections.abc import Iterator
from dataclasses import replace

from profiling.analysis.analysis import Analysis
from profiling.analysis.gpu_time.host_activity import BLOCKING, loader_is_marked
from profiling.analysis.gpu_time.profiler_cost import LEAST, MOST
from profiling.analysis.records import Bottleneck, Reading, Report, TypicalStep
from profiling.analysis.verdict import copies, cpu, gpu
from profiling.analysis.verdict.advice import advise, covers_of, is_of_driver_alone
from profiling.analysis.verdict.capturing import (
    WORTH_TELLING,
    added_by_capturing,
    explained_ms,
    judged_ms,
    overhead_sentence,
)
from profiling.analysis.verdict.gains import (
    free_idle_ms,
    host_ms,
    most_to_gain,
    possible_gains_ms,
    ranking,
)
from profiling.analysis.verdict.health import CAPTURE_AGAIN
from profiling.analysis.verdict.open_questions import cannot_tell
from profiling.shared.causes import PART, VERDICT

CLOSE = 0.6  # of the host's largest reason: a second one above it weighs about as much
# of a step: a host that waits for the GPU is as late as the kernels are long, so kernels that take
# four times as long as what the waits cost are the larger reason
SYNCHRONIZATION_SHARE = 0.2
ALLOCATES_SHARE = 0.1  # of a step: allocations have their advice, whatever limits the step
WORTH_ADVICE = 0.2  # of what the host costs; one of its five reasons is always as large
EACH = 2  # lines of advice for each of several reasons
MOSTLY_WAITING = 1 / 3  # of a step, for all reasons together
PER_STEP = " per step"
UNMARKED = (
    "whether the host made batches or something else for the GPU, such as noise: no loader or "
    "phase is marked, and the host was late around copies to the GPU: python -m profiling run, or "
    "ranges of the program with --step NAME --phases data,forward"
)


def diagnose(analysis: Analysis, report: Report) -> Bottleneck:
    """The bottleneck of a report that is complete but for its bottleneck."""
    found = bottleneck_of(analysis, report)
    if report.window.step_name is not None:
        return found
    most = found.most_to_gain
    return replace(  # the whole capture counts as one step, so its figures are of no step
        found,
        evidence=[line.replace(PER_STEP, "") for line in found.evidence],
        next=[line.replace(PER_STEP, "") for line in found.next],
        most_to_gain=most and most.replace(PER_STEP, ""),
    )


def bottleneck_of(analysis: Analysis, report: Report) -> Bottleneck:
    unknowns = list(cannot_tell(report))
    if reason := report.health.no_verdict:
        sentence = f"{reason}: records were lost, so the sums here are too small."
        unknowns = [f"what limits the step: {reason}", *unknowns]
        return Bottleneck(
            "unknown", [sentence], [f"To find out, {CAPTURE_AGAIN}."], cannot_tell=unknowns
        )
    if report.on_cpu:
        return cpu.bottleneck(analysis, report, unknowns)
    step = copies.as_kernels(report)
    if step is None or not step.ms:
        evidence = list(host_sentences(report))
        return Bottleneck("unknown", evidence, advise("unknown", report), cannot_tell=unknowns)
    off = added_by_capturing(report, step)
    lost, step_ms = lost_ms(report, step, off), judged_ms(step, off)
    waiting = {name: ms for name, ms in lost.items() if VERDICT[name].waiting}
    gaps_ms = lost.get("gpu_gaps", 0.0)
    different = readings(analysis, report, step)
    verdict, why = verdict_of(analysis, report, step, lost, step_ms)
    if verdict == "data" and not loader_is_marked(analysis.trace, analysis.steps):
        unknowns = [*unknowns, UNMARKED]
    if verdict == "unknown":
        why = [idle_sentence(report, step)]
    elif verdict in waiting or verdict == "host":  # several of them together
        waiting = dict(sorted(waiting.items(), key=lambda item: -item[1]))
        why = [*mode_sentences(report, waiting)]
        why += waiting_sentences(waiting, step.ms, cover_phrases(report))
        if gaps_ms >= gpu.WAITING_SHARE * step_ms:
            why.append(gpu.gaps_sentence(gaps_ms, step))
        why += details(analysis, report, verdict, waiting)
        if not idle_is_explained(report, step, step_ms):
            why.append(idle_sentence(report, step))
    else:
        why = [*replayed_sentences(report, step, waiting, step_ms), *why]
        why += gpu.clock_sentences(report)
        waits_ms = waiting.get("synchronization", 0.0)
        if waits_ms >= gpu.WAITING_SHARE * step_ms:
            why += waiting_sentences({"synchronization": waits_ms}, step.ms, cover_phrases(report))
    added = [overhead_sentence(report.health, off)] if off else []
    # the first screen shows only the first few
    evidence = [busy_sentence(step), *why[:1], *reading_sentences(different), *added, *why[1:]]
    evidence += typical_sentences(report, step)
    computing = {name: ms for name, ms in step.family_ms.items() if name != "communication"}
    possible = possible_gains_ms(report, step, lost)
    ranked = ranking(report, possible, verdict, computing, step)
    return Bottleneck(
        verdict,
        evidence,
        advice_of(verdict, report, waiting, step_ms),
        ranked,
        most_to_gain(report, verdict, possible, computing, step),
        unknowns,
        different,
    )


def advice_of(verdict: str, report: Report, waiting: dict[str, float], step_ms: float) -> list[str]:
    """Advice for the verdict, and for allocations that are none: a loop should have hardly any."""
    lines = advise(verdict, report)
    if verdict == "host":
        lines = [line for name in reasons_of_host(waiting) for line in advise(name, report)[:EACH]]
    if verdict == "allocation" or waiting.get("allocation", 0.0) < ALLOCATES_SHARE * step_ms:
        return list(dict.fromkeys(lines))
    return list(dict.fromkeys([*lines[:1], *advise("allocation", report)[:1], *lines[1:]]))


def reasons_of_host(waiting: dict[str, float]) -> list[str]:
    """The host's reasons that are worth advice, the one that costs most first.

    Waits for the GPU go before launches: no CUDA graph holds a step with such a wait.
    """
    ms = {name: ms for name, ms in waiting.items() if VERDICT[name].host}
    worth = [name for name in ms if ms[name] >= WORTH_ADVICE * sum(ms.values())]
    rank = ms | {"synchronization": max(ms.get("synchronization", 0.0), ms.get("launch", 0.0))}
    return sorted(worth, key=lambda name: (-rank[name], name != "synchronization"))


def verdict_of(
    analysis: Analysis, report: Report, step: TypicalStep, lost: dict[str, float], step_ms: float
) -> tuple[str, list[str]]:
    """(the verdict, what proves it if the GPU itself is the bottleneck).

    `lost` is what lost_ms says; `step_ms` is the step without what capturing added.
    """
    gaps_ms = lost.get("gpu_gaps", 0.0)
    waiting = {name: ms for name, ms in lost.items() if VERDICT[name].waiting}
    if not idle_is_explained(report, step, step_ms):
        # no reason of the host's takes longer than all idle time
        longest = max(waiting, key=waiting.__getitem__, default="unknown")
        return longest if waiting.get(longest, 0.0) > step.idle_ms else "unknown", []
    idle_ms = free_idle_ms(report, step)
    named = waiting_verdict(waiting, min(step_ms, step.busy_ms + idle_ms), idle_ms)
    if named and 2 * gaps_ms < step_ms:
        return named, []
    return gpu.verdict(analysis, report, step, gaps_ms, step_ms)


def replayed_sentences(
    report: Report, step: TypicalStep, waiting: dict[str, float], step_ms: float
) -> Iterator[str]:
    """Say how long a step is without a profiler, where the host looks late in the capture."""
    free_ms = report.estimated_free_ms
    if free_ms is not None and host_ms(waiting) >= gpu.WAITING_SHARE * step_ms:
        yield (
            f"Without a profiler a step takes about {free_ms:.2f} ms, as the replay estimates: the "
            f"GPU is idle for {free_idle_ms(report, step):.2f} ms of it, so the host is not late."
        )


def readings(analysis: Analysis, report: Report, step: TypicalStep) -> list[Reading]:
    """The verdicts with the least and the most that capturing may have added, if they differ."""
    if report.health.free_step_ms is not None or step.added_ms is None:
        return []
    found = []
    for off in (step.added_ms[LEAST], step.added_ms[MOST]):
        lost, step_ms = lost_ms(report, step, off), judged_ms(step, off)
        verdict, _ = verdict_of(analysis, report, step, lost, step_ms)
        found.append(Reading(explained_ms(off), verdict))
    return found if len({reading.verdict for reading in found}) > 1 else []


def reading_sentences(different: list[Reading]) -> Iterator[str]:
    names = {reading.verdict for reading in different}
    several_reasons = "host" in names and all(VERDICT[name].host for name in names)
    # "the host, for several reasons" does not contradict one of these reasons
    if different and not several_reasons:
        bound = [
            f"with {reading.added_ms:.2f} ms it is {VERDICT[reading.verdict].title}"
            for reading in different
        ]
        yield (
            f"The verdict depends on how much idle time comes from recording: {', '.join(bound)}. "
            "The time of a step without a profiler decides."
        )


def idle_is_explained(report: Report, step: TypicalStep, step_ms: float) -> bool:
    """Whether the causes of the idle time are known, or there is little of it."""
    return report.idle is not None or step.idle_ms < gpu.WAITING_SHARE * step_ms


def lost_ms(report: Report, step: TypicalStep, off: dict[str, float]) -> dict[str, float]:
    """Verdict -> ms per step that it costs; `off` is what capturing added to each part."""
    lost: dict[str, float] = {}
    for name, ms in step.parts_ms.items():
        if verdict := PART[name].verdict:
            lost[verdict] = lost.get(verdict, 0.0) + ms - off.get(name, 0.0)
    if read_ms := copies.numbers_ms(report):
        moved = {"copies": -read_ms, "synchronization": read_ms}
        lost |= {verdict: lost[verdict] + ms for verdict, ms in moved.items()}
    return lost


def waiting_verdict(waiting: dict[str, float], step_ms: float, idle_ms: float) -> str | None:
    """The verdict that costs most, or None if none costs enough of the step.

    The host costs no more than `idle_ms`, for which the GPU is idle in a step without a profiler.
    """
    of_host_ms = min(idle_ms, host_ms(waiting))
    counted = {name: of_host_ms if VERDICT[name].host else ms for name, ms in waiting.items()}
    enough = [name for name, ms in counted.items() if ms >= gpu.WAITING_SHARE * step_ms]
    if not enough:
        return None
    first = max(enough, key=lambda name: (counted[name], waiting[name]))
    largest_of_all = waiting[first] == max(waiting.values())
    if not VERDICT[first].host or (VERDICT[first].sure and largest_of_all):
        return first
    close = [n for n, ms in waiting.items() if VERDICT[n].host and ms >= CLOSE * waiting[first]]
    named = first if largest_of_all and len(close) == 1 else "host"
    if named != "synchronization" or sum(waiting.values()) >= MOSTLY_WAITING * step_ms:
        return named
    return named if waiting[named] >= SYNCHRONIZATION_SHARE * step_ms else None


def idle_sentence(report: Report, step: TypicalStep) -> str:
    missing = "Without the CUDA calls"
    if is_of_driver_alone(report):
        missing = "Without the calls of CUDA's driver other than launches"
    return (
        f"{missing}, the capture does not show why the GPU was idle for {step.idle_ms:.2f} ms per "
        "step."
    )


def busy_sentence(step: TypicalStep) -> str:
    return (
        f"The GPU is busy {step.busy_percent:.0f} % of the time: {step.busy_ms:.2f} of "
        f"{step.ms:.2f} ms per step."
    )


def typical_sentences(report: Report, step: TypicalStep) -> Iterator[str]:
    steps = report.window.steps
    if unusual := steps - step.of_steps:
        which = "One of" if unusual == 1 else f"{unusual} of"
        said = "was unusual and is" if unusual == 1 else "were unusual and are"
        longest_ms = report.window.step_ms.max
        yield f"{which} the {steps} steps {said} left out; the longest took {longest_ms:.2f} ms."


def host_sentences(report: Report) -> Iterator[str]:
    """Evidence from a capture without GPU activity: the longest phase and operators."""
    yield "The capture contains no GPU activity, so the bottleneck cannot be named."
    if report.phases:
        longest = max(report.phases, key=lambda row: row.host_ms)
        ms = longest.host_ms / report.window.steps
        yield f"The longest phase on the host: {longest.name}, {ms:.2f} ms per step."
    if report.operators:
        longest_first = sorted(report.operators, key=lambda row: -row.self_ns)[:3]
        per_step = [
            f"{row.name} {row.self_ns / 1e6 / report.window.steps:.2f}" for row in longest_first
        ]
        yield f"Operators with the most time, in ms per step: {', '.join(per_step)}."


def waiting_sentences(
    waiting: dict[str, float], step_ms: float, covered: dict[str, str]
) -> list[str]:
    return [
        f"{ms:.2f} ms per step ({100 * ms / step_ms:.0f} %), {VERDICT[name].title}: "
        f"{VERDICT[name].waiting}{covered.get(name, '')}."
        for name, ms in waiting.items()
        if ms >= WORTH_TELLING * step_ms
    ]


def details(
    analysis: Analysis, report: Report, verdict: str, waiting: dict[str, float]
) -> Iterator[str]:
    """Further evidence for the verdict: the origin of its milliseconds."""
    read_ms = copies.numbers_ms(report)
    if report.typical and read_ms >= WORTH_TELLING * report.typical.ms:
        yield (
            f"{read_ms:.2f} ms per step of synchronization are copies of single numbers to the "
            "host."
        )
    if verdict == "copies" and (step := report.typical) and report.breakdown:
        copy_ms = report.breakdown.copy_ms
        of_mean = step.parts_ms["copy"] / copy_ms if copy_ms else 0.0
        yield from copies.sentences(report.copies or [], report.capture.gpu, of_mean)
        if staging_ms := step.parts_ms.get("staging"):
            yield copies.staging_sentence(staging_ms)
    if report.idle is None or verdict in ("data", "host", "copies"):
        return
    of_phase = {
        phase: sum(part for cause, part in causes.items() if PART[cause].verdict == verdict)
        for phase, causes in report.idle.by_phase.items()
    }
    phase, most = max(of_phase.items(), key=lambda item: item[1], default=(None, 0.0))
    # of all steps, and as captured: only the share is also that of the verdict's milliseconds
    share = most / whole if (whole := sum(of_phase.values())) else 0.0
    if phase is not None and 2 * share >= 1:
        yield (
            f"Most of it comes just before the kernels of {phase}: "
            f"{share * waiting[verdict]:.2f} ms per step."
        )
    if verdict == "synchronization" and report.program.blocking_launches is not None:
        return
    if verdict == "launch" and is_of_driver_alone(report):
        yield (
            "The host may have waited for the GPU before it launched: torch.profiler records no "
            "waits of CUDA's driver."
        )
    launches = gpu.launches_of(analysis, report.capture.gpu)
    if verdict == "launch" and launches and launches.per_step:
        yield f"{launches.per_step:.0f} launches per step."
    waits = [row for row in report.api if BLOCKING.fullmatch(row.name)]
    if verdict == "synchronization" and waits:
        often = max(waits, key=lambda row: row.count)
        yield f"{often.name} was called {often.count} times in the capture."


def mode_sentences(report: Report, waiting: dict[str, float]) -> Iterator[str]:
    """Lines on modes for debugging, where the GPU waits for the sake of synchronization."""
    if "synchronization" not in waiting:
        return
    if (blocking_us := report.program.blocking_launches) is not None:
        yield (
            f"All launches return only after their kernels have ended (median {blocking_us:.0f} "
            "us): CUDA_LAUNCH_BLOCKING is set."
        )
    elif report.program.anomaly_mode:
        yield "Autograd's anomaly mode is on: it reads a value from the GPU for each gradient."


def cover_phrases(report: Report) -> dict[str, str]:
    """Verdict -> what the host did in most of its gaps, to follow what the verdict says of them."""
    if report.program.blocking_launches is not None:
        return {}
    phrases = {}
    for cause, cover, work in covers_of(report):
        place = f" (in {cover.within})" if cover.within else ""
        meaning = f": {work.said}" if work else ""
        of_what = "waits" if cause == "synchronization" else "its gaps"
        phrases[cause] = (
            f"; {cover.ms:.2f} of {cover.of_ms:.2f} ms of {of_what} are inside "
            f"{cover.name}{place}{meaning}"
        )
    return phrases
