"""Whether there is Gluon, Triton's lower language, for those of the kernels that are in it."""

import os
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import torch

TRITON = "3.6."  # the version that they were proved with: Gluon's names change
HOPPER = (9, 0)


@cache
def has_gluon(device: torch.device) -> bool:
    """A Hopper GPU and that Triton, which compiles."""
    if device.type != "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        return False
    try:
        triton = version("triton")
    except PackageNotFoundError:
        return False
    return triton.startswith(TRITON) and torch.cuda.get_device_capability(device) == HOPPER
