"""A program of timm: a vision transformer that is watched layer by layer."""

from typing import Any

import timm
import torch
from torch import nn

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, bfloats

EDGE = size(224, 32)


def timm_times_layers(fault: bool, mark: Mark) -> None:
    """Times each layer by two events, and waits for the second; without the fault unwatched.

    The next layer is launched when the GPU has been idle for as long as that takes.
    """
    name = size("vit_base_patch16_224", "vit_tiny_patch16_224")
    with torch.device(DEVICE):
        model = timm.create_model(name, img_size=EDGE).to(torch.bfloat16).eval()
    x, on_gpu = bfloats(size(12, 1), 3, EDGE, EDGE), DEVICE == "cuda"
    times: list[float] = []
    begun: dict[nn.Module, torch.cuda.Event] = {}

    def begin(layer: nn.Module, given: Any) -> None:
        begun[layer] = torch.cuda.Event(enable_timing=True)
        begun[layer].record()

    def end(layer: nn.Module, given: Any, out: Any) -> None:
        ended = torch.cuda.Event(enable_timing=True)
        ended.record()
        ended.synchronize()
        times.append(begun[layer].elapsed_time(ended))

    for layer in model.modules():
        if fault and on_gpu and not list(layer.children()):
            layer.register_forward_pre_hook(begin)
            layer.register_forward_hook(end)

    def step() -> None:
        times.clear()
        model(x)

    with torch.no_grad():
        repeat(step, mark)
