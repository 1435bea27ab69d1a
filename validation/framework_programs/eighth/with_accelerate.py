"""A program of accelerate: a model whose weights wait on the host."""

import torch
from accelerate import cpu_offload

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, bfloats, residual_mlp


def accelerate_offloads(fault: bool, mark: Mark) -> None:
    """Offloads a model that the GPU has room for to the CPU; without the fault it is resident.

    Each layer's weights come from pageable memory for each batch.
    """
    width = size(4096, 32)
    model = residual_mlp(width, size(6, 1)).to(torch.bfloat16).eval()
    if fault:
        cpu_offload(model, torch.device(DEVICE))
    else:
        model.to(DEVICE)
    x = bfloats(size(4096, 8), width)
    with torch.no_grad():
        repeat(lambda: model(x), mark)
