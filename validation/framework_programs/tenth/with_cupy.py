"""Programs of CuPy: a kernel of one's own, and arrays that PyTorch goes on with."""

import cupy
import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.dlpack import from_dlpack

from validation.framework_programs.parts import Mark, repeat, size

RELAX = """
extern "C" __global__ void relax(float* field, int count{parameter}) {{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) {{
        float x = field[at];
        field[at] = x + 0.01f * (x - x * x * x - {temperature} * sinf(x));
    }}
}}
"""


def cupy_compiles_constants(fault: bool, mark: Mark) -> None:
    """Writes each step's temperature into a kernel's source; without the fault hands it over.

    CuPy compiles each source that it has not seen, on the host.
    """
    edge, threads = size(8192, 32), 256
    field = cupy.random.rand(edge, edge, dtype=cupy.float32)
    chance = np.random.default_rng()  # else CuPy would find what an earlier process compiled
    handed = cupy.RawKernel(
        RELAX.format(parameter=", float temperature", temperature="temperature"), "relax"
    )

    def step() -> None:
        temperature, count = np.float32(chance.random()), np.int32(field.size)
        code = RELAX.format(parameter="", temperature=f"{temperature:.8f}f")
        kernel = cupy.RawKernel(code, "relax") if fault else handed
        given = [field, count] if fault else [field, count, temperature]
        for _ in range(8):
            kernel((field.size // threads,), (threads,), tuple(given))

    repeat(step, mark)


def cupy_hands_over_by_numpy(fault: bool, mark: Mark) -> None:
    """Gives PyTorch its arrays through NumPy; without the fault by DLPack, where they are.

    134 MB go to pageable memory, and come back from there.
    """
    frames = cupy.random.rand(size(32, 2), size(1024, 16), size(1024, 16), dtype=cupy.float32)

    def step() -> None:
        corrected = cupy.sqrt(frames)
        handed = torch.from_numpy(cupy.asnumpy(corrected)) if fault else from_dlpack(corrected)
        F.avg_pool2d(handed.to("cuda"), 8).square().mean()

    repeat(step, mark)
