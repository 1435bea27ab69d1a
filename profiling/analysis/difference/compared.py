"""Make a side of a comparison from the report of a capture or from a run's folder.

Called by the verb compare and by launch.experiment.captures.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median

import msgspec

from profiling.analysis.difference.comparison_records import KernelOnOneSide
from profiling.analysis.gpu_time.profiler_cost import LIKELY
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.analysis.records import RangeTotal, Report
from profiling.analysis.runs.folder import SETTLING_ROWS, RunFolder
from profiling.analysis.sum_records import Lines
from profiling.shared.gpu_clock import GpuClock, gpu_clock
from profiling.shared.json_records import JsonObject
from profiling.shared.manifest import Manifest
from profiling.shared.metric_names import CPU_PERCENT
from profiling.shared.run_files import METRICS

TRAINING = "training"  # the kind of a run's own step times


@dataclass(frozen=True)
class Git:
    commit: str
    dirty: bool  # files differed from the commit


@dataclass(frozen=True)
class Environment:
    """The fields of environment.json that a comparison reads; None: not known."""

    packages: dict[str, str | None] = field(default_factory=dict)
    cuda: str | None = None
    cudnn: int | str | None = None
    git: Git | None = None
    usable_cores: int | None = None  # cores that the system lets the process use
    compute_threads: int | None = None  # threads among which PyTorch shares an operator


@dataclass(frozen=True)
class PhaseTimes:
    """Milliseconds a step of one phase; None: the phase is absent, or there is no GPU."""

    host_ms: float | None = None
    gpu_ms: float | None = None


@dataclass(frozen=True)
class CapturedStep:
    """The mean step of a capture, part by part; a field is empty if it was not captured."""

    steps: int  # number of steps in the mean
    mean_ms: float | None = None
    gpu_parts: dict[str, float] = field(default_factory=dict)  # bucket -> ms; add up to the step
    host_parts: dict[str, float] = field(default_factory=dict)
    kernel_noise: float = 0.0  # by which kernels of equal work vary, as a share of the step
    added_ms: float = 0.0  # by the profiler, measured or else estimated; 0: not known
    families: dict[str, float] = field(default_factory=dict)  # family -> ms of kernels
    phases: dict[str, PhaseTimes] = field(default_factory=dict)
    kernels: tuple[KernelOnOneSide, ...] = ()
    attention_backend: str | None = None
    bottleneck: str | None = None
    lines: Lines | None = None  # None: recorded without stacks


@dataclass(frozen=True)
class Compared:
    file: str
    kind: str  # nsys | kineto | training: what recorded the step times
    device: str | None  # the GPU's name, or the kind of device if it is no GPU
    step_name: str | None  # name of the range that is a step
    step_ms: list[float]  # in a run, the median of each logged row
    mean_ms: float  # over all steps
    free_step_ms: float | None  # step time around the captured ones
    free_laps_ms: list[float]  # the steps around the captured ones; empty: not known
    config: JsonObject | None
    environment: Environment
    captured: CapturedStep  # in a run, from its newest capture
    notes: list[str]  # facts about this side that a reader should know
    ranks: RanksReport | None = None  # None: one process
    gpu_clock: GpuClock | None = None  # over the run; None: not known
    no_verdict: str | None = None  # why its capture explains nothing; None: it does
    on_cpu: bool = False  # a CPU computed the steps
    cores_at_work: float | None = None  # CPU time over wall time; None: not known
    path: str = ""  # of the capture or the run, from which a side gets its name; empty: as `file`
    runs: int = 1  # number of runs; with several, each a process, step_ms are their medians


def compared_capture(
    report: Report, manifest: Manifest | None = None, path: Path | None = None
) -> Compared:
    """The side of the capture at `path`: its steps and, from its manifest, the ones around them.

    Raises ValueError where a step took no time, because no ratio to it exists.
    """
    capture, run = report.capture, report.run
    if not min(report.window.step_ms.values, default=0) > 0:
        cure = "name another range with --step, or capture it again"
        raise ValueError(
            f"{capture.file}: one of its steps took 0 ms, so it cannot be compared; {cure}"
        )
    config = run.config if run else None
    gpu = capture.gpu or next(iter(capture.devices), None)
    return Compared(
        file=capture.file,
        kind=capture.kind,
        device=gpu.name if gpu else text_of(config, "device"),
        step_name=report.window.step_name,
        step_ms=report.window.step_ms.values,
        mean_ms=report.window.step_ms.mean,
        free_step_ms=report.health.free_step_ms,
        free_laps_ms=free_laps_ms(manifest),
        config=config,
        environment=environment_of(run.environment if run else None, capture.file),
        captured=captured_step(report),
        notes=list(notes_on(report)),
        gpu_clock=run.gpu_clock if run else None,
        no_verdict=report.health.no_verdict,
        on_cpu=report.on_cpu,
        cores_at_work=report.process.cores_used if report.process else None,
        path=str(path or ""),
    )


def compared_run(run: RunFolder, report: Report | None, why_none: str = "") -> Compared:
    """The side of a run: its uncaptured steps, explained by the `report` of its newest capture.

    `why_none` says why there is no report. Raises ValueError where the run has logged no row.
    """
    step_ms = run.step_ms.tolist()
    if not step_ms:
        raise ValueError(
            f"{run.folder / METRICS}: no row of step times after the first {SETTLING_ROWS}; train "
            "longer (max_iters) or log more often (log_interval)"
        )
    return Compared(
        file=str(run.folder),
        kind=TRAINING,
        device=text_of(run.in_force, "device") or text_of(run.config, "device"),
        step_name=None,
        step_ms=step_ms,
        mean_ms=float(run.steps.mean_ms.mean()),
        free_step_ms=None,
        free_laps_ms=[],
        config=run.config,
        environment=environment_of(run.environment, f"{run.folder}/environment.json"),
        captured=captured_step(report) if report else CapturedStep(len(step_ms)),
        notes=[why for why in ([report.health.no_verdict] if report else [why_none]) if why],
        gpu_clock=gpu_clock(run.summary or {}),
        no_verdict=report.health.no_verdict if report else None,
        on_cpu=run.on_cpu,
        cores_at_work=cores_at_work(run),
    )


def compared_runs(sides: Sequence[Compared], folder: str) -> Compared:
    """Several runs of one configuration as one side: each run counts once, by its median.

    What they have in common is taken from the first one.
    """
    cores = [side.cores_at_work for side in sides if side.cores_at_work is not None]
    return replace(
        sides[0],
        file=folder,
        step_ms=[median(side.step_ms) for side in sides],
        mean_ms=fmean(side.mean_ms for side in sides),
        cores_at_work=median(cores) if len(cores) == len(sides) else None,
        runs=len(sides),
    )


def cores_at_work(run: RunFolder) -> float | None:
    """Number of cores that the run kept busy, the median of its rows, or None."""
    rows = run.columns.get(CPU_PERCENT.name)
    return None if rows is None else float(median(rows.value)) / 100


def free_laps_ms(manifest: Manifest | None) -> list[float]:
    around = (manifest.step_ms.before, manifest.step_ms.after) if manifest else ()
    return [ms for laps in around if laps for ms in laps.laps]


def captured_step(report: Report) -> CapturedStep:
    """The mean step of a capture; without parts if it lost too many kernels to explain a step."""
    steps, recording_ms = report.window.steps, report.health.recording_ms
    if report.health.no_verdict:
        return CapturedStep(steps)
    return CapturedStep(
        steps,
        report.window.step_ms.mean,
        gpu_parts(report),
        host_parts={f"host_{row.name}": row.host_ms / steps for row in report.phases},
        kernel_noise=report.typical.kernel_noise if report.typical else 0.0,
        added_ms=report.health.measured_added_ms or (recording_ms[LIKELY] if recording_ms else 0.0),
        families={row.family: row.total_ns / steps / 1e6 for row in report.families},
        phases={row.name: phase_times(row, steps) for row in report.ranges},
        kernels=tuple(
            KernelOnOneSide(row.name, row.family, row.count / steps, row.total_ns / steps / 1e6)
            for row in report.kernels
        ),
        attention_backend=report.attention_backend,
        bottleneck=report.bottleneck.verdict,
        lines=report.lines,
    )


def phase_times(row: RangeTotal, steps: int) -> PhaseTimes:
    return PhaseTimes(row.host_ms / steps, None if row.gpu_ms is None else row.gpu_ms / steps)


def gpu_parts(report: Report) -> dict[str, float]:
    """Milliseconds a step of compute, communication, copy, idle by cause; empty without a GPU."""
    causes = report.idle.by_cause if report.idle else {}
    parts = report.parts_ms or {}
    return {f"idle_{name}" if name in causes else name: ms for name, ms in parts.items()}


def environment_of(facts: JsonObject | None, file: str) -> Environment:
    """The environment from the `facts` in `file`; raises ValueError naming it if damaged."""
    try:
        return msgspec.convert(facts or {}, Environment)
    except msgspec.ValidationError as error:
        raise ValueError(f"{file}: the environment in it is damaged: {error}") from error


def text_of(facts: JsonObject | None, key: str) -> str | None:
    value = (facts or {}).get(key)
    return value if isinstance(value, str) else None


def notes_on(report: Report) -> Iterator[str]:
    if report.run is None:
        yield "no manifest, so batch, model, dtype and versions could not be checked"
    for finding in report.health.findings:
        # the warning about personal data in a capture does not matter here
        if finding.level == "warning" and "scrub" not in (finding.cure or ""):
            yield finding.what
