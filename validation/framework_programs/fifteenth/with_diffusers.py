"""A program of Diffusers: attention in slices, as on GPUs of little memory."""

import torch
from diffusers import UNet2DConditionModel

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, bfloats


def diffusers_attends_slice_by_slice(fault: bool, mark: Mark) -> None:
    """Attends under set_attention_slice("max"); without the fault to all heads at once.

    Eight heads of 16 small pictures are 128 slices, with four launches each, in eight layers.
    """
    pictures, edge, heads = size(16, 2), size(16, 8), size(8, 2)
    texts = size(256, 16)
    with torch.device(DEVICE):
        denoiser = UNet2DConditionModel(
            edge,
            layers_per_block=1,
            block_out_channels=(size(128, 32), size(256, 64)),
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            cross_attention_dim=texts,
            attention_head_dim=heads,
        )
        times = torch.randint(0, 1000, (pictures,))
    denoiser = denoiser.to(torch.bfloat16).eval()
    if fault:
        denoiser.set_attention_slice("max")
    latents, words = bfloats(pictures, 4, edge, edge), bfloats(pictures, size(77, 7), texts)
    with torch.no_grad():
        repeat(lambda: denoiser(latents, times, words).sample, mark)
