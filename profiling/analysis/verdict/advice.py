"""Choose what to try next, from profiling.shared.causes. Called by diagnosis.

A setting that is in force already is not advised. What is in force is read off the manifest's
configuration and off the capture itself; a setting that neither shows counts as not in force.
"""

import re
from dataclasses import asdict

from configs.backends import AUTO, is_fused
from profiling.analysis.records import Report, Roofline, RooflineRow
from profiling.analysis.verdict.health import WHOLE_GRAPHS
from profiling.shared.causes import VERDICT, InForce
from profiling.shared.kernel_names import function_name

GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
STEP = "iteration"  # the trainer's name for its steps
TOKEN = "token"  # a step of sample.py, which does not have the keys of training
NEAR_PEAK = 0.5  # MFU
INDUCTOR = "triton_"
# matrix products of 16-bit elements: cuBLAS, CUTLASS, cuDNN, Triton, hipBLASLt
HALF = re.compile(r"bf16|bfloat16|f16f16|s16816|h16816|_hsh_|_hss|fp16|nvjet_(sm\d+_)?[ht]", re.I)
LARGEST = 20  # kernels that are searched for such products
# HIP's calls; matrix products by Tensile, copies by ROCm's own kernels; names of GPUs
OF_AMD = re.compile(r"hip[A-Z]|Cijk_|__amd_|(AMD|Radeon|Instinct|MI\d{2,3}[A-Z]?)\b")


def advise(verdict: str, report: Report) -> list[str]:
    """The lines of advice for a verdict that are of use to this report's run."""
    run = in_force(report)
    return [line.format_map(asdict(run)) for line in advice_templates(verdict, run)]


def advice_templates(verdict: str, run: InForce) -> list[str]:
    """Templates of the lines that are of use to `run`, with fields of InForce in braces."""
    useful = (advice for advice in VERDICT[verdict].advice if advice.is_of_use(run))
    return [(run.foreign and advice.elsewhere) or advice.line for advice in useful]


def in_force(report: Report) -> InForce:
    config = (report.run and report.run.config) or {}
    # a collective waits for other ranks, also where ncu runs its kernel again
    names = [row.name for row in report.kernels if row.family != "communication"]
    attention: object = report.attention_backend
    if attention in (None, "unknown"):
        ran = report.run and report.run.attention and report.run.attention.ran
        attention = ran or config.get("attention")
    most = most_above_roof(report.roofline)
    step = report.window.step_name
    # a manifest without keys is that of a program of others
    unknown = report.run.config is None if report.run else step != STEP
    foreign = step == TOKEN or unknown
    cores = report.cpu_cores
    threads = report.process.compute_threads if report.process else None
    compiled = bool(config.get("compile")) or any(name.startswith(INDUCTOR) for name in names)
    return InForce(
        foreign=foreign,
        trainer=not foreign,
        compile=compiled,
        fuses=compiled or config.get("kernels") == "fused",
        graphs_settled=config.get("cuda_graphs") in (True, "true")
        or config.get("dtype") == "float16"
        or any(row.name.startswith(GRAPH_LAUNCHES) for row in report.api),
        # a foreign program without a slow one has a fused one, or no attention at all
        fused_attention=(foreign and attention != "slow")
        or (isinstance(attention, str) and attention != AUTO and is_fused(attention)),
        half_precision=config.get("dtype") in ("bfloat16", "float16")
        or (not config and any(HALF.search(name) for name in names[:LARGEST])),
        pinned=bool(report.memops) and not any(row.pageable for row in report.memops),
        no_dropout=config.get("dropout") == 0,
        tokens_on_gpu=config.get("token_storage") == "device",
        kernel=function_name(names[0]) if names and not is_of_amd(report) else None,
        family=most.family if most else None,
        family_gain_ms=above_roof_ms(most) if most else None,
        family_percent=most.percent_of_bound if most else None,
        whole_graphs=any(finding.what == WHOLE_GRAPHS for finding in report.health.findings),
        near_peak=report.roofline is not None and (report.roofline.mfu or 0.0) >= NEAR_PEAK,
        compute_threads=threads,
        cpu_cores=cores,
        cores_to_spare=bool(threads and cores and 2 * threads < cores),  # half may be hyper-threads
    )


def is_of_amd(report: Report) -> bool:
    """Whether an AMD GPU was captured, on which ncu, NVIDIA's tool, does not run."""
    names = [row.name for row in (*report.kernels, *report.api)]
    gpu = report.capture.gpu
    return any(map(OF_AMD.match, [*names, gpu.name] if gpu else names))


def most_above_roof(roofline: Roofline | None) -> RooflineRow | None:
    """The family with the most time above its roof, or None without one above it.

    The absolute time counts: a slow family that takes no time is no concern.
    """
    above = [row for row in roofline.families if row.percent_of_bound < 100] if roofline else []
    return max(above, key=above_roof_ms, default=None)


def above_roof_ms(row: RooflineRow) -> float:
    """Milliseconds by which a step would be shorter with the family at its roof."""
    return row.ms * (1 - row.percent_of_bound / 100)
