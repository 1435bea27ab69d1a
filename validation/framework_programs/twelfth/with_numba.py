"""Programs of Numba: a kernel of one's own, and what it needs from the host."""

import warnings

import numpy as np
from numba import cuda

from validation.framework_programs.parts import Mark, repeat, size

THREADS = size(256, 8)
warnings.filterwarnings("ignore", message="Grid size|Host array")


@cuda.jit
def smooth(rough, out) -> None:  # type: ignore[no-untyped-def]
    """Mean of each number and of those beside it."""
    at = cuda.grid(1)
    if 0 < at < rough.size - 1:
        out[at] = (rough[at - 1] + rough[at] + rough[at + 1]) / np.float32(3)


def numba_passes_host_arrays(fault: bool, mark: Mark) -> None:
    """Calls a kernel four times with NumPy's arrays; without the fault with those of the GPU.

    Numba takes both arrays to the GPU and back in each call: 256 MB in all, of pageable memory.
    """
    count = size(4_000_000, 40)
    arrays = [np.random.default_rng(0).random(count, "float32") for _ in range(2)]
    given = arrays if fault else [cuda.to_device(array) for array in arrays]
    run = smooth[-(-count // THREADS), THREADS]
    repeat(lambda: [run(*pair) for pair in (given, given[::-1]) * 2], mark)


def numba_pins_each_batch(fault: bool, mark: Mark) -> None:
    """Locks the pages of a batch of 128 MB for each copy of it; without the fault once.

    To lock them and to let them go takes several times as long as the copy.
    """
    count = size(32_000_000, 40)
    batch = np.random.default_rng(0).random(count, "float32")
    there, out = cuda.to_device(batch), cuda.device_array(count, np.float32)

    def step() -> None:
        there.copy_to_device(batch)
        smooth[-(-count // THREADS), THREADS](there, out)

    def pinned_step() -> None:
        with cuda.pinned(batch):
            step()

    if fault:
        repeat(pinned_step, mark)
    with cuda.pinned(batch):
        repeat(step, mark)
