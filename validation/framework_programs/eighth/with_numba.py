"""A program of Numba beside PyTorch: a kernel of one's own."""

import math
import warnings

import torch
from numba import cuda
from torch import Tensor

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE

LENGTH = size(512, 4)  # of a series, and threads of a block
warnings.filterwarnings("ignore", message="Grid size")


@cuda.jit
def warp_softly(costs, sums) -> None:  # type: ignore[no-untyped-def]
    """Least sums of costs along paths through each matrix, one diagonal behind the other."""
    pair, row = cuda.blockIdx.x, cuda.threadIdx.x
    length = costs.shape[1]
    for diagonal in range(2 * length - 1):
        column = diagonal - row
        if 0 <= column < length:
            before = sums[pair, row, column]
            above = sums[pair, row, column + 1]
            beside = sums[pair, row + 1, column]
            least = min(before, above, beside)
            total = math.exp(least - before) + math.exp(least - above) + math.exp(least - beside)
            sums[pair, row + 1, column + 1] = costs[pair, row, column] + least - math.log(total)
        cuda.syncthreads()


def numba_soft_dtw(fault: bool, mark: Mark) -> None:
    """Compares 4 pairs of series at a time by soft dynamic time warping; without the fault 256.

    A pair is the work of one block, so that four of the GPU's processors are busy.
    """
    pairs = size(4 if fault else 256, 2)
    first, second = torch.randn(2, pairs, LENGTH, 8, device=DEVICE)

    def for_numba(tensor: Tensor) -> object:
        return cuda.as_cuda_array(tensor) if DEVICE == "cuda" else tensor.numpy()

    def step() -> None:
        costs = torch.cdist(first, second).square()
        sums = torch.full((pairs, LENGTH + 1, LENGTH + 1), 1e9, device=DEVICE)
        sums[:, 0, 0] = 0
        warp_softly[pairs, LENGTH](for_numba(costs), for_numba(sums))
        sums[:, -1, -1].mean()

    with torch.no_grad():
        repeat(step, mark)
