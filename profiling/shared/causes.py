"""The parts of a step and the bottlenecks that can hold it back: two tables, defined only here.

A new reason for idle time is a row of PARTS, its rule in profiling.analysis.gpu_time.idle and, if
it is a bottleneck of its own, a row of VERDICTS. Every bar, table, sentence, colour and piece of
advice is derived from the rows. Standard library only: readers of captures need nothing else.
"""

from dataclasses import asdict, dataclass, replace


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
    meaning: str  # beside the bar of the step
    bucket: str  # in the legend of a chart, and in the table of a comparison
    sentence: str  # in the sentence of a comparison, before "2.10 -> 0 ms"
    colours: Colours
    cause: bool = False  # a reason why the GPU had nothing to do
    verdict: str | None = None  # the row of VERDICTS that it leads to, where it can be a bottleneck
    lengthened: bool = False  # a profiler makes it longer: host time that has events in it


PARTS = (
    Part(
        "compute",
        "kernels that compute",
        "compute",
        "kernels",
        Colours("#065fb7", "#5280a9", "blue", "█"),
    ),
    Part(
        "communication",
        "collectives, alone on the GPU",
        "communication",
        "communication",
        Colours("#8e6085", "#c736ff", "magenta", "▓"),
        verdict="communication",
    ),
    Part(
        "copy",
        "copies and memsets, alone on the GPU",
        "copies and memsets",
        "copies",
        Colours("#142933", "#a7a5a2", "cyan", "▒"),
        verdict="copies",
    ),
    Part(
        "staging",
        "idle: the CPU was copying from or to pageable memory",
        "idle: staging of copies",
        "GPU idle while copies were staged",
        Colours("#aa72f6", "#c3d7a8", "bright_cyan", ":", hatch="+"),
        cause=True,
        verdict="copies",
    ),
    Part(
        "launch",
        "idle: the CPU was launching",
        "idle: launch-bound",
        "GPU idle while waiting for launches",
        Colours("#c1141f", "#fc5a65", "red", "/", hatch="/"),
        cause=True,
        verdict="launch",
        lengthened=True,
    ),
    Part(
        "allocation",
        "idle: the CPU was allocating or freeing GPU memory",
        "idle: allocation",
        "GPU idle in memory allocation",
        Colours("#5c0a0a", "#a54f41", "bright_yellow", "+", hatch="x"),
        cause=True,
        verdict="allocation",
    ),
    Part(
        "synchronization",
        "idle: the CPU was waiting for the GPU",
        "idle: synchronization",
        "GPU idle in synchronization",
        Colours("#e06b00", "#fa9b2d", "yellow", "=", hatch="\\"),
        cause=True,
        verdict="synchronization",
        lengthened=True,
    ),
    Part(
        "data",
        "idle: the CPU was making the batch",
        "idle: waiting for data",
        "GPU idle while waiting for data",
        Colours("#a19062", "#ffeb7a", "green", "~", hatch="."),
        cause=True,
        verdict="data",
    ),
    Part(
        "cpu",
        "idle: the CPU did other work",
        "idle: CPU, Python",
        "GPU idle while waiting for the CPU",
        Colours("#8c0972", "#fdc2d5", "bright_magenta", "-", hatch="-"),
        cause=True,
        verdict="cpu",
        lengthened=True,
    ),
    Part(
        "queue",
        "idle: the next kernel was launched but had not started",
        "idle: between queued kernels",
        "GPU idle between queued kernels",
        Colours("#8693ad", "#93a1b9", "bright_black", ".", hatch="|"),
        cause=True,
        verdict="gpu_gaps",
    ),
    Part(  # all idle time of a capture whose calls were not recorded
        "idle",
        "idle",
        "GPU idle",
        "GPU idle",
        Colours("#5b5a5a", "#70757e", "bright_black"),
    ),
)
PART = {part.name: part for part in PARTS}
CAUSES = tuple(part.name for part in PARTS if part.cause)  # the columns of an idle gap


def part_named(name: str) -> Part:
    """The row of PARTS called `name`, or a neutral one for an unknown name, so that no time is
    lost."""
    idle = PART["idle"]
    neutral = f"idle: {name}"
    return PART.get(name) or replace(
        idle, name=name, meaning=neutral, bucket=neutral, sentence=f"GPU {neutral}", cause=True
    )


@dataclass(frozen=True)
class InForce:
    """Settings that a run uses already, as far as they are known, and values that advice quotes."""

    foreign: bool  # another program than this project's trainer: our keys are of no use there
    trainer: bool  # this project's trainer
    compile: bool
    fuses: bool  # element-wise work, by torch.compile or kernels of its own
    # it uses CUDA graphs, or cannot: the loss scaler reads a value every step
    graphs_settled: bool
    fused_attention: bool
    half_precision: bool
    no_dropout: bool
    pinned: bool  # no copy used pageable memory
    tokens_on_gpu: bool
    kernel: str | None  # the kernel function that takes the most time
    family: str | None  # the kernel family with the most time above its roofline
    family_gain_ms: float | None  # its time above the roofline, per step
    family_percent: float | None  # its speed in per cent of its roof
    whole_graphs: bool  # each CUDA graph was recorded as one block, without its kernels
    near_peak: bool  # arithmetic runs near its peak: little but a smaller task would help
    compute_threads: int | None  # the threads that PyTorch splits an operator over
    cpu_cores: int | None
    cores_to_spare: bool  # there are more cores than compute threads


@dataclass(frozen=True)
class Advice:
    line: str  # a template; fields of InForce stand in braces
    elsewhere: str | None = None  # the line for another program than this project's trainer
    unless: str | None = None  # the field of InForce that makes the advice needless
    needs: str | None = None  # the field of InForce without which it is of no use

    def is_of_use(self, run: InForce) -> bool:
        given = {name for name, value in asdict(run).items() if value}
        return self.unless not in given and (self.needs is None or self.needs in given)


@dataclass(frozen=True)
class Verdict:
    """A bottleneck: what holds a step back, why, and what to do about it."""

    name: str
    title: str  # "Bound by TITLE"
    why: str  # the observation behind the verdict
    advice: tuple[Advice, ...]  # the most promising first
    # what went on while the GPU waited, or None if the GPU itself is the bottleneck
    waiting: str | None = None
    host: bool = False  # the CPU keeps the GPU waiting
    sure: bool = False  # the names of the calls prove it, so no other reason can be as likely


GRAPHS = Advice(
    "Replay the step from CUDA graphs: cuda_graphs=true. The host then launches once per phase.",
    'Replay the step from CUDA graphs: torch.compile(model, mode="reduce-overhead"), or '
    "torch.cuda.make_graphed_callables.",
    unless="graphs_settled",
)
FUSE = Advice(
    "Fuse kernels to save launches: compile=true.",
    "Fuse kernels to save launches: torch.compile(model), and optimizers with fused=True.",
    unless="fuses",
)
LARGER_BATCH = Advice(
    "Give each launch more work: a larger batch_size.",
    "Give each launch more work: a larger batch.",
)
HALF_PRECISION = Advice(
    "Use the fast formats of the tensor cores and move half the bytes: dtype=bfloat16.",
    "Use the fast formats of the tensor cores and move half the bytes: torch.autocast to "
    'bfloat16, or torch.set_float32_matmul_precision("high").',
    unless="half_precision",
)
FUSED_ATTENTION = Advice(
    "Keep the attention scores out of memory and skip masked scores: attention=flash.",
    "Keep the attention scores out of memory and skip masked scores: "
    "F.scaled_dot_product_attention.",
    unless="fused_attention",
)
MOST_TO_GAIN = Advice(
    "Start with {family} kernels, which can save the most: up to {family_gain_ms:.2f} ms per "
    "step (they run at {family_percent:.0f} % of their roof).",
    needs="family",
)
ONE_KERNEL = Advice(
    "Find out what limits the longest kernel: python -m profiling ncu --range none --kernel "
    "{kernel} -- COMMAND",
    needs="kernel",
)
SOURCES = Advice(
    "See which operations torch.compile fused and which it did not: python -m profiling compiled.",
    "See which operations torch.compile fused and which it did not: TORCH_LOGS=output_code.",
    needs="compile",
)
LAUNCHED_SINGLY = Advice(
    "Look at the timeline of the HTML page (report --html) for kernels that are launched one by "
    "one."
)
FIND_WAITS = Advice(
    "In the phase with the gaps, find calls that wait for the GPU: .item(), .cpu(), "
    "print(tensor), a copy to the host, an if on a tensor."
)
FIND_PYTHON = Advice(
    "In the phase with the gaps, look for Python work: logging, hooks, metrics, garbage "
    "collection, sleeps."
)
PIN = Advice(
    "Copy from pinned memory with non_blocking=True: copies from pageable memory make the host "
    "wait.",
    unless="pinned",
)
WORKERS = Advice(
    "Prepare the next batch while the GPU works: worker processes, or a thread one step ahead.",
    "Prepare the next batch while the GPU works: DataLoader with more num_workers, "
    "persistent_workers=True, pin_memory=True, and cheaper transforms.",
)

VERDICTS = (
    Verdict(
        "gpu_compute",
        "GPU compute",
        "the GPU is busy, mostly with matrix products, convolutions and attention",
        advice=(
            HALF_PRECISION,
            FUSED_ATTENTION,
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
            FUSED_ATTENTION,
            Advice(
                "Fuse element-wise operations, norms and dropout: compile=true.",
                "Fuse element-wise operations, norms and dropout: torch.compile(model).",
                unless="fuses",
            ),
            HALF_PRECISION,
            Advice(
                "Turn dropout off if the model does not need it, which saves the masks: dropout=0.",
                "Turn dropout off if the model does not need it, which saves the masks.",
                unless="no_dropout",
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
        advice=(LARGER_BATCH, FUSE, GRAPHS, SOURCES),
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
        advice=(GRAPHS, FUSE, WORKERS, FIND_WAITS, FIND_PYTHON),
    ),
    Verdict(
        "launch",
        "kernel launches",
        "the GPU waits for the CPU to launch its next kernel",
        waiting="the CPU had not launched the work yet (CUDA API and framework dispatch)",
        host=True,
        advice=(GRAPHS, FUSE, LARGER_BATCH, LAUNCHED_SINGLY),
    ),
    Verdict(
        "allocation",
        "memory allocation",
        "the GPU waits while the CPU allocates or frees device memory",
        waiting="the CPU was in cudaMalloc, cudaFree or a similar call",
        host=True,
        sure=True,
        advice=(
            Advice(
                "Let PyTorch cache its memory: no torch.cuda.empty_cache() in the loop, no "
                "PYTORCH_NO_CUDA_MEMORY_CACHING."
            ),
            Advice(
                "Keep shapes the same from step to step, or try "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
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
            FIND_WAITS,
            Advice(
                "Keep values on the GPU and read them only every log_interval iterations.",
                "Keep values on the GPU and read them only once every many steps.",
            ),
            Advice(
                "Copy to pinned memory with non_blocking=True, and wait for an event one step "
                "later."
            ),
        ),
    ),
    Verdict(
        "cpu",
        "CPU work",
        "the GPU waits while the CPU does other work, such as Python code",
        waiting="the CPU was busy with other work (Python)",
        host=True,
        advice=(
            FIND_PYTHON,
            Advice(
                "Move this work to another thread or process, or do it only every log_interval "
                "iterations.",
                "Move this work to another thread or process, or do it only once every many steps.",
            ),
            GRAPHS,
        ),
    ),
    Verdict(
        "data",
        "data loading",
        "the GPU waits for the next batch",
        waiting="the next batch was being prepared or copied",
        host=True,
        advice=(
            Advice(
                "Keep the tokens on the GPU: token_storage=device.",
                "Keep a small data set on the GPU.",
                unless="tokens_on_gpu",
            ),
            WORKERS,
            PIN,
        ),
    ),
    Verdict(
        "copies",
        "copies",
        "the GPU only copies, or waits while the CPU copies",
        waiting="only copies ran, or the CPU was copying their data",
        advice=(
            PIN,
            Advice("Overlap copies with kernels: copy one batch ahead on a separate stream."),
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
        advice=(
            Advice(
                "Check whether this rank only waits for a slower one: capture all ranks (python "
                "-m profiling run --ranks all) and run report on their folder."
            ),
            Advice(
                "Overlap the all-reduce with backward in buckets, as DistributedDataParallel does."
            ),
            Advice(
                "Communicate less often, or less data: gradient_accumulation_steps, gradients in "
                "bfloat16.",
                "Communicate less often, or less data: gradient accumulation, gradients in "
                "bfloat16.",
            ),
            Advice("Check the link between the GPUs: nvidia-smi topo -m, NCCL_DEBUG=INFO."),
        ),
    ),
    Verdict(  # no GPU took part, so that no part of the step can be idle
        "cpu_only",
        "the CPU",
        "the run has no GPU",
        advice=(
            Advice(
                "Compute on all cores: OMP_NUM_THREADS={cpu_cores}. PyTorch uses "
                "{compute_threads} threads now.",
                needs="cores_to_spare",
            ),
            Advice(
                "Fuse operators into C++ loops: compile=true, which takes about a minute to "
                "compile.",
                "Fuse operators into C++ loops: torch.compile(model), which takes about a minute "
                "to compile.",
                unless="compile",
            ),
            Advice(
                "Use PyTorch's fused attention, which supports no dropout on a CPU: dropout=0 "
                "attention=flash.",
                unless="no_dropout",
                needs="trainer",
            ),
            Advice(FUSED_ATTENTION.line, unless="fused_attention", needs="no_dropout"),
            Advice(
                "Give each operator more work to split over threads: a larger batch_size.",
                "Give each operator more work to split over threads: a larger batch.",
            ),
        ),
    ),
    Verdict(
        "unknown",
        "unknown",
        "the capture does not contain the events that would show it",
        advice=(
            Advice(
                "Capture GPU work and CUDA calls: python -m profiling run --preset light.",
                "Capture GPU work and CUDA calls: nsys profile --trace=cuda,nvtx,osrt, or "
                "torch.profiler with ProfilerActivity.CUDA.",
            ),
        ),
    ),
)
VERDICT = {verdict.name: verdict for verdict in VERDICTS}
# what a GPU is busy with: nothing waits, and no part of the step leads to it
BUSY_GPU_VERDICTS = {verdict.name for verdict in VERDICTS if verdict.waiting is None} - {
    *(part.verdict for part in PARTS),
    "cpu_only",
    "unknown",
}
