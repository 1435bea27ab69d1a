"""Versions of Triton that this project's kernels were proved with, and whether Gluon is available.

Gluon is Triton's lower language; some of the kernels are in it. Its names change from release to
release, so a Triton outside of PROVED gets none of these, and kernels=auto none of our kernels.
"""

import os
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import torch

PROVED = ("3.6", "3.7", "3.9")
HOPPER = (9, 0)


def triton_version() -> str | None:
    """Version of the installed Triton, or None without one."""
    try:
        return version("triton")
    except PackageNotFoundError:
        return None


def is_proved(triton: str | None) -> bool:
    return triton is not None and ".".join(triton.split(".")[:2]) in PROVED


@cache
def has_gluon(device: torch.device) -> bool:
    """Whether `device` is a Hopper GPU, and Triton is of a proved version and not interpreted."""
    if device.type != "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        return False
    return is_proved(triton_version()) and torch.cuda.get_device_capability(device) == HOPPER
