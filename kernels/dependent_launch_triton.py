"""Programmatic dependent launch: a kernel is started while the one before it on its stream ends.

Its blocks take the places of those that leave, where they would otherwise wait for the last one to
leave. Each begins by waiting until all that earlier kernels wrote can be read. Needs Hopper or a
later GPU.

DEPENDENT is off, since what it gains has not been measured.
"""

import os

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

DEPENDENT = tl.constexpr(False)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def wait_and_release():
    """Wait for the kernels before this one, and let the next one be started."""
    if DEPENDENT:
        gdc_wait()
        gdc_launch_dependents()


# the interpreter takes plain Python, and calls it sooner than a function of Triton
begin = wait_and_release if INTERPRETED else triton.jit(wait_and_release)


def early(device: torch.device) -> dict[str, bool]:
    """Options for the launch of a kernel that calls `begin`."""
    if not DEPENDENT.value or INTERPRETED:
        return {}
    return {"launch_pdl": torch.cuda.get_device_capability(device) >= (9, 0)}
