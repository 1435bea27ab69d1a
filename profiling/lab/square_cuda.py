"""square.cu as a Python function, compiled once and then kept. Called by profiling.lab.square."""

import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor
from torch.utils import cpp_extension

from cli.errors import one_line

SOURCE = Path(__file__).with_name("square.cu")


@lru_cache
def cuda_square() -> Callable[[Tensor], Tensor]:
    """The function of square.cu, built into PyTorch's cache of extensions (TORCH_EXTENSIONS_DIR),
    and rebuilt when the source has changed.

    Raises ValueError saying what is missing, or what the compiler said.
    """
    if not torch.cuda.is_available():
        raise ValueError("needs a CUDA GPU")
    if cpp_extension.CUDA_HOME is None:
        raise ValueError("needs nvcc: install the CUDA toolkit, or set CUDA_HOME")
    if not cpp_extension.is_ninja_available():
        raise ValueError("needs ninja: pip install ninja")
    print("square.cu: if this file is not compiled yet, nvcc takes about a minute", file=sys.stderr)
    try:
        module = cpp_extension.load_inline(
            name="profiling_nanogpt_square",
            cpp_sources="at::Tensor square(const at::Tensor& source);",
            cuda_sources=SOURCE.read_text(encoding="utf-8"),
            functions=["square"],
            extra_cuda_cflags=["-O3"],
        )
    except (RuntimeError, OSError, ImportError) as error:
        raise ValueError(f"could not be compiled: {one_line(error)[:300]}") from error
    square: Callable[[Tensor], Tensor] = module.square
    return square
