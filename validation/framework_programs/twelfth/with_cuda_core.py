"""A program of cuda.core beside PyTorch: heat, by a kernel of CUDA C++."""

import numpy as np
import torch
from cuda.core import Device, LaunchConfig, Program, launch

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE

SPREAD = """
extern "C" __global__ void spread(const float *now, float *next, int cells) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at > 0 && at < cells - 1)
        next[at] = now[at] + 0.2f * (now[at - 1] - 2 * now[at] + now[at + 1]);
}
"""


def core_waits_for_each_kernel(fault: bool, mark: Mark) -> None:
    """Waits for the stream after each of 200 kernels; without the fault after the last.

    A kernel takes less time than to notice its end and to launch the next.
    """
    cells, threads = size(4_000_000, 1000), 256
    device = Device()
    device.set_current()
    stream = device.create_stream()
    heat = [torch.rand(cells, device=DEVICE) for _ in range(2)]
    torch.cuda.synchronize()
    spread = Program(SPREAD, "c++").compile("cubin").get_kernel("spread")
    config = LaunchConfig(grid=-(-cells // threads), block=threads)
    there, back = [(a.data_ptr(), b.data_ptr()) for a, b in (heat, heat[::-1])]

    def step() -> None:
        for number in range(200):
            now, after = back if number % 2 else there
            launch(stream, config, spread, now, after, np.int32(cells))
            if fault:
                stream.sync()
        stream.sync()

    repeat(step, mark)
