"""The parts of a step and the bottlenecks that can hold it back: two tables, defined only here.

A new reason for idle time is a row of PARTS, its rule in profiling.analysis.gpu_time.idle and, if
it is a bottleneck of its own, a row of VERDICTS. Every bar, table, sentence, colour and piece of
advice is derived from the rows. Standard library only: readers of captures need nothing else.
"""

from dataclasses import asdict, dataclass, replace
from typing import Literal


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


Framework = Literal["trainer", "lightning", "huggingface", "pytorch", "jax", "cupy", "unknown"]
FOREIGN_TORCH: tuple[Framework, ...] = ("pytorch", "lightning", "huggingface")
ON_PYTORCH: tuple[Framework, ...] = ("trainer", *FOREIGN_TORCH)  # the trainer is this project's


@dataclass(frozen=True)
class InForce:
    """Settings that a run uses already, as far as they are known, and values that advice quotes."""

    framework: Framework
    compile: bool
    fuses: bool  # element-wise work, by torch.compile or kernels of its own
    # it uses CUDA graphs, or cannot: the loss scaler reads a value every step
    graphs_settled: bool
    no_slow_attention: bool  # its attention is fused, or it has none
    half_precision: bool
    rounds_float32: bool  # float32 products round to TF32
    no_dropout: bool
    pinned: bool  # no large copy used pageable memory
    copies_ahead: bool  # copies to the GPU have a stream of their own
    tokens_on_gpu: bool
    small_batch: bool  # a step copies so little to the GPU that its data set may be small, too
    loader_in_process: bool  # a DataLoader without workers
    loader_workers: bool  # a DataLoader with workers
    slow_optimizer: bool  # an optimizer of PyTorch that is not fused
    blocking: bool  # launches return after their kernels
    anomaly_mode: bool
    elementwise: bool  # element-wise work, norms and dropout take much of the kernel time
    copying: bool  # copies by kernels (torch.cat, contiguous) take much of it
    covered_by: str | None  # what covers most of the gaps, if what it means is not known
    cpu_covered: bool  # something covers most of the gaps for CPU work
    waits_covered: bool  # and most of the waits for the GPU
    transpose_ms: float | None  # a step, from layout to layout; None where that is little
    float64_percent: float | None  # of the kernel time; None where that is little
    kernel: str | None  # the kernel function that takes the most time
    family: str | None  # the kernel family with the most time above its roofline
    family_gain_ms: float | None  # its time above the roofline, per step
    family_percent: float | None  # its speed in per cent of its roof
    whole_graphs: bool  # each CUDA graph was recorded as one block, without its kernels
    near_peak: bool  # arithmetic runs near its peak: little but a smaller task would help
    compute_threads: int | None  # the threads that PyTorch splits an operator over
    cpu_cores: int | None
    cores_to_spare: bool  # there are more cores than compute threads
    on_cpu: bool  # the run has no GPU


@dataclass(frozen=True)
class Advice:
    """A template of a line, with fields of InForce in braces; None: nothing to say to those."""

    line: str | None = None  # for a program of any framework that has no line of its own below
    trainer: str | None = None  # with keys of this project's trainer
    pytorch: str | None = None  # also for those of the three around it that have no line
    lightning: str | None = None
    huggingface: str | None = None
    jax: str | None = None
    cupy: str | None = None
    only: tuple[Framework, ...] = ()  # frameworks that it is for; (): all
    unless: tuple[str, ...] = ()  # the fields of InForce any of which makes the advice needless
    needs: str | None = None  # the field of InForce without which it is of no use

    def template_for(self, run: InForce) -> str | None:
        """The line for the run's framework, or None where it is of no use to the run."""
        given = {name for name, value in asdict(run).items() if value}
        if given.intersection(self.unless) or not (self.needs is None or self.needs in given):
            return None
        if self.only and run.framework not in self.only:
            return None
        names = [run.framework, *(["pytorch"] if run.framework in ON_PYTORCH else [])]
        return next((line for name in names if (line := getattr(self, name, None))), self.line)


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
    "Replay the step from a CUDA graph.",
    trainer="Replay the step from CUDA graphs: cuda_graphs=true. The host then launches once per "
    "phase.",
    pytorch='Replay the step from CUDA graphs: torch.compile(model, mode="reduce-overhead"), or '
    "torch.cuda.make_graphed_callables.",
    jax="Launch more at once: jax.jit around the whole step, and jax.lax.scan over several steps.",
    cupy="Replay the step from a CUDA graph: stream.begin_capture(), then graph.launch().",
    unless=("graphs_settled", "blocking"),
)
FUSE = Advice(
    "Fuse kernels to save launches.",
    trainer="Fuse kernels to save launches: compile=true.",
    pytorch="Fuse kernels to save launches: torch.compile(model).",
    jax="Fuse kernels to save launches: jax.jit around the whole step, not around its parts.",
    cupy="Fuse kernels to save launches: cupy.fuse(), or a cupy.ElementwiseKernel.",
    unless=("fuses", "blocking"),
)
FUSED_OPTIMIZER = Advice(
    pytorch="Update all parameters by few kernels: an optimizer with fused=True.",
    huggingface='Update all parameters by few kernels: optim="adamw_torch_fused".',
    only=FOREIGN_TORCH,
    needs="slow_optimizer",
)
LARGER_BATCH = Advice(
    "Give each launch more work: a larger batch.",
    trainer="Give each launch more work: a larger batch_size.",
    unless=("blocking",),
)
FLOAT64 = Advice(
    "Compute in float32: {float64_percent:.0f} % of the kernel time is float64 arithmetic.",
    pytorch="Compute in float32: {float64_percent:.0f} % of the kernel time is float64 arithmetic, "
    "often from NumPy arrays: model.float(), batch.float().",
    jax="Compute in float32: {float64_percent:.0f} % of the kernel time is float64 arithmetic: "
    "jax_enable_x64=False.",
    cupy="Compute in float32: {float64_percent:.0f} % of the kernel time is float64 arithmetic, "
    "CuPy's default: dtype=cupy.float32.",
    needs="float64_percent",
)
HALF_PRECISION = Advice(
    "Use the fast formats of the tensor cores and move half the bytes: bfloat16.",
    trainer="Use the fast formats of the tensor cores and move half the bytes: dtype=bfloat16.",
    pytorch="Use the fast formats of the tensor cores and move half the bytes: torch.autocast to "
    "bfloat16.",
    lightning="Use the fast formats of the tensor cores and move half the bytes: "
    'Trainer(precision="bf16-mixed").',
    huggingface="Use the fast formats of the tensor cores and move half the bytes: bf16=True.",
    jax="Use the fast formats of the tensor cores and move half the bytes: parameters and "
    "activations in jnp.bfloat16.",
    cupy="Move half the bytes where float16 is precise enough: dtype=cupy.float16.",
    unless=("half_precision", "float64_percent"),
)
TENSOR_FLOAT = Advice(
    pytorch="Let float32 products use the tensor cores: "
    'torch.set_float32_matmul_precision("high").',
    jax='Let float32 products use the tensor cores: jax_default_matmul_precision="tensorfloat32".',
    cupy="Let float32 products use the tensor cores: CUPY_TF32=1.",
    unless=("half_precision", "rounds_float32", "float64_percent"),
    only=(*FOREIGN_TORCH, "jax", "cupy"),
)
CHANNELS_LAST = Advice(
    "Keep one layout of images: {transpose_ms:.2f} ms per step go to transposes between layouts.",
    pytorch="Keep images and weights in one layout: {transpose_ms:.2f} ms per step go to "
    "transposes between NCHW and NHWC: .to(memory_format=torch.channels_last) for model and batch.",
    jax="Keep images as NHWC from the loader to the last convolution: {transpose_ms:.2f} ms per "
    "step go to transposes.",
    needs="transpose_ms",
)
FUSED_ATTENTION = Advice(
    trainer="Keep the attention scores out of memory and skip masked scores: attention=flash.",
    pytorch="Keep the attention scores out of memory and skip masked scores: "
    "F.scaled_dot_product_attention.",
    huggingface="Keep the attention scores out of memory and skip masked scores: "
    'attn_implementation="sdpa".',
    jax="Keep the attention scores out of memory and skip masked scores: "
    'jax.nn.dot_product_attention(..., implementation="cudnn").',
    unless=("no_slow_attention",),
)
FUSE_ELEMENTWISE = Advice(
    "Fuse element-wise operations: write each once to memory, not once per operation.",
    trainer="Fuse element-wise operations, norms and dropout: compile=true.",
    pytorch="Fuse element-wise operations, norms and dropout: torch.compile(model).",
    jax="Fuse element-wise operations and norms: jax.jit around the whole step.",
    cupy="Fuse element-wise operations: cupy.fuse(), or a cupy.ElementwiseKernel.",
    unless=("fuses",),
    needs="elementwise",
)
FEWER_COPIES = Advice(
    "Copy less on the GPU: write results where they are needed instead of joining them later.",
    pytorch="Copy less on the GPU: no torch.cat, contiguous() or clone() where a view or a result "
    "written into place (out=, index_copy_) does.",
    only=(*FOREIGN_TORCH, "cupy", "unknown"),
    unless=("transpose_ms",),
    needs="copying",
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
    trainer="See which operations torch.compile fused and which it did not: python -m profiling "
    "compiled.",
    pytorch="See which operations torch.compile fused and which it did not: "
    "TORCH_LOGS=output_code.",
    needs="compile",
)
LAUNCHED_SINGLY = Advice(
    "Look at the timeline of the HTML page (report --html) for kernels that are launched one by "
    "one."
)
BLOCKING_LAUNCHES = Advice(
    "Let launches return at once: unset CUDA_LAUNCH_BLOCKING.", needs="blocking"
)
ANOMALY_MODE = Advice(
    pytorch="Switch autograd's anomaly mode off: it checks each gradient for NaN on the host. "
    "torch.autograd.set_detect_anomaly(False).",
    lightning="Switch autograd's anomaly mode off: it checks each gradient for NaN on the host. "
    "Trainer(detect_anomaly=False).",
    only=FOREIGN_TORCH,
    needs="anomaly_mode",
)
COVERED = Advice(
    "Start with {covered_by}, which covers most of the gaps.",
    unless=("blocking", "anomaly_mode"),
    needs="covered_by",
)
FIND_WAITS = Advice(
    "Find what waits for the GPU in the phase with the gaps: a value that is read or printed, a "
    "copy to the host, a branch on a result.",
    pytorch="Find what waits for the GPU in the phase with the gaps: .item(), .cpu(), "
    "print(tensor), a copy to the host, if tensor:",
    jax="Find what waits for the GPU in the phase with the gaps: float(x), np.asarray(x), print, "
    "block_until_ready().",
    cupy="Find what waits for the GPU in the phase with the gaps: .get(), cupy.asnumpy, float(x), "
    "if array:",
    unless=("blocking", "anomaly_mode", "waits_covered"),
)
FIND_PYTHON = Advice(
    "In the phase with the gaps, look for Python work: logging, hooks, metrics, garbage "
    "collection, sleeps.",
    unless=("cpu_covered",),
)
PIN = Advice(
    "Copy from pinned memory, asynchronously: copies from pageable memory make the host wait.",
    trainer="Copy from pinned memory with non_blocking=True: copies from pageable memory make the "
    "host wait.",
    pytorch="Copy from pinned memory (pin_memory=True) with non_blocking=True: copies from "
    "pageable memory make the host wait.",
    jax="Copy ahead with jax.device_put in another thread: the host stages each copy.",
    cupy="Copy from pinned memory (cupyx.empty_pinned) with array.set(..., stream): copies from "
    "pageable memory make the host wait.",
    unless=("pinned",),
)
WORKERS = Advice(
    "Prepare the next batch while the GPU works: worker processes, or a thread one step ahead.",
    trainer="Prepare the next batch while the GPU works: worker processes, or a thread one step "
    "ahead.",
    pytorch="Prepare batches ahead of the GPU: DataLoader(num_workers=4 or more, "
    "prefetch_factor=4, persistent_workers=True, pin_memory=True), and cheaper transforms.",
    huggingface="Prepare batches ahead of the GPU: dataloader_num_workers=4 or more, "
    "dataloader_prefetch_factor=4, dataloader_persistent_workers=True, and a cheaper collator.",
    jax="Prepare batches ahead of the GPU: grain or tf.data with prefetch, or a thread that calls "
    "jax.device_put one step ahead.",
    unless=("loader_workers", "loader_in_process"),
)
FIRST_WORKERS = Advice(
    pytorch="The DataLoader works inside the training process: num_workers=4 or more, "
    "prefetch_factor=4, persistent_workers=True, pin_memory=True.",
    huggingface="The DataLoader works inside the training process: dataloader_num_workers=4 or "
    "more, dataloader_prefetch_factor=4, dataloader_persistent_workers=True.",
    only=FOREIGN_TORCH,
    needs="loader_in_process",
)
FASTER_WORKERS = Advice(
    pytorch="The DataLoader's workers do not keep up: more num_workers, a larger prefetch_factor, "
    "cheaper transforms, fewer files.",
    only=FOREIGN_TORCH,
    needs="loader_workers",
)

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
        waiting="the CPU was in cudaMalloc, cudaFree or a similar call",
        host=True,
        sure=True,
        advice=(
            Advice(
                "Allocate once and reuse: each allocation asks the driver.",
                pytorch="Let PyTorch cache its memory: no torch.cuda.empty_cache() in the loop, no "
                "PYTORCH_NO_CUDA_MEMORY_CACHING.",
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
        host=True,
        advice=(
            COVERED,
            FIND_PYTHON,
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
            Advice(
                "Make a batch cheaper: decode and transform the data once, before training, and "
                "collate arrays instead of single samples.",
                needs="on_cpu",
            ),
            replace(FIRST_WORKERS, unless=("on_cpu",)),
            replace(WORKERS, unless=(*WORKERS.unless, "on_cpu")),
            FASTER_WORKERS,
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
        advice=(
            Advice(
                "Check whether this rank only waits for a slower one: capture all ranks (python "
                "-m profiling run --ranks all) and run report on their folder."
            ),
            Advice(
                "Overlap the all-reduce with backward, in buckets.",
                pytorch="Overlap the all-reduce with backward in buckets, as "
                "DistributedDataParallel does.",
            ),
            Advice(
                "Communicate less often, or less data: gradient accumulation, gradients in "
                "bfloat16.",
                trainer="Communicate less often, or less data: gradient_accumulation_steps, "
                "gradients in bfloat16.",
            ),
            Advice("Check the link between the GPUs: nvidia-smi topo -m, NCCL_DEBUG=INFO."),
        ),
    ),
    Verdict(  # this and the next two: parts of a step of a run without a GPU
        "evaluation",
        "evaluation",
        "the step waits for an evaluation",
        waiting="an evaluation ran",
        host=True,
        advice=(
            Advice(
                "Evaluate less often, or on fewer batches.",
                trainer="Evaluate less often, or on fewer batches: eval_interval, eval_iters.",
            ),
            Advice(
                "Evaluate in larger batches: nothing is kept for a backward.",
                pytorch="Evaluate in larger batches and under torch.inference_mode(): nothing is "
                "kept for a backward.",
            ),
        ),
    ),
    Verdict(
        "checkpoint",
        "checkpoints",
        "the step waits for a checkpoint",
        waiting="a checkpoint was saved",
        host=True,
        advice=(
            Advice("Save less often, or only what changed."),
            Advice(
                "Copy the state and write it in a thread or process of its own, so that training "
                "goes on.",
                pytorch="Copy the state and write it in a thread or process of its own, so that "
                "training goes on: torch.distributed.checkpoint.async_save.",
            ),
        ),
    ),
    Verdict(
        "logging",
        "logging and metrics",
        "the step waits for logging or metrics",
        waiting="the CPU was logging or computing metrics",
        host=True,
        advice=(
            Advice("Log and compute metrics only once every many steps."),
            Advice("Keep values as tensors until they are logged, and write files in a thread."),
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
                trainer="Fuse operators into C++ loops: compile=true, which takes about a minute "
                "to compile.",
                pytorch="Fuse operators into C++ loops: torch.compile(model), which takes about a "
                "minute to compile.",
                unless=("compile",),
            ),
            Advice(
                trainer="Use PyTorch's fused attention, which supports no dropout on a CPU: "
                "dropout=0 attention=flash.",
                unless=("no_dropout",),
            ),
            replace(FUSED_ATTENTION, needs="no_dropout"),
            Advice(
                "Give each operator more work to split over threads: a larger batch.",
                trainer="Give each operator more work to split over threads: a larger batch_size.",
            ),
        ),
    ),
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
