"""A program of timm: a vision transformer whose head alone is trained."""

import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE


def timm_gradients_of_frozen(fault: bool, mark: Mark) -> None:
    """Trains the head behind layers that are left to autograd; without the fault by no_grad.

    The optimizer has the head alone, but the backward pass goes through all layers.
    """
    edge, width, classes = size(224, 32), size(1024, 64), 100
    layers = VisionTransformer(
        img_size=edge, embed_dim=width, depth=size(8, 1), num_heads=width // 64, num_classes=0
    ).to(DEVICE)
    head = nn.Linear(width, classes).to(DEVICE)
    optimizer = torch.optim.AdamW(head.parameters(), 1e-3, fused=True)
    pictures = torch.randn(size(64, 2), 3, edge, edge, device=DEVICE)
    names = torch.randint(0, classes, (len(pictures),), device=DEVICE)

    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16):
            with torch.set_grad_enabled(fault):
                seen = layers(pictures)
            loss = F.cross_entropy(head(seen), names)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    repeat(step, mark)
