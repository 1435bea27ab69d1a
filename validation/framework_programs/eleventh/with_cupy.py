"""Programs of CuPy: waves behind a lens, and lists of neighbours."""

import cupy
import numpy as np

from validation.framework_programs.parts import Mark, repeat, size


def cupy_uploads_filter(fault: bool, mark: Mark) -> None:
    """Moves the lens's filter to the GPU for each picture; without the fault once.

    134 MB of pageable memory, for two transforms that take less than a tenth as long.
    """
    edge = size(4096, 16)
    axis = np.linspace(-1, 1, edge, dtype="float32")
    on_host = np.exp(20j * (axis**2 + axis[:, None] ** 2)).astype("complex64")
    lens = cupy.asarray(on_host)
    wave = cupy.ones((edge, edge), cupy.complex64)

    def step() -> None:
        if fault:
            lens.set(on_host)
        cupy.abs(cupy.fft.ifft2(cupy.fft.fft2(wave) * lens)).sum()

    repeat(step, mark)


def cupy_maps_lists_anew(fault: bool, mark: Mark) -> None:
    """Makes lists as long as they can be by malloc_async; without the fault in CuPy's own pool.

    CUDA's pool gives all 8 GB back to the system when the step's result is read, as its threshold
    is 0, and maps as many in the next step, in which an eighth is written.
    """
    if fault:
        cupy.cuda.set_allocator(cupy.cuda.malloc_async)
    atoms, most, seen = size(1_000_000, 100), 256, 32
    places = cupy.random.rand(atoms, dtype=cupy.float32)

    def energy() -> cupy.ndarray:
        lists = [cupy.empty((most, atoms), cupy.float32) for _ in range(8)]
        for number, distances in enumerate(lists):
            distances[:seen] = places * (number + 1)
        return cupy.stack([distances[:seen].sum() for distances in lists]).sum()

    repeat(lambda: float(energy()), mark)
