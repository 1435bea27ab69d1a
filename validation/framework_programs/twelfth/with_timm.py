"""A program of timm: a vision transformer and an optimizer that saves memory."""

import torch
from timm.models.vision_transformer import VisionTransformer
from timm.optim import create_optimizer_v2

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step


def timm_loops_over_weights(fault: bool, mark: Mark) -> None:
    """Trains by timm's Adafactor; without the fault by AdamW, for all weights at once.

    Adafactor's loop launches some twenty small kernels for each of 150 arrays.
    """
    edge, width = size(64, 32), size(256, 64)
    model = VisionTransformer(
        img_size=edge, patch_size=16, embed_dim=width, depth=size(12, 1), num_heads=width // 64
    ).to(DEVICE)
    chosen = {"opt": "adafactor"} if fault else {"opt": "adamw", "fused": True}
    optimizer = create_optimizer_v2(model, lr=1e-4, **chosen)
    pictures = torch.randn(size(64, 2), 3, edge, edge, device=DEVICE)
    repeat(training_step(optimizer, lambda: model(pictures).square().mean()), mark)
