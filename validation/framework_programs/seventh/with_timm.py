"""Programs of timm."""

from typing import Any

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, Made, endless, training_step

EDGE = size(224, 32)


def timm_checks_numbers(fault: bool, mark: Mark) -> None:
    """Looks for NaN behind each layer as soon as it ran; without the fault once, at the end.

    Each look reads a flag on the host, so that the next layer is launched to an idle GPU.
    """
    name = size("vit_base_patch16_224", "vit_tiny_patch16_224")
    with torch.device(DEVICE):
        model = timm.create_model(name, img_size=EDGE).to(torch.bfloat16).eval()
    x = torch.randn(size(64, 2), 3, EDGE, EDGE, device=DEVICE, dtype=torch.bfloat16)
    flags: list[Tensor] = []

    def check(layer: nn.Module, given: Any, out: Tensor) -> None:
        finite = torch.isfinite(out).all()
        if fault and not finite:
            raise ArithmeticError(f"{layer} made a number that is not finite")
        flags.append(finite)

    for layer in model.modules():
        if list(layer.parameters(recurse=False)):
            layer.register_forward_hook(check)

    def step() -> None:
        flags.clear()
        model(x)
        if not torch.stack(flags).all():
            raise ArithmeticError("a layer made a number that is not finite")

    with torch.no_grad():
        repeat(step, mark)


def timm_control(fault: bool, mark: Mark) -> None:
    """Trains a large vision transformer behind workers that keep up, from pinned memory."""
    name = size("vit_large_patch16_224", "vit_tiny_patch16_224")
    with torch.device(DEVICE):
        model = timm.create_model(name, img_size=EDGE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    ready = torch.randn(3, EDGE, EDGE)
    made = Made(lambda index: (ready, index % 1_000))
    workers, pin = size(4, 1), size(True, False)
    loader = DataLoader(made, size(48, 2), num_workers=workers, pin_memory=pin)
    batches = endless(loader)

    def loss() -> Tensor:
        x, y = (tensor.to(DEVICE, non_blocking=True) for tensor in next(batches))
        with torch.autocast(DEVICE, torch.bfloat16):
            return F.cross_entropy(model(x), y)

    repeat(training_step(optimizer, loss), mark)
