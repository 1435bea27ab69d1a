"""What a step is made of and what can hold it back: two tables, and nothing about them elsewhere.

A new reason for idle time is a row of PARTS, its rule in profiling.analysis.gpu_time.idle and, if
it is a bottleneck of its own, a row of VERDICTS. Every bar, table, sentence, colour and piece of
advice is derived from the rows. Standard library only: readers of captures need nothing else.
"""

from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True)
class Colours:
    """Of a part in the bar of the step."""

    light: str  # on a page
    dark: str
    terminal: str  # a style of rich
    shade: str = "░"


@dataclass(frozen=True)
class Part:
    """A part of a step. Parts exclude each other and add up to it, in the order of PARTS."""

    name: str
    meaning: str  # beside the bar of the step
    bucket: str  # in the table of a comparison
    sentence: str  # in the sentence of a comparison, before "2.10 -> 0 ms"
    colours: Colours
    cause: bool = False  # a reason why the GPU had nothing to do
    verdict: str | None = None  # what it holds the step back by, where that is a bottleneck
    host: bool = False  # time of the host, which a profiler lengthens


PARTS = (
    Part(
        "compute",
        "kernels that compute",
        "compute",
        "kernels",
        Colours("#2f6fde", "#5b94f5", "blue", "█"),
    ),
    Part(
        "communication",
        "collectives, alone on the GPU",
        "communication",
        "communication",
        Colours("#d6336c", "#f0659a", "magenta", "▓"),
        verdict="communication",
    ),
    Part(
        "copy",
        "copies and memsets, alone on the GPU",
        "copies and memsets",
        "copies",
        Colours("#6c7f93", "#8a9db1", "cyan", "▒"),
    ),
    Part(
        "launch",
        "idle: the CPU was launching",
        "idle: launch-bound",
        "GPU idle, launch-bound",
        Colours("#e5484d", "#ff6369", "red"),
        cause=True,
        verdict="launch",
        host=True,
    ),
    Part(
        "synchronization",
        "idle: the CPU was waiting for the GPU",
        "idle: synchronisation",
        "GPU idle in synchronization",
        Colours("#f08c00", "#ffab3d", "yellow"),
        cause=True,
        verdict="synchronization",
    ),
    Part(
        "data",
        "idle: the CPU was making the batch",
        "idle: waiting for data",
        "GPU idle, waiting for data",
        Colours("#c9a800", "#e0c53a", "green"),
        cause=True,
        verdict="data",
    ),
    Part(
        "cpu",
        "idle: the CPU did something else",
        "idle: CPU, Python",
        "GPU idle behind the CPU",
        Colours("#9c5fd6", "#b98be8", "bright_magenta"),
        cause=True,
        verdict="cpu",
        host=True,
    ),
    Part(
        "queue",
        "idle: launched already, not yet started",
        "idle: between queued kernels",
        "GPU idle between queued kernels",
        Colours("#b4bcc6", "#66717d", "bright_black"),
        cause=True,
        verdict="gpu_latency",
    ),
    Part(  # all idle time of a capture whose calls were not recorded
        "idle",
        "idle",
        "GPU idle",
        "GPU idle",
        Colours("#cfd5dc", "#3d4650", "bright_black"),
    ),
)
PART = {part.name: part for part in PARTS}
CAUSES = tuple(part.name for part in PARTS if part.cause)  # the columns of an idle gap


def part_named(name: str) -> Part:
    """A row of PARTS; a neutral one for a name that has none, so that its time is not lost."""
    idle = PART["idle"]
    neutral = f"idle: {name}"
    return PART.get(name) or replace(
        idle, name=name, meaning=neutral, bucket=neutral, sentence=f"GPU {neutral}", cause=True
    )


@dataclass(frozen=True)
class InForce:
    """What a run has in force already, as far as it is known; what lines of advice name."""

    compile: bool
    graphs_settled: bool  # it has CUDA graphs, or cannot: the loss scaler reads a value every step
    fused_attention: bool
    half_precision: bool
    no_dropout: bool
    tokens_on_gpu: bool
    kernel: str | None  # the function that takes the most time
    family: str | None  # the one with the most time above its roofline
    family_ms: float | None
    family_percent: float | None


@dataclass(frozen=True)
class Advice:
    line: str  # with the fields of InForce in braces
    unless: str | None = None  # the field of InForce that makes it needless
    needs: str | None = None  # the one without which it is of no use

    def is_of_use(self, run: InForce) -> bool:
        given = {name for name, value in asdict(run).items() if value}
        return self.unless not in given and (self.needs is None or self.needs in given)


@dataclass(frozen=True)
class Verdict:
    """What holds a step back."""

    name: str
    title: str  # "Bound by TITLE"
    why: str  # why one says so
    advice: tuple[Advice, ...]  # the most promising first
    waiting: str | None = None  # what went on while the GPU waited; None: the GPU is the bottleneck


GRAPHS = "Replay the step from CUDA graphs: cuda_graphs=true; the host then launches once a phase."
LARGER_BATCH = Advice("Give each launch more to do: a larger batch_size.")
FURTHEST = Advice(
    "Begin with the family furthest from its bound: {family}, {family_ms:.2f} ms a step at "
    "{family_percent:.0f} % of it.",
    needs="family",
)
ONE_KERNEL = Advice(
    "See what holds the largest kernel back: python -m profiling ncu --range none --kernel "
    "{kernel} -- COMMAND",
    needs="kernel",
)
SOURCES = Advice(
    "See what torch.compile fused and what it left: python -m profiling compiled.", needs="compile"
)

VERDICTS = (
    Verdict(
        "gpu_compute",
        "GPU compute",
        "the GPU is busy, mostly with matrix products and attention",
        advice=(
            Advice("Use the matrix units' fast formats: dtype=bfloat16.", unless="half_precision"),
            Advice("Skip what the causal mask hides: attention=flash.", unless="fused_attention"),
            FURTHEST,
            ONE_KERNEL,
            Advice(
                "Arithmetic itself is what remains: a smaller model, a shorter context, or more "
                "GPUs."
            ),
        ),
    ),
    Verdict(
        "gpu_memory",
        "GPU memory bandwidth",
        "the GPU is busy moving bytes, not multiplying",
        advice=(
            Advice(
                "Keep the attention scores out of memory: attention=flash.",
                unless="fused_attention",
            ),
            Advice("Fuse element-wise work, norms and dropout: compile=true.", unless="compile"),
            Advice("Move half the bytes: dtype=bfloat16.", unless="half_precision"),
            Advice("dropout=0, where it is not needed, saves its masks.", unless="no_dropout"),
            FURTHEST,
            SOURCES,
            ONE_KERNEL,
        ),
    ),
    Verdict(
        "gpu_latency",
        "GPU latency",
        "the GPU is busy with kernels too small to fill it",
        advice=(
            LARGER_BATCH,
            Advice("Fuse small kernels: compile=true.", unless="compile"),
            Advice("Replay them with smaller gaps: cuda_graphs=true.", unless="graphs_settled"),
            SOURCES,
        ),
    ),
    Verdict(
        "launch",
        "kernel launches",
        "the GPU waits for the CPU to launch its next kernel",
        waiting="work had not been launched yet (CUDA API and the framework's dispatch)",
        advice=(
            Advice(GRAPHS, unless="graphs_settled"),
            Advice("Fuse kernels, which saves launches: compile=true.", unless="compile"),
            LARGER_BATCH,
            Advice("See what is launched one by one: report CAPTURE --html FILE, its timeline."),
        ),
    ),
    Verdict(
        "synchronization",
        "synchronisation",
        "the GPU runs dry while the CPU waits for it",
        waiting="the host had waited for the GPU and launched too late after it",
        advice=(
            Advice(
                "Find what waits in the gaps' phase: .item(), .cpu(), print(tensor), a copy to the "
                "host, a boolean of a tensor."
            ),
            Advice("Keep values on the GPU and read them every log_interval-th iteration."),
            Advice(
                "Copy with pinned memory and non_blocking=True, and wait on an event one step "
                "later."
            ),
        ),
    ),
    Verdict(
        "cpu",
        "CPU work",
        "the GPU waits while Python or the CPU does something else",
        waiting="the host was busy with something else (Python)",
        advice=(
            Advice("Look for Python work in the gaps' phase: logging, hooks, metrics, sleeps."),
            Advice(
                "Move it to another thread or process, or do it every log_interval-th iteration."
            ),
            Advice(GRAPHS + " Its queue hides short stalls.", unless="graphs_settled"),
        ),
    ),
    Verdict(
        "data",
        "data loading",
        "the GPU waits for the next batch",
        waiting="the next batch was being prepared or copied",
        advice=(
            Advice("Keep the tokens on the GPU: token_storage=device.", unless="tokens_on_gpu"),
            Advice(
                "Prepare the next batch while the GPU works: workers, or a thread a step ahead."
            ),
            Advice(
                "Copy from pinned memory with non_blocking=True; pageable memory makes the host "
                "wait."
            ),
        ),
    ),
    Verdict(
        "communication",
        "communication",
        "the GPU waits for, or is busy with, other GPUs",
        waiting="only communication ran",
        advice=(
            Advice(
                "Overlap the all-reduce with backward: buckets, as DistributedDataParallel does."
            ),
            Advice(
                "Communicate less often or less: gradient_accumulation_steps, gradients in "
                "bfloat16."
            ),
            Advice("Check the link between the GPUs: nvidia-smi topo -m, NCCL_DEBUG=INFO."),
        ),
    ),
    Verdict(
        "unknown",
        "unknown",
        "the capture does not hold what would tell",
        advice=(Advice("Capture the GPU and the calls: python -m profiling run --preset light."),),
    ),
)
VERDICT = {verdict.name: verdict for verdict in VERDICTS}
