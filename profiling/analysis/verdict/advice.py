"""Choose what to try next, from profiling.shared.causes. Called by diagnosis.

The lines are those of the program's framework. A setting that is in force already is not advised.
What is in force is read off the manifest's
configuration and off the capture itself; a setting that neither shows counts as not in force.
"""

import re
from dataclasses import asdict

from configs.backends import AUTO, is_fused
from profiling.analysis.gpu_time.host_activity import FROM_HOST, STAGED_BYTES
from profiling.analysis.gpu_time.operators import TENSOR_FLOAT
from profiling.analysis.records import Cover, Report, Roofline, RooflineRow
from profiling.analysis.sum_records import CopySpeed
from profiling.analysis.verdict.copies import within_gpu_ms
from profiling.analysis.verdict.cpu_operators import (
    has_float64_inputs,
    is_compiled,
    operator_habits,
)
from profiling.analysis.verdict.cpu_phases import PhaseHabits
from profiling.analysis.verdict.health import WHOLE_GRAPHS
from profiling.shared.advice import InForce
from profiling.shared.causes import PART, VERDICT
from profiling.shared.host_work import HostWork, work_named
from profiling.shared.kernel_names import function_name

GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
MATRIX = ("gemm", "convolution", "attention")
WORTH_FUSING = 0.25  # of the kernel time outside of products: less gains little
WORTH_TELLING = 0.05  # of the kernel time
SMALL_BATCH_BYTES = 1 << 20  # tokens and tables copy less in a step, images and sound more
NEAR_PEAK = 0.5  # MFU
INDUCTOR = "triton_"
# matrix products of 16-bit elements: cuBLAS, CUTLASS, cuDNN, Triton, hipBLASLt
HALF = re.compile(r"bf16|bfloat16|f16f16|s16816|h16816|_hsh_|_hss|fp16|nvjet_(sm\d+_)?[ht]", re.I)
# calls that launch or copy, of CUDA's driver and of its runtime
DRIVER, RUNTIME = re.compile(r"cuLaunch"), re.compile(r"cuda(Launch|Graph|Memcpy|Memset)")
LARGEST = 20  # kernels that are searched for such products
NO_HABITS = PhaseHabits()  # of a step's phases
# HIP's calls; matrix products by Tensile, copies by ROCm's own kernels; names of GPUs
OF_AMD = re.compile(r"hip[A-Z]|Cijk_|__amd_|(AMD|Radeon|Instinct|MI\d{2,3}[A-Z]?)\b")


def advise(
    verdict: str, report: Report, habits: PhaseHabits = NO_HABITS, cover: Cover | None = None
) -> list[str]:
    """The lines of advice for a verdict that are of use to this report's run.

    Without a GPU, `habits` are those of its phases, and `cover` is what makes the batches.
    """
    run = in_force(report, verdict, habits)
    works = [work for _, _, work in covers_of_verdict(verdict, report) if work]
    if cover and (work := work_named(cover.name, verdict)):
        works.append(work)
    first = [line for work in works if (line := work.advice.template_for(run))]
    lines = [*dict.fromkeys(first), *advice_templates(verdict, run)]
    return [line.format_map(asdict(run)) for line in lines]


def advice_templates(verdict: str, run: InForce) -> list[str]:
    """Templates of the lines that are of use to `run`, with fields of InForce in braces."""
    lines = (advice.template_for(run) for advice in VERDICT[verdict].advice)
    return [line for line in lines if line]


def covers_of(report: Report) -> list[tuple[str, Cover, HostWork | None]]:
    """(cause, what covers its gaps, what that means), the cause with the longest gaps first.

    Gaps of `launch` have many short reasons: there a name counts only if its meaning is known.
    """
    covered = report.idle.covered_by if report.idle else {}
    found = [(cause, cover, work_named(cover.name, cause)) for cause, cover in covered.items()]
    found.sort(key=lambda each: -each[1].of_ms)
    return [each for each in found if each[0] != "launch" or each[2]]


def covers_of_verdict(verdict: str, report: Report) -> list[tuple[str, Cover, HostWork | None]]:
    """Choose those of covers_of that lead to the verdict."""
    return [each for each in covers_of(report) if PART[each[0]].verdict == verdict]


def in_force(
    report: Report, verdict: str | None = None, phases: PhaseHabits = NO_HABITS
) -> InForce:
    """Collect what the run uses already, and what covers the gaps of the `verdict`, if given."""
    config = (report.run and report.run.config) or {}
    # a collective waits for other ranks, also where ncu runs its kernel again
    names = [row.name for row in report.kernels if row.family != "communication"]
    program, trainer = report.program, report.program.framework == "trainer"
    attention: object = report.attention_backend
    if attention in (None, "unknown"):
        ran = report.run and report.run.attention and report.run.attention.ran
        attention = ran or config.get("attention")
    if (habits := operator_habits(report)).softmax_ms is not None:
        attention = "slow"
    most = most_above_roof(report.roofline)
    cores = report.cpu_cores
    threads = report.process.compute_threads if report.process else None
    compiled = bool(config.get("compile")) or any(name.startswith(INDUCTOR) for name in names)
    compiled = compiled or is_compiled(report)
    covered = covers_of_verdict(verdict, report) if verdict else []
    kernel_ms = sum(report.family_ms.values())
    moving_ms = {name: ms for name, ms in report.family_ms.items() if name not in MATRIX}
    if copied_ms := within_gpu_ms(report):
        moving_ms["copy"] = moving_ms.get("copy", 0.0) + copied_ms

    def share_of_moving(*families: str) -> bool:
        ms = sum(moving_ms.get(name, 0.0) for name in families)
        return not moving_ms or ms >= WORTH_FUSING * sum(moving_ms.values())

    return InForce(
        framework=program.framework,
        compile=compiled,
        fuses=compiled or config.get("kernels") == "fused",
        graphs_settled=report.on_cpu
        or config.get("cuda_graphs") in (True, "true")
        or config.get("dtype") == "float16"
        or any(row.name.startswith(GRAPH_LAUNCHES) for row in report.api),
        no_slow_attention=(not trainer and not (program.attention and attention == "slow"))
        or (isinstance(attention, str) and attention != AUTO and is_fused(attention)),
        half_precision=config.get("dtype") in ("bfloat16", "float16")
        or (not config and any(HALF.search(name) for name in names[:LARGEST])),
        rounds_float32=trainer or any(TENSOR_FLOAT.search(name) for name in names[:LARGEST]),
        # without a GPU nothing is copied to it
        pinned=report.on_cpu
        or bool(report.copies)
        and not any(map(is_staged, report.copies or [])),
        small_copies=any(map(is_small, (report.copies or [])[:1])),
        no_dropout=config.get("dropout") == 0 or not (trainer or program.dropout),
        copies_ahead=program.copies_ahead,
        tokens_on_gpu=report.on_cpu or config.get("token_storage") == "device",
        small_batch=program.batch_bytes is not None and program.batch_bytes < SMALL_BATCH_BYTES,
        loader_in_process=program.loader == "in_process",
        loader_workers=program.loader == "workers",
        slow_optimizer=habits.plain_optimizer
        if report.on_cpu
        else program.fused_optimizer is False,
        blocking=program.blocking_launches is not None,
        anomaly_mode=program.anomaly_mode,
        elementwise=share_of_moving("elementwise", "dropout", "norm", "softmax", "loss"),
        copying=bool(moving_ms) and share_of_moving("copy"),
        covered_by=next((cover.name for _, cover, work in covered if not work), None),
        cpu_covered=any(cause == "cpu" for cause, *_ in covered),
        waits_covered=any(cause == "synchronization" for cause, *_ in covered),
        transpose_ms=worth(program.transpose_ms, kernel_ms),
        float64_percent=percent_of(worth(program.float64_ms, kernel_ms), kernel_ms),
        kernel=function_name(names[0]) if names and not is_of_amd(report) else None,
        family=most.family if most else None,
        family_gain_ms=above_roof_ms(most) if most else None,
        family_percent=most.percent_of_bound if most else None,
        driver_alone=is_of_driver_alone(report),
        whole_graphs=any(finding.what == WHOLE_GRAPHS for finding in report.health.findings),
        near_peak=report.roofline is not None and (report.roofline.mfu or 0.0) >= NEAR_PEAK,
        compute_threads=threads,
        cpu_cores=cores,
        too_many_threads=bool(threads and cores and threads > cores),
        float64_inputs=has_float64_inputs(report),
        small_operators=habits.small is not None,
        small_passes=phases.small_passes is not None,
        untrained_forwards=phases.untrained is not None,
        quiet_phase=phases.quiet is not None,
        work_between=phases.between is not None and phases.between.behind_the_passes,
        layout_copies=habits.copies_ms is not None,
        dense_embedding=habits.dense_ms is not None,
        cores_to_spare=bool(threads and cores and 2 * threads < cores),  # half may be hyper-threads
        stacks=report.lines is not None or phases.function is not None,
        or_py_spy="" if phases.sampled else ", or without it after pip install py-spy",
        on_cpu=report.on_cpu,
    )


def is_staged(row: CopySpeed) -> bool:
    """Whether these are copies of pageable memory that are large enough to make the host wait."""
    return row.memory == "pageable" and (row.bytes or 0) > STAGED_BYTES * row.count


def is_small(row: CopySpeed) -> bool:
    """Whether these are copies to the GPU, each of which takes less than asking for it."""
    to_gpu = row.direction == FROM_HOST and row.bytes is not None
    return to_gpu and (row.bytes or 0) <= STAGED_BYTES * row.count


def worth(ms: float | None, kernel_ms: float) -> float | None:
    """The milliseconds, or None where they are little of the kernel time."""
    return ms if ms is not None and ms >= WORTH_TELLING * kernel_ms > 0 else None


def percent_of(ms: float | None, kernel_ms: float) -> float | None:
    return None if ms is None else 100 * ms / kernel_ms


def is_of_amd(report: Report) -> bool:
    """Whether an AMD GPU was captured, on which ncu, NVIDIA's tool, does not run."""
    names = [row.name for row in (*report.kernels, *report.api)]
    gpu = report.capture.gpu
    return any(map(OF_AMD.match, [*names, gpu.name] if gpu else names))


def is_of_driver_alone(report: Report) -> bool:
    """Whether the program launches by CUDA's driver alone, under torch.profiler.

    PyTorch's own calls are those of the runtime; Numba and cuda.core call the driver, of which
    torch.profiler records launches and neither copies nor waits nor allocations.
    """
    names = [row.name for row in report.api]
    of_driver = any(map(DRIVER.match, names)) and not any(map(RUNTIME.match, names))
    return report.capture.kind == "kineto" and of_driver


def most_above_roof(roofline: Roofline | None) -> RooflineRow | None:
    """The family with the most time above its roof, or None without one above it.

    The absolute time counts: a slow family that takes no time is no concern.
    """
    above = [row for row in roofline.families if row.percent_of_bound < 100] if roofline else []
    return max(above, key=above_roof_ms, default=None)


def above_roof_ms(row: RooflineRow) -> float:
    """Milliseconds by which a step would be shorter with the family at its roof."""
    return row.ms * (1 - row.percent_of_bound / 100)
