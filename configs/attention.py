"""The attention backends: what each is, in one table. Standard library only.

A new backend is a row here and its rule in `model.attend`. The switch's choices and its proof, the
lab, the charts, advice and rooflines are derived from the row.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Backend:
    name: str  # as in attention=NAME
    meaning: str  # in --help
    colour: str  # in charts, a name of the pages' style
    fused: bool  # keeps the scores out of memory and skips what the causal mask hides
    dropout_on_cpu: str  # the backend that computes it on a CPU with dropout: mostly itself
    dropout: bool = True  # False: attention=NAME is refused with dropout
    cuda_only: bool = False  # refused elsewhere
    float32_on_cuda: bool = True  # False: refused there
    masks: bool = False  # takes a mask; of those that do not, sampling reads prompts alone on CUDA
    kernels: tuple[str, ...] = ()  # parts of names that its own alone have; none if not fused
    sdpa: str | None = None  # of torch.nn.attention.SDPBackend, where it pins one


TABLE = (
    Backend(
        "slow",
        "explicit softmax(QK^T/sqrt(d))V",
        colour="communication",
        fused=False,
        dropout_on_cpu="slow",
        masks=True,
    ),
    Backend(
        "math",
        "the same inside scaled_dot_product_attention",
        colour="reduction",
        fused=False,
        dropout_on_cpu="math",
        sdpa="MATH",
        masks=True,
    ),
    Backend(
        "efficient",
        "its memory-efficient kernel",
        colour="norm",
        fused=True,
        dropout_on_cpu="efficient",
        cuda_only=True,
        kernels=("fmha_cutlass",),
        sdpa="EFFICIENT_ATTENTION",
        masks=True,
    ),
    Backend(
        "flash",
        "FlashAttention",
        colour="gemm",
        fused=True,
        dropout_on_cpu="math",  # PyTorch's fused CPU kernel has none ("No available kernel")
        float32_on_cuda=False,
        kernels=("flash_fwd", "flash_bwd"),
        sdpa="FLASH_ATTENTION",
    ),
    Backend(
        "cudnn",
        "cuDNN's kernel",
        colour="elementwise",
        fused=True,
        dropout_on_cpu="cudnn",
        cuda_only=True,
        float32_on_cuda=False,
        kernels=("cudnn_generated_fort_native_sdpa",),
        sdpa="CUDNN_ATTENTION",
        masks=True,
    ),
    Backend(
        "flex",
        "FlexAttention",
        colour="optimizer",
        fused=True,
        dropout_on_cpu="flex",
        dropout=False,
        kernels=("fused_flex_attention", "flex_attention"),
    ),
    Backend(
        "triton",
        "this project's own kernels, in Triton and Gluon",
        colour="dropout",
        fused=True,
        dropout_on_cpu="triton",
        cuda_only=True,
        float32_on_cuda=False,
        kernels=("causal_attention_triton",),
    ),
)
BACKENDS = {backend.name: backend for backend in TABLE}
AUTO = "auto"  # what scaled_dot_product_attention chooses itself
CHOICES = (*BACKENDS, AUTO)
HELP = "; ".join(f"{each.name}: {each.meaning}" for each in TABLE) + "; auto: PyTorch's choice"


def is_fused(name: str | None) -> bool:
    """Of a backend, or of what a capture calls one; "unknown" kernels of attention are fused."""
    return name is not None and (name not in BACKENDS or BACKENDS[name].fused)


def is_compiled(name: str) -> bool:
    """Whether its kernels are made when they are first run: all that PyTorch does not bring."""
    return name in BACKENDS and BACKENDS[name].fused and BACKENDS[name].sdpa is None


def leaves_work_to_the_compiler(attention: str, activation: str) -> str | None:
    """KEY=VALUE of the operations that kernels=fused leaves unfused, or None."""
    if attention != AUTO and not BACKENDS[attention].fused or attention == "flex":
        return f"attention={attention}"
    return None if activation == "gelu" else f"activation={activation}"


def pinned_kernel(name: str) -> str | None:
    """Which kernel of scaled_dot_product_attention attention=NAME pins, as SDPBackend spells it."""
    return BACKENDS[name].sdpa if name in BACKENDS else None
