"""Advice against a bottleneck, in the words of each framework, with what makes it needless.

The rows of profiling.shared.causes and host_work hold it. Standard library only.
"""

from dataclasses import asdict, dataclass
from typing import Literal

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
    small_copies: bool  # most of the time in which only copies ran is that of small ones
    copies_ahead: bool  # copies to the GPU have a stream of their own
    tokens_on_gpu: bool
    small_batch: bool  # a step copies so little to the GPU that its data set may be small, too
    loader_in_process: bool  # a DataLoader without workers
    loader_workers: bool  # a DataLoader with workers
    slow_optimizer: bool  # an optimizer of PyTorch that is not fused
    blocking: bool  # launches return after their kernels
    anomaly_mode: bool
    elementwise: bool  # element-wise work, norms and dropout take much of the kernel time
    copying: bool  # copies within the GPU (torch.cat, contiguous) take much of it
    covered_by: str | None  # what covers most of the gaps, if what it means is not known
    cpu_covered: bool  # something covers most of the gaps for CPU work
    waits_covered: bool  # and most of the waits for the GPU
    transpose_ms: float | None  # a step, from layout to layout; None where that is little
    float64_percent: float | None  # of the kernel time; None where that is little
    kernel: str | None  # the kernel function that takes the most time
    family: str | None  # the kernel family with the most time above its roofline
    family_gain_ms: float | None  # its time above the roofline, per step
    family_percent: float | None  # its speed in per cent of its roof
    driver_alone: bool  # the program calls CUDA's driver, of which the tool records launches alone
    whole_graphs: bool  # each CUDA graph was recorded as one block, without its kernels
    near_peak: bool  # arithmetic runs near its peak: little but a smaller task would help
    compute_threads: int | None  # the threads that PyTorch splits an operator over
    cpu_cores: int | None
    cores_to_spare: bool  # there are more cores than compute threads
    too_many_threads: bool  # there are fewer
    small_operators: bool  # this and the next two: without a GPU, for much of the step
    layout_copies: bool
    float64_inputs: bool  # of the model
    dense_embedding: bool  # the gradient of a table is as large as the table
    # this and the next three: without a GPU, for much of the step
    small_passes: bool  # many in a step
    untrained_forwards: bool
    quiet_phase: bool  # no operator runs in one
    work_between: bool  # operators behind the passes, in no phase
    stacks: bool  # of Python are in the capture, or samples that tell enough
    or_py_spy: str  # words on samples of the stack, where the capture has none
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
    without_gpu: str | None = None  # `waiting` for a run without a GPU, where other words fit
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
FIND_PAUSES = Advice(
    "Where no operator runs, look for Python's own work, garbage collection, metrics, files, "
    "locks and sleeps.",
    needs="on_cpu",
)
NAME_PAUSES = Advice(
    trainer="Name the function by a capture with stacks: profile.stack=true.",
    pytorch="Name the function by a capture with stacks: python -m profiling run "
    "--stack{or_py_spy}.",
    unless=("stacks",),
    needs="on_cpu",
)
FIND_PYTHON = Advice(
    "In the phase with the gaps, look for Python work: logging, hooks, metrics, garbage "
    "collection, sleeps.",
    unless=("cpu_covered", "on_cpu"),
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
    "persistent_workers=True, cheaper transforms, fewer files.",
    only=FOREIGN_TORCH,
    needs="loader_workers",
)
