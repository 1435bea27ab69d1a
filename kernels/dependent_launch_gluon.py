"""Programmatic dependent launch for kernels in Gluon; see kernels.dependent_launch_triton."""

from triton.experimental import gluon

from kernels.dependent_launch_triton import wait_and_release

begin = gluon.jit(wait_and_release)
