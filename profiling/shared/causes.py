"""The parts of a step and the bottlenecks that can hold it back: two tables, defined only here.

A new reason for idle time is a row of PARTS, its rule in profiling.analysis.gpu_time.host_activity
and, if it is a bottleneck of its own, a row of VERDICTS. Every bar, table, sentence, colour and
piece of advice is derived from the rows. Standard library only: readers of captures need nothing
else.
"""

from dataclasses import dataclass, replace

from profiling.shared.advice import (
    ANOMALY_MODE,
    BLOCKING_LAUNCHES,
    CHANNELS_LAST,
    COVERED,
    FASTER_WORKERS,
    FEWER_COPIES,
    FIND_PAUSES,
    FIND_PYTHON,
    FIND_WAITS,
    FIRST_WORKERS,
    FLOAT64,
    FOREIGN_TORCH,
    FUSE,
    FUSE_ELEMENTWISE,
    FUSED_ATTENTION,
    FUSED_OPTIMIZER,
    GRAPHS,
    HALF_PRECISION,
    LARGER_BATCH,
    LAUNCHED_SINGLY,
    MOST_TO_GAIN,
    NAME_PAUSES,
    ONE_KERNEL,
    PIN,
    SOURCES,
    TENSOR_FLOAT,
    WORKERS,
    Advice,
    Verdict,
)
from profiling.shared.cpu_verdicts import CPU_VERDICTS


@dataclass(frozen=True)
class Colours:
    """Colours of one part in the bar that shows a step."""

    light: str  # on a page in its light theme
    dark: str  # and in its dark one
    terminal: str  # a style of rich
    shade: str = "░"  # a pipe has no colours, so each has a glyph of its own
    hatch: str = ""  # on a page, as plotly names it


@dataclass(frozen=True)
class Part:
    """A part of a step. Parts exclude each other and add up to it, in the order of PARTS."""

    name: str
    title: str  # its name in each bar, legend, table and sentence
    colours: Colours
    cause: bool = False  # a reason why the GPU had nothing to do
    verdict: str | None = None  # the row of VERDICTS that it leads to, where it can be a bottleneck
    lengthened: bool = False  # a profiler makes it longer: host time that has events in it


PARTS = (
    Part(
        "compute",
        "compute",
        Colours("#2956f9", "#4171fb", "blue", "█"),
    ),
    Part(
        "communication",
        "communication",
        Colours("#91479a", "#9746a0", "magenta", "▓"),
        verdict="communication",
    ),
    Part(
        "copy",
        "copies and memsets",
        Colours("#343434", "#959595", "white", "▒"),
        verdict="copies",
    ),
    Part(
        "staging",
        "idle: staging of copies",
        Colours("#02a0d5", "#1cb7f2", "bright_cyan", ":", hatch="+"),
        cause=True,
        verdict="copies",
    ),
    Part(
        "launch",
        "idle: kernel launches",
        Colours("#f56172", "#fe576e", "red", "/", hatch="/"),
        cause=True,
        verdict="launch",
        lengthened=True,
    ),
    Part(
        "allocation",
        "idle: memory allocation",
        Colours("#a5960c", "#f4e88c", "bright_yellow", "+", hatch="x"),
        cause=True,
        verdict="allocation",
    ),
    Part(
        "synchronization",
        "idle: synchronization",
        Colours("#995e01", "#aa6a05", "yellow", "=", hatch="\\"),
        cause=True,
        verdict="synchronization",
        lengthened=True,
    ),
    Part(
        "data",
        "idle: data loading",
        Colours("#5c8a4f", "#5f8c53", "green", "~", hatch="."),
        cause=True,
        verdict="data",
    ),
    Part(
        "cpu",
        "idle: CPU work",
        Colours("#641f6f", "#a974b1", "bright_magenta", "-", hatch="-"),
        cause=True,
        verdict="cpu",
        lengthened=True,
    ),
    Part(
        "queue",
        "idle: gaps between queued kernels",
        Colours("#666666", "#bcbcbb", "bright_black", ".", hatch="|"),
        cause=True,
        verdict="gpu_gaps",
    ),
    Part(  # all idle time of a capture whose calls were not recorded
        "idle",
        "idle",
        Colours("#8a919d", "#eaf2fe", "bright_black"),
    ),
)
PART = {part.name: part for part in PARTS}
CAUSES = tuple(part.name for part in PARTS if part.cause)  # the columns of an idle gap


def part_named(name: str) -> Part:
    """The row of PARTS called `name`, or a neutral one for an unknown name, so that no time is
    lost."""
    return PART.get(name) or replace(PART["idle"], name=name, title=f"idle: {name}", cause=True)


VERDICTS = (
    Verdict(
        "gpu_compute",
        "GPU compute",
        "the GPU is busy, mostly with matrix products, convolutions and attention",
        advice=(
            FLOAT64,
            CHANNELS_LAST,
            HALF_PRECISION,
            FUSED_ATTENTION,
            TENSOR_FLOAT,
            MOST_TO_GAIN,
            ONE_KERNEL,
            Advice(
                "Arithmetic is already near its peak: only a smaller model, a shorter context or "
                "more GPUs would help.",
                needs="near_peak",
            ),
        ),
    ),
    Verdict(
        "gpu_memory",
        "GPU memory bandwidth",
        "the GPU is busy, mostly moving data",
        advice=(
            CHANNELS_LAST,
            FLOAT64,
            FUSED_ATTENTION,
            FEWER_COPIES,
            FUSE_ELEMENTWISE,
            HALF_PRECISION,
            Advice(
                trainer="Turn dropout off where you do not need it, which saves writing and "
                "reading its masks: dropout=0.",
                pytorch="Turn dropout off where you do not need it: that saves writing and "
                "reading its masks.",
                jax="Turn dropout off where you do not need it: that saves writing and "
                "reading its masks.",
                unless=("no_dropout",),
            ),
            MOST_TO_GAIN,
            SOURCES,
            ONE_KERNEL,
        ),
    ),
    Verdict(
        "gpu_latency",
        "GPU latency",
        "the GPU is busy with kernels too small to fill it",
        advice=(LARGER_BATCH, FUSE, FUSED_OPTIMIZER, GRAPHS, SOURCES),
    ),
    Verdict(
        "gpu_gaps",
        "gaps between queued kernels",
        "the GPU pauses between kernels that are queued",
        advice=(FUSE, GRAPHS, LARGER_BATCH, SOURCES),
    ),
    Verdict(
        "gpu",
        "GPU work",
        "the GPU is busy, either with arithmetic or with memory traffic",
        advice=(
            Advice(
                "Capture the kernels inside CUDA graphs: nsys profile --cuda-graph-trace=node.",
                needs="whole_graphs",
            ),
            MOST_TO_GAIN,
            ONE_KERNEL,
        ),
    ),
    Verdict(
        "host",
        "the host",
        "the GPU waits for the CPU, for several reasons of about equal cost",
        waiting="the host was late",
        host=True,
        advice=(
            BLOCKING_LAUNCHES,
            ANOMALY_MODE,
            COVERED,
            GRAPHS,
            FUSE,
            FIRST_WORKERS,
            WORKERS,
            FASTER_WORKERS,
            FIND_WAITS,
            FIND_PYTHON,
        ),
    ),
    Verdict(
        "launch",
        "kernel launches",
        "the GPU waits for the CPU to launch its next kernel",
        waiting="the CPU had not launched the next kernel yet (CUDA API and framework dispatch)",
        host=True,
        advice=(GRAPHS, FUSE, FUSED_OPTIMIZER, LARGER_BATCH, LAUNCHED_SINGLY),
    ),
    Verdict(
        "allocation",
        "memory allocation",
        "the GPU waits while the CPU allocates or frees device memory",
        waiting="the CPU was in cudaMalloc, cudaFree or a similar call, or in a wait that gave "
        "memory back",
        host=True,
        sure=True,
        advice=(
            Advice(
                "Allocate once and reuse: each allocation asks the driver.",
                pytorch="Let PyTorch cache its memory: no torch.cuda.empty_cache() in the loop, no "
                "PYTORCH_NO_CUDA_MEMORY_CACHING.",
                huggingface="Let PyTorch cache its memory: no torch_empty_cache_steps, no "
                "torch.cuda.empty_cache() in the loop.",
                jax="Let XLA keep its memory: no XLA_PYTHON_CLIENT_ALLOCATOR=platform, and "
                "XLA_PYTHON_CLIENT_PREALLOCATE=true.",
                cupy="Let CuPy keep its memory: the default memory pool, and no free_all_blocks() "
                "in the loop.",
            ),
            Advice(
                "Keep shapes the same from step to step.",
                pytorch="Keep shapes the same from step to step, or try "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
            ),
            Advice("Allocate pinned buffers once and reuse them."),
        ),
    ),
    Verdict(
        "synchronization",
        "synchronization",
        "the GPU runs dry while the CPU waits for it",
        waiting="the CPU had waited for the GPU and then launched the next work too late",
        host=True,
        advice=(
            BLOCKING_LAUNCHES,
            ANOMALY_MODE,
            COVERED,
            FIND_WAITS,
            Advice(
                "Keep values on the GPU and read them only once every many steps.",
                trainer="Keep values on the GPU and read them only every log_interval iterations.",
                unless=("blocking", "anomaly_mode"),
            ),
            Advice(
                "Copy to pinned memory asynchronously, and wait for it one step later.",
                pytorch="Copy to pinned memory with non_blocking=True, and wait for an event one "
                "step later.",
                jax="Copy with x.copy_to_host_async(), and read the value one step later.",
                unless=("blocking", "anomaly_mode"),
            ),
        ),
    ),
    Verdict(
        "cpu",
        "CPU work",
        "the GPU waits while the CPU does other work, such as Python code",
        waiting="the CPU was busy with other work",
        without_gpu="Python, files or waits took time in which no operator ran",
        host=True,
        advice=(
            COVERED,
            FIND_PYTHON,
            FIND_PAUSES,
            NAME_PAUSES,
            Advice(
                "Move this work to another thread or process, or do it only once every many steps.",
                trainer="Move this work to another thread or process, or do it only every "
                "log_interval iterations.",
            ),
            GRAPHS,
        ),
    ),
    Verdict(
        "data",
        "data loading",
        "the GPU waits for the next batch",
        waiting="the next batch was being prepared or copied",
        without_gpu="the next batch was being made",
        host=True,
        advice=(
            Advice(
                trainer="Keep the tokens on the GPU: token_storage=device.",
                only=("trainer",),
                unless=("tokens_on_gpu",),
            ),
            Advice(
                "Prepare the next batch while the step computes: worker processes, or a thread one "
                "step ahead.",
                pytorch="Prepare the next batch while the step computes: DataLoader with "
                "num_workers=2 or more and persistent_workers=True.",
                unless=("loader_workers",),
                needs="on_cpu",
            ),
            FASTER_WORKERS,
            Advice(
                "Make a batch cheaper: decode and transform the data once, before training, and "
                "collate arrays instead of single samples.",
                needs="on_cpu",
            ),
            replace(FIRST_WORKERS, unless=("on_cpu",)),
            replace(WORKERS, unless=(*WORKERS.unless, "on_cpu")),
            PIN,
            Advice(
                "Keep the data set on the GPU, if it fits next to the model.",
                only=(*FOREIGN_TORCH, "jax", "cupy", "unknown"),
                unless=("on_cpu",),
                needs="small_batch",
            ),
        ),
    ),
    Verdict(
        "copies",
        "copies",
        "the GPU only copies, or waits while the CPU copies",
        waiting="only copies ran, or the CPU was copying their data",
        advice=(
            Advice(
                "Join small copies: gather on the host what a step needs, and copy it at once.",
                pytorch="Join small copies: torch.stack or torch.cat on the host what a step "
                "needs, and copy it at once.",
                needs="small_copies",
            ),
            PIN,
            Advice(
                "Overlap copies with kernels: copy one batch ahead on a separate stream.",
                unless=("copies_ahead",),
            ),
            Advice(
                "Copy less: send 8-bit or half-precision data instead of float32, convert on the "
                "GPU, and reduce results before copying them to the host."
            ),
        ),
    ),
    Verdict(
        "communication",
        "communication",
        "the GPU waits for other GPUs, or exchanges data with them",
        waiting="only communication ran",
        without_gpu="the rank waited for others, or exchanged data with them",
        advice=(
            Advice(
                "Check whether this rank only waits for a slower one: capture all ranks (python "
                "-m profiling run --ranks all) and run report on their folder.",
                unless=("on_cpu",),
            ),
            Advice(
                "Check whether this rank only waits for a slower one: run report on the capture "
                "of each rank.",
                needs="on_cpu",
            ),
            Advice(
                "Overlap the all-reduce with backward, in buckets.",
                pytorch="Overlap the all-reduce with backward in buckets, as "
                "DistributedDataParallel does.",
                unless=("on_cpu",),  # whose captures do not tell a program that does so already
            ),
            Advice(
                "Communicate less often, or less data: gradient accumulation, gradients in "
                "bfloat16.",
                trainer="Communicate less often, or less data: gradient_accumulation_steps, "
                "gradients in bfloat16.",
            ),
            Advice(
                "Check the link between the GPUs: nvidia-smi topo -m, NCCL_DEBUG=INFO.",
                unless=("on_cpu",),
            ),
        ),
    ),
    *CPU_VERDICTS,
    Verdict(
        "unknown",
        "unknown",
        "the capture does not contain the events that would show it",
        advice=(
            Advice(
                "Capture GPU work and CUDA calls: nsys profile --trace=cuda,nvtx,osrt.",
                trainer="Capture GPU work and CUDA calls: python -m profiling run --preset light.",
                pytorch="Capture GPU work and CUDA calls: nsys profile --trace=cuda,nvtx,osrt, or "
                "torch.profiler with ProfilerActivity.CUDA.",
                unless=("driver_alone",),
            ),
            Advice(
                "Record all calls of CUDA's driver: nsys profile --trace=cuda,nvtx,osrt.",
                needs="driver_alone",
            ),
        ),
    ),
)
VERDICT = {verdict.name: verdict for verdict in VERDICTS}


def is_of_host(part: str) -> bool:
    """Whether the part of a step is idle time for which the host is to blame."""
    verdict = PART[part].verdict
    return verdict is not None and VERDICT[verdict].host


# what a GPU is busy with: nothing waits, and no part of the step leads to it
BUSY_GPU_VERDICTS = {verdict.name for verdict in VERDICTS if verdict.waiting is None} - {
    *(part.verdict for part in PARTS),
    "cpu_only",
    "unknown",
}
