"""Meaning of the names that cover idle gaps, and what to do about each: one table.

The names are those of PyTorch's operators, of ranges, of Python's functions and of calls of the
system's libraries. Read by profiling.analysis.verdict: the first row that matches counts.
"""

import re
from dataclasses import dataclass

from profiling.shared.advice import FOREIGN_TORCH, Advice


@dataclass(frozen=True)
class HostWork:
    names: re.Pattern[str]
    said: str  # behind the name in the evidence
    advice: Advice
    causes: tuple[str, ...] = ("cpu",)  # causes of causes.PARTS whose gaps it explains


# of JAX's ranges under nsys, and of events in its own trace
XLA_COMPILES = re.compile(r"XlaCompile:.*|backend_compile_and_load")
XLA_ALLOCATES = re.compile(r"Build buffer allocations")
JAX_DISPATCHES = re.compile(r"PjitFunction\(.*\)")
JAX_WAITS = re.compile(r"block_until_ready")
JAX_CALLBACKS = re.compile(r"_wrapped_callback")  # around the Python that a compiled function calls
# of PyTorch: noise, not the indices of samples
DRAWS_NUMBERS = re.compile(
    r"aten::(normal|uniform|bernoulli|exponential|log_normal|cauchy|geometric|poisson)_?"
)
# the system's calls that wait for another process; a bare futex is for threads of this one
FOREIGN_WAITS = re.compile(
    r"p?poll|p?select|epoll_p?wait\d?|read(v|64)?|recv(from|msg)?|sem_(wait|timedwait|clockwait)|"
    r"wait(pid|id|3|4)?|v?fork|posix_spawnp?"
)
HOST_WORK = (
    HostWork(
        re.compile(r"aten::_?(scaled_dot_product_)?cudnn_attention\w*"),
        "plans of cuDNN for new shapes",
        Advice(
            "Keep the lengths the same: cuDNN plans anew for each. Pad to a few lengths, or choose "
            "other kernels: torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION)."
        ),
        causes=("cpu", "launch"),
    ),
    HostWork(
        re.compile(r"aten::(_convolution|cudnn_conv\w*|convolution\w*|_cudnn\w*|miopen_\w*)"),
        "plans of cuDNN for new shapes",
        Advice(
            "Keep the shapes the same: cuDNN plans anew for each. Pad or crop to a few sizes, and "
            "torch.backends.cudnn.benchmark=False where they change."
        ),
    ),
    HostWork(
        re.compile(
            r".*(\(dynamo_timed\)|compile_id=.*)|dynamo|(entire_frame|backend|inductor)_compile|"
            r"compile_attempt_\d+|bytecode_tracing|build_guards|"
            r"torch/_(dynamo/(convert_frame|symbolic_convert|output_graph)|"
            r"inductor/(compile_fx|graph|scheduler|codecache|async_compile))\.py\(.*"
        ),
        "torch.compile compiles anew",
        Advice(
            "Find why torch.compile compiles anew: TORCH_LOGS=recompiles. Sizes that change: "
            "torch.compile(dynamic=True), mark_dynamic, or padding."
        ),
        causes=("cpu", "launch"),
    ),
    HostWork(
        XLA_COMPILES,
        "XLA compiles anew",
        Advice(
            "Find why XLA compiles anew: jax_log_compiles=True. Shapes that change: pad to a few "
            "lengths. jit makes a new program for each new shape, type and static argument."
        ),
        causes=("cpu", "launch"),
    ),
    HostWork(
        re.compile(rf".*\b(debug_(print|callback)|(io|pure)_callback)\b.*|{JAX_CALLBACKS.pattern}"),
        "a compiled function calls Python, and the GPU waits for it",
        Advice(
            "Call no Python from within compiled functions (jax.debug.print, io_callback, "
            "pure_callback): return the values, and use them behind the call."
        ),
        causes=("cpu", "launch", "synchronization"),
    ),
    HostWork(
        re.compile(r"(Optimizer\.step#|.*torch/optim/|optimizer(_step)?$).*"),
        "the optimizer works on the host",
        Advice(
            "Let the GPU update the parameters: keep them and the optimizer's state there, with "
            "fused=True, and read no value of them in step().",
            huggingface='Let the GPU update the parameters: optim="adamw_torch_fused", no offload.',
            only=FOREIGN_TORCH,
        ),
        causes=("cpu", "launch", "synchronization"),
    ),
    HostWork(
        re.compile(
            r"p?writev?(64)?|fwrite|f(data)?sync|rename(at)?|fflush|fclose|checkpoint|"
            r"torch/serialization\.py\(.*|(.*\): )?_?(save|write|dump)(_\w+)?|"
            r"<built-in \w+ (write|dump|fsync|flush)\b.*"
        ),
        "files are written",
        Advice(
            "Write files while training goes on: copy the values, write them in another thread or "
            "process, and less often."
        ),
    ),
    HostWork(
        re.compile(r".*(\bgc\.collect|function collect>|method collect>|Python GC|garbage).*"),
        "garbage collection",
        Advice(
            "Collect garbage at chosen times: gc.freeze() after the start, gc.disable(), and "
            "gc.collect() only every many steps."
        ),
    ),
    HostWork(
        re.compile(r"pthread_(cond_(timed|clock)?wait|mutex_(timed|clock)?lock|rwlock_\w*lock)"),
        "the thread waits for a lock that another thread holds, such as Python's GIL",
        Advice(
            "Find the thread that holds the lock: Python code in other threads takes turns with "
            "the thread that launches (the GIL). Move it to a process."
        ),
        causes=("cpu", "launch"),
    ),
    HostWork(
        re.compile(r".*(anomaly_mode|traceback\.py.*(extract|format|walk)).*"),
        "autograd's anomaly mode",
        Advice(
            "Switch autograd's anomaly mode off: torch.autograd.set_detect_anomaly(False).",
            lightning="Switch autograd's anomaly mode off: Trainer(detect_anomaly=False).",
        ),
        causes=("cpu", "launch"),
    ),
    HostWork(
        re.compile(r".*synchronize.*"),
        "the program waits for all of the GPU's work",
        Advice(
            "Do not synchronise in the loop: time with CUDA events, and let streams wait for each "
            "other."
        ),
        causes=("synchronization",),
    ),
    HostWork(
        re.compile(
            r"aten::(item|_local_scalar_dense|is_nonzero|equal|nonzero|masked_select|"
            r"_?unique\w*|repeat_interleave|tensor_split|bincount|histc)|.*\bitem\b.*|"
            r".*(clip_grad_norm_|get_total_norm).*|np\.asarray\(jax\.Array\)"
        ),
        "it reads a value from the GPU",
        Advice(
            "Read no value there: keep it on the GPU (torch.where for an if, masks for nonzero), "
            "and fetch it only every many steps.",
            jax="Read no value there: keep it on the GPU (jnp.where or lax.cond for an if), and "
            "fetch it only every many steps.",
        ),
        causes=("synchronization",),
    ),
    HostWork(
        re.compile(rf"{DRAWS_NUMBERS.pattern}|aten::rand(n|_like|n_like)?"),
        "random numbers are drawn on the CPU",
        Advice(
            "Draw random numbers on the GPU: device=, with a torch.Generator of that device. One "
            "core of the CPU draws them one by one."
        ),
    ),
    HostWork(
        re.compile(r"(.*/)?torch/utils/data/sampler\.py\(.*"),
        "the sampler draws the order of the samples, in the training process",
        Advice(
            "Draw the order rarely: one iterator for many batches. A sampler runs in the training "
            "process, however many workers there are."
        ),
        causes=("data",),
    ),
    HostWork(
        re.compile(rf"{FOREIGN_WAITS.pattern}|(.*/)?subprocess\.py\(.*"),
        "the program waits for another one that it started",
        Advice(
            "Start no other program in the loop: ask a library in the process, such as NVML "
            "instead of nvidia-smi, or start it in a thread, and less often."
        ),
    ),
    HostWork(
        re.compile(r"(clock_)?nanosleep|u?sleep|.*\bsleep>?\b.*"),
        "a sleep",
        Advice("Sleep less: the program asks for these pauses itself."),
    ),
)


def work_named(name: str, cause: str) -> HostWork | None:
    """The row for a name that covers gaps of this cause, or None."""
    rows = (row for row in HOST_WORK if cause in row.causes and row.names.fullmatch(name))
    return next(rows, None)
