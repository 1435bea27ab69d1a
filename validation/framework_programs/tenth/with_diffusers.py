"""Programs of Diffusers: pictures of a batch of latents, and a small sampler."""

import torch
from diffusers import AutoencoderTiny, DDIMScheduler, UNet2DModel
from diffusers.image_processor import VaeImageProcessor

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, bfloats


def diffusers_pictures_of_floats(fault: bool, mark: Mark) -> None:
    """Gives 64 pictures as NumPy's floats; without the fault as tensors, for what scores them.

    201 MB go to pageable memory, which takes longer than to decode them.
    """
    widths, edge = (size(16, 4),) * 4, size(64, 4)
    decoder = AutoencoderTiny(decoder_block_out_channels=widths, num_decoder_blocks=(1, 1, 1, 1))
    decoder = decoder.to(DEVICE, torch.bfloat16).eval()
    processor, latents = VaeImageProcessor(), bfloats(size(64, 2), 4, edge, edge)

    def step() -> None:
        pictures = decoder.decode(latents).sample.float()
        processor.postprocess(pictures, output_type="np" if fault else "pt")

    with torch.no_grad():
        repeat(step, mark)


def diffusers_small_control(fault: bool, mark: Mark) -> None:
    """Draws one small picture in ten steps of DDIM."""
    with torch.device(DEVICE):
        denoiser = UNet2DModel(
            sample_size=32,
            down_block_types=("DownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "UpBlock2D"),
            block_out_channels=(32, 64),
            layers_per_block=2,
            norm_num_groups=8,
        ).eval()
        noise = torch.randn(1, 3, 32, 32)
    scheduler = DDIMScheduler()
    scheduler.set_timesteps(size(10, 2))

    def step() -> None:
        x = noise
        for time in scheduler.timesteps.tolist():
            x = scheduler.step(denoiser(x, time).sample, time, x).prev_sample

    with torch.no_grad():
        repeat(step, mark)
