"""What held a run back in the large, without a capture: from times that it has anyway.

Called by training.record at the end. Host times say where the wall time went; CUDA events, the
host's pace and the driver's samples say of the training steps whether the GPU or the host was late.
"""

from dataclasses import dataclass

from profiling.gpu_clock import GpuClock
from training.console import duration
from training.sinks import Value
from training.slow_ranks import SLOWER, said_of_stragglers
from training.waits import Waits

# seconds are known by these names; "training" is what is left of the loop, its logging included
PARTS = {
    "start_up": "start-up",
    "compile": "compiling",
    "training": "training steps",
    "evaluation": "evaluation",
    "checkpoint": "checkpoints",
}
AHEAD = 0.8  # of a step's time: a host that launches it in less runs ahead of the GPU
BUSY_PERCENT = 90.0  # of the time with a kernel: less, and the GPU waits for the host
MOSTLY = 0.5  # of the steps' time: a host that waits so long for data has no other reason
ALSO = 0.1  # of the wall time: a part as large is told beside the largest; so is data of the steps
HELD_UP = 0.2  # of a step: ranks that cost the others so much are at fault, and no device's limit


@dataclass(frozen=True)
class Steps:
    """Of the training iterations, without those under a profiler; None: not known."""

    waiting_for_data_s: float  # of the host, for batches; those under a profiler too
    on_cpu: bool
    step_ms: float | None
    host_ms: float | None  # the host's, to launch one
    gpu_busy_percent: float | None  # time with any kernel, as the driver samples it
    cpu_percent: float | None  # 100: one core
    waits: Waits | None = None  # of ranks for each other; None: of one rank
    gpu_clock: GpuClock | None = None


@dataclass(frozen=True)
class RunVerdict:
    """What held the run back, and its evidence in one sentence."""

    cause: str | None  # of HELD_BACK_BY
    sentence: str
    metrics: dict[str, Value]  # for summary.json


def run_verdict(seconds: dict[str, float], steps: Steps) -> RunVerdict:
    """`seconds` of wall time by the names of PARTS; they add up to the process's."""
    whole_s = sum(seconds.values())
    largest = max(seconds, key=lambda part: seconds[part])
    in_steps = largest == "training"
    cause, why = what_held_steps_back(steps, seconds[largest]) if in_steps else (largest, "")
    shares = sorted(((s / whole_s, part) for part, s in seconds.items()), reverse=True)
    told = [f"{PARTS[part]} {share:.0%}" for share, part in shares if share >= ALSO]
    took = f"{', '.join(told)} of {duration(whole_s)}"
    sentence = f"{HELD_BACK_BY[cause]}: {took}{why}"
    metrics: dict[str, Value] = {f"time/{part}_s": value for part, value in seconds.items()}
    metrics.pop("time/compile_s")  # compiling and CUDA graphs are told apart there
    metrics |= {
        "time/waiting_for_data_s": steps.waiting_for_data_s,
        "time/host_step_ms": steps.host_ms,
        "verdict/cause": cause,
        "verdict": sentence,
    }
    return RunVerdict(cause, sentence, metrics)


HELD_BACK_BY = {
    "start_up": "Held back by its start-up",
    "compile": "Held back by compiling",
    "evaluation": "Held back by evaluation",
    "checkpoint": "Held back by its checkpoints",
    "data": "Held back by its data, for which the steps wait",
    "gpu": "Held back by the GPU, which is busy",
    "host": "Held back by the host, for which the GPU waits",
    "cpu": "Held back by the CPU, which computes the steps",
    "rank": "Held back by a slow rank",
    None: "What held the training steps back is not known",
}


def what_held_steps_back(steps: Steps, training_s: float) -> tuple[str | None, str]:
    """(cause, evidence). Where the ranks wait for a slow one it is that, unless data is why."""
    cause, evidence = what_held_rank_back(steps, training_s)
    if cause == "gpu" and steps.gpu_clock and steps.gpu_clock.held_down_by:
        evidence += f"; its clock was {steps.gpu_clock.text}"
    if steps.waits is None:
        return cause, evidence
    late, waited = waited_for_ranks(steps.waits)
    return "rank" if late and cause != "data" else cause, evidence + waited


def what_held_rank_back(steps: Steps, training_s: float) -> tuple[str | None, str]:
    """(cause, evidence). A host that is not ahead may be slow, or its queue may be full."""
    share = steps.waiting_for_data_s / training_s
    evidence = f"; the host waited {share:.0%} of the steps for data" if share >= ALSO else ""
    starved = share >= MOSTLY
    if steps.on_cpu:
        cpu = steps.cpu_percent
        busy = "" if cpu is None else f"; {cpu / 100:.1f} cores busy"
        return "data" if starved else "cpu", busy + evidence
    if steps.host_ms is not None and steps.step_ms is not None:
        evidence += f"; the host launches a step of {steps.step_ms:.2f} ms in {steps.host_ms:.2f}"
    if steps.gpu_busy_percent is not None:
        evidence += f"; kernels ran {steps.gpu_busy_percent:.0f} % of the time"
    if steps.host_ms and steps.step_ms and steps.host_ms < AHEAD * steps.step_ms:
        return "gpu", evidence
    if starved and (steps.gpu_busy_percent or 0.0) < BUSY_PERCENT:
        return "data", evidence
    if steps.gpu_busy_percent is None:
        return None, evidence
    return ("gpu" if steps.gpu_busy_percent >= BUSY_PERCENT else "host"), evidence


def waited_for_ranks(waits: Waits) -> tuple[bool, str]:
    """(whether slow ranks held the steps back, evidence)."""
    lost_ms = float(waits.wait_ms.mean())
    if waits.straggler_ms >= SLOWER * waits.step_ms:
        return waits.straggler_ms >= HELD_UP * waits.step_ms, f"; {said_of_stragglers(waits)}"
    if lost_ms < ALSO * waits.step_ms:
        return False, ""
    of_step = f"{lost_ms:.2f} of each {waits.step_ms:.2f} ms step"
    return False, f"; ranks wait {of_step} for one another, and for no one in particular"
