"""Says what held a run back as a whole, without a capture, from times that it measures anyway.

Called by training.metrics.record at the end. Host times tell where the wall time went. For the
training steps CUDA events, the host's launch times and the driver's samples tell whether the GPU
or the host was the slower one.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from profiling.shared.gpu_clock import GpuClock
from profiling.shared.units import spell_duration, whole_percent
from training.metrics.rank_waits import Waits
from training.metrics.sinks import Value
from training.metrics.slow_ranks import SLOWER, stragglers_line

# parts of the wall time; "training" is the rest of the loop, its logging included
PARTS = {
    "start_up": "start-up",
    "compile": "compiling",
    "training": "training steps",
    "evaluation": "evaluation",
    "checkpoint": "checkpoints",
}
AHEAD = 0.8  # share of a step's time: a host that launches a step faster runs ahead of the GPU
BUSY_PERCENT = 90.0  # of the time with a kernel: below this the GPU waits for the host
MOSTLY = 0.5  # share of the steps' time: waiting for data this long is the cause
ALSO = 0.1  # share of the wall time from which a part is named, too; and of the steps for data
HELD_UP = 0.2  # share of a step: slow ranks that cost the others this much are the cause


@dataclass(frozen=True)
class Steps:
    """Measurements of the training iterations without a profiler; None means not known."""

    waiting_for_data_s: float  # of the host, for batches; also in iterations under a profiler
    on_cpu: bool
    step_ms: float | None  # median
    host_ms: float | None  # median time of the host to launch a step
    gpu_busy_percent: float | None  # of the time with any kernel, as the driver samples it
    cpu_percent: float | None  # 100 is one core
    waits: Waits | None = None  # of ranks for each other; None with one rank
    gpu_clock: GpuClock | None = None


@dataclass(frozen=True)
class RunVerdict:
    """The part or device that held the run back, and the evidence in one sentence."""

    cause: str | None  # a key of HELD_BACK_BY
    sentence: str
    metrics: dict[str, Value]  # for summary.json


def run_verdict(seconds: dict[str, float], steps: Steps) -> RunVerdict:
    """Verdict on a run from `seconds` of wall time by the names of PARTS, and its steps.

    The seconds add up to those of the process.
    """
    whole_s = sum(seconds.values())
    largest = max(seconds, key=lambda part: seconds[part])
    cause: str | None = largest
    why = ""
    if largest == "training":
        cause, why = cause_of_steps(steps, seconds[largest])
    elif largest == "start_up":
        why = missing_bytecode()
    shares = sorted(((s / whole_s, part) for part, s in seconds.items()), reverse=True)
    parts = [f"{PARTS[part]} {whole_percent(share)}" for share, part in shares if share >= ALSO]
    times = f"{', '.join(parts)} of {spell_duration(whole_s)}"
    sentence = f"{HELD_BACK_BY[cause]}: {times}{why}"
    metrics: dict[str, Value] = {f"time/{part}_s": value for part, value in seconds.items()}
    metrics.pop("time/compile_s")  # the summary has it already, without the CUDA graphs
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
    "data": "Held back by its data: the steps wait for batches",
    "gpu": "Held back by the GPU, which is busy",
    "host": "Held back by the host: the GPU waits for it",
    "cpu": "Held back by the CPU, which computes the steps",
    "rank": "Held back by a slow rank",
    None: "It is not known what held back the training steps",
}


def missing_bytecode() -> str:
    """Evidence that each start compiles PyTorch's modules, or "" where their bytecode is kept.

    It is missing where PyTorch was installed without it and Python may not write it, as in many
    containers. Importing PyTorch then takes more than twice as long (docs/records.md).
    """
    cached = torch.__spec__.cached
    if cached is None or Path(cached).exists():
        return ""
    return "; each start compiles PyTorch, whose bytecode is missing: `python -m compileall` on it"


def cause_of_steps(steps: Steps, training_s: float) -> tuple[str | None, str]:
    """Cause and evidence for the steps: a slow rank if the others wait for one, unless it is data.

    Otherwise the cause is what held this rank back.
    """
    cause, evidence = cause_on_rank(steps, training_s)
    if cause == "gpu" and steps.gpu_clock and steps.gpu_clock.held_down_by:
        evidence += f"; its clock was {steps.gpu_clock.text}"
    if steps.waits is None:
        return cause, evidence
    late, waited = waited_for_ranks(steps.waits)
    return "rank" if late and cause != "data" else cause, evidence + waited


def cause_on_rank(steps: Steps, training_s: float) -> tuple[str | None, str]:
    """Cause and evidence for the steps of this rank: data, cpu, gpu, host, or None if not known.

    A host that does not run ahead may be slow, or its queue of launches may be full: then the
    driver's samples decide.
    """
    share = steps.waiting_for_data_s / training_s
    waited = f"; the host waited {whole_percent(share)} of the steps for data"
    evidence = waited if share >= ALSO else ""
    starved = share >= MOSTLY
    if steps.on_cpu:
        cpu = steps.cpu_percent
        busy = "" if cpu is None else f"; {cpu / 100:.1f} cores were busy"
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
    """Whether slow ranks held the steps back, and the evidence."""
    lost_ms = float(waits.wait_ms.mean())
    if waits.straggler_ms >= SLOWER * waits.step_ms:
        return waits.straggler_ms >= HELD_UP * waits.step_ms, f"; {stragglers_line(waits)}"
    if lost_ms < ALSO * waits.step_ms:
        return False, ""
    of_step = f"{lost_ms:.2f} of each {waits.step_ms:.2f} ms step"
    return False, f"; ranks wait {of_step} for one another, but not for one rank in particular"
