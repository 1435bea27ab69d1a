"""Words of nsys-ai, HTA and TraceLens, and the verdicts that they cover: set before any was run.

Each answer gets the benefit of doubt: the words cover every verdict that a reader could take them
for, and the best of these is graded, as ours are (judged.grade_of). A name of a kernel covers what
kernels of its family mostly do. Words that only say whether the GPU worked or waited are vague
where that is right, and wrong where it is not. What a tool says of the capture itself, such as what
profiling cost, is no answer.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from profiling.analysis.gpu_work.families import family_of
from profiling.analysis.verdict.gpu import MATRIX_FAMILIES
from profiling.shared.causes import VERDICT
from profiling.shared.kernel_names import function_name
from validation.framework_programs.program import Program
from validation.judged import GRADES, grade_of

WAITS, WORKS, EITHER = "waits", "works", "either"  # what the GPU does, by words that say no more
SEVERITIES = ("critical", "warning", "info")
# of nsys-ai: words of a finding or of a pattern and its advice -> verdicts, the first that matches
ABOUT_A_KERNEL = re.compile(r"hotspot|top kernel|^TC eligible|high variability \(", re.I)
NOTHING = re.compile(r"No Known|Root Cause Analysis Incomplete|.*abstained|$")
ABOUT_IDLE = re.compile(r"^GPU idle|GPU bubbles", re.I)
COVERED = (
    (r"small kernel", ("launch", "gpu_latency")),
    (r"NCCL|communicat|SendRecv|AllGather|AllReduce", ("communication",)),
    (r"H2D|D2H|transfer|memcpy", ("copies",)),
    (r"CPU sync blocks|synchronization|synchronous memset", ("synchronization",)),
)
REASONS = (  # for idle time: the call that a gap names, or the advice of root_cause_matcher
    (r"CPU: cu(da)?(Malloc|Free|Mem(Alloc|Free|Create|Map|Unmap))", ("allocation",)),
    (r"CPU: cu(da)?\w*Memcpy|blocking memory transfers", ("copies", "synchronization")),
    (r"Use CUDA graphs, overlap data loading", ("launch", "data", "synchronization")),
    (r"CPU: cu(da)?\w*Synchronize|over-synchronization|explicit cuda", ("synchronization",)),
    (r"CPU: cu(da)?(LaunchKernel|GraphLaunch)|launch overhead dominates", ("launch",)),
    (r"CPU: cu(da)?(Module|Library)", ("cpu",)),
    (r"CPU is not feeding", ("cpu", "data")),
    (r"CPU: ", ()),
)
BOUND = {"cpu-bound": WAITS, "gpu-compute-bound": WORKS}
COMPUTED_BY_TRACELENS = re.compile(r"gemm|conv|sdpa|attention", re.I)


@dataclass(frozen=True)
class Answer:
    """Words of a tool on one capture, and the verdicts that they can be taken for."""

    said: str
    verdicts: tuple[str, ...] = ()
    side: str | None = None  # where it names none: WAITS, WORKS or EITHER


@dataclass(frozen=True)
class Finding:
    """A finding of `nsys-ai diagnose`, or a pattern of its root_cause_matcher."""

    label: str = ""  # this and the next three: of a finding
    note: str = ""
    category: str | None = None
    severity: str = "info"
    pattern: str = ""  # this and the next: of a pattern
    recommendation: str = ""


@dataclass(frozen=True)
class Shares:
    """Time of a trace by what the GPU did, as HTA or TraceLens have it, in any unit."""

    compute: float
    copies: float
    idle: float
    launches: float = 0.0  # the part of idle time that HTA lays to launching small kernels
    kernel: str | None = None  # the kernel, or TraceLens's category, that computed longest


def grade_answer(answer: Answer | None, program: Program) -> str:
    """One of judged.GRADES: the best that the words can be taken for."""
    if answer is None:
        return "none"
    if answer.side:
        side = WAITS if VERDICT[program.planted].waiting else WORKS
        return "vague" if answer.side in (side, EITHER) else "wrong"
    return min((grade_of(each, program) for each in answer.verdicts), key=GRADES.index)


def first_finding(findings: Sequence[Finding]) -> Answer | None:
    """The first that is not about the capture; None: the tool found nothing in the program."""
    return next(iter(all_answers(findings, [])), None)


def worst_pattern(patterns: Sequence[Finding]) -> Answer | None:
    """The first of the most severe patterns; None: no known pattern was found."""
    return next(
        iter(all_answers([], sorted(patterns, key=lambda e: SEVERITIES.index(e.severity)))), None
    )


def all_answers(findings: Sequence[Finding], patterns: Sequence[Finding]) -> list[Answer]:
    """Answers that the tool gives about the program, in its order.

    A total of idle time has its reason in the longest gap.
    """
    gaps = [each.note for each in findings if each.label.startswith("GPU Idle Gap")]
    told = [each for each in findings if each.category != "profile_quality"]
    found = [each for each in patterns if not NOTHING.match(each.pattern)]
    return [
        *(read_words(each.label, each.note, (gaps or [""])[0]) for each in told),
        *(read_words(each.pattern, each.recommendation, each.recommendation) for each in found),
    ]


def read_words(label: str, note: str, reason: str) -> Answer:
    if label.startswith("Critical path is "):
        return critical_path(label.removeprefix("Critical path is ")) or Answer(label, side=EITHER)
    if ABOUT_A_KERNEL.search(label):
        return Answer(label, (verdict_of_kernel(note),))
    if ABOUT_IDLE.search(label):
        return idle_answer(label, note if label.startswith("GPU Idle Gap") else reason)
    for pattern, verdicts in COVERED:
        if re.search(pattern, label, re.I):
            return Answer(label, verdicts)
    return Answer(label, side=EITHER)


def idle_answer(label: str, reason: str) -> Answer:
    for pattern, verdicts in REASONS:
        if re.search(pattern, reason, re.I):
            call = re.search(r"CPU: \w+", reason)
            label = f"{label.split(' (')[0]}, {call[0]}" if call else label
            return Answer(label, verdicts) if verdicts else Answer(label, side=WAITS)
    if reason.startswith("Stream "):  # a gap in which no call was made
        return Answer(f"{label}, no CUDA call", ("cpu", "data"))
    return Answer(label, side=WAITS)


def critical_path(bound_class: str) -> Answer | None:
    if bound_class == "comm-bound":
        return Answer(bound_class, ("communication",))
    return Answer(bound_class, side=BOUND[bound_class]) if bound_class in BOUND else None


def largest_share(shares: Shares | None) -> Answer | None:
    """The largest of the shares; where it is idle time, what the larger part of that is laid to."""
    if shares is None:
        return None
    parts = {"compute": shares.compute, "copies": shares.copies, "idle": shares.idle}
    largest = max(parts, key=parts.__getitem__)
    said = f"{largest} {100 * parts[largest] / sum(parts.values()):.0f} %"
    if largest == "copies":
        return Answer(said, ("copies",))
    if largest == "compute":
        kernel = shares.kernel or ""
        return Answer(f"{said}, {function_name(kernel)}", (verdict_of_kernel(kernel),))
    if 2 * shares.launches > shares.idle:
        return Answer(f"{said}, between kernels", ("launch", "gpu_latency"))
    return Answer(f"{said}, waits for the host", side=WAITS)


def verdict_of_kernel(name: str) -> str:
    """The verdict for what kernels of this name mostly do: compute, or move bytes."""
    computes = COMPUTED_BY_TRACELENS.search(name) or family_of(name) in MATRIX_FAMILIES
    return "gpu_compute" if computes else "gpu_memory"
