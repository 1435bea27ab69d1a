"""A program of timm: a vision transformer that looks at large pictures."""

import torch
from timm.models.vision_transformer import VisionTransformer

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, bfloats


def timm_large_pictures_control(fault: bool, mark: Mark) -> None:
    """Looks at two pictures of 1,024 x 1,024 pixels in patches of 8: attention of 16,384 words."""
    edge, width = size(1024, 32), size(384, 64)
    with torch.device(DEVICE):
        model = VisionTransformer(
            img_size=edge, patch_size=8, embed_dim=width, depth=size(4, 1), num_heads=width // 64
        )
    model = model.to(torch.bfloat16).eval()
    pictures = bfloats(2, 3, edge, edge)
    with torch.no_grad():
        repeat(lambda: model(pictures), mark)
