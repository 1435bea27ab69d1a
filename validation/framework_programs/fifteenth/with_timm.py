"""A program of timm: gradients of a vision transformer that are clipped."""

import torch
from timm.models.vision_transformer import VisionTransformer
from timm.utils import dispatch_clip_grad

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE


def timm_clips_by_each_weight(fault: bool, mark: Mark) -> None:
    """Clips 300 gradients by mode="agc", as much as their weights allow; without it by "norm".

    A weight is ten small kernels.
    """
    edge, width = size(32, 16), size(192, 64)
    model = VisionTransformer(
        img_size=edge, patch_size=8, embed_dim=width, depth=size(24, 2), num_heads=width // 64
    ).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    pictures = torch.randn(size(16, 2), 3, edge, edge, device=DEVICE)

    def step() -> None:
        model(pictures).square().mean().backward()
        dispatch_clip_grad(model.parameters(), 0.01 if fault else 1.0, "agc" if fault else "norm")
        optimizer.step()
        optimizer.zero_grad()

    repeat(step, mark)
