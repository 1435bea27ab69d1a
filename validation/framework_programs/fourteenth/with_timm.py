"""A program of timm: the moving average of a vision transformer's weights."""

import torch
from timm.models.vision_transformer import VisionTransformer
from timm.utils import ModelEmaV2, ModelEmaV3

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step


def timm_averages_each_weight(fault: bool, mark: Mark) -> None:
    """Averages 300 weights by ModelEmaV2; without the fault by V3, for all of them at once.

    A weight is two products, a sum and a copy.
    """
    edge, width = size(32, 16), size(192, 64)
    model = VisionTransformer(
        img_size=edge, patch_size=8, embed_dim=width, depth=size(24, 2), num_heads=width // 64
    ).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    average = ModelEmaV2(model) if fault else ModelEmaV3(model, foreach=True)
    pictures = torch.randn(size(16, 2), 3, edge, edge, device=DEVICE)
    train = training_step(optimizer, lambda: model(pictures).square().mean())

    def step() -> None:
        train()
        average.update(model)

    repeat(step, mark)
