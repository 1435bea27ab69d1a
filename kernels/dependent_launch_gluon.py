"""Programmatic dependent launch for kernels in Gluon; see kernels.dependent_launch_triton."""

from triton.experimental import gluon
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.dependent_launch_triton import DEPENDENT


@gluon.jit
def begin():
    """Wait for the kernels before this one, and let the next one be started."""
    if DEPENDENT:
        gdc_wait()
        gdc_launch_dependents()
