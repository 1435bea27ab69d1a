"""The attention backends and their properties, in one table. Standard library only.

A new backend is a row here and its rule in `model.attend`. The key's choices and its proof, the
lab, the charts, advice and rooflines are derived from the row.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Backend:
    name: str  # as in attention=NAME
    meaning: str  # words of --help
    colour: str  # in charts, a name of the pages' style
    fused: bool  # keeps the scores out of memory and skips what the causal mask hides
    dropout_on_cpu: str  # the backend to use in its place on a CPU with dropout: mostly itself
    dropout: bool = True  # False: attention=NAME is refused with dropout
    cuda_only: bool = False  # True: refused on other devices
    float32_on_cuda: bool = True  # False: attention=NAME is refused with float32 on CUDA
    masks: bool = False  # takes a mask; if not, sampling on CUDA only reads prompts with it
    kernels: tuple[str, ...] = ()  # substrings that only its kernels' names have; () if not fused
    sdpa: str | None = None  # member of torch.nn.attention.SDPBackend that it pins


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
AUTO = "auto"  # scaled_dot_product_attention chooses the kernel
CHOICES = (*BACKENDS, AUTO)
HELP = "; ".join(f"{row.name}: {row.meaning}" for row in TABLE) + "; auto: PyTorch's choice"


def is_fused(name: str | None) -> bool:
    """Whether a backend is fused; `name` may be a capture's, whose "unknown" kernels are fused."""
    return name is not None and (name not in BACKENDS or BACKENDS[name].fused)


def is_compiled(name: str) -> bool:
    """Whether the kernels are compiled at their first run, rather than part of PyTorch."""
    return name in BACKENDS and BACKENDS[name].fused and BACKENDS[name].sdpa is None


def leaves_work_to_the_compiler(attention: str, activation: str) -> str | None:
    """KEY=VALUE that makes kernels=fused leave operations unfused, or None."""
    if attention != AUTO and not BACKENDS[attention].fused or attention == "flex":
        return f"attention={attention}"
    return None if activation == "gelu" else f"activation={activation}"


def pinned_kernel(name: str) -> str | None:
    """Member of SDPBackend that attention=NAME pins in scaled_dot_product_attention, or None."""
    return BACKENDS[name].sdpa if name in BACKENDS else None
