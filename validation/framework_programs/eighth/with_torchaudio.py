"""Programs of torchaudio: a classifier of sounds, a masked encoder, and wav2vec 2.0."""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchaudio.models import wav2vec2_base
from torchaudio.transforms import MelSpectrogram, Resample

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import (
    DEVICE,
    Made,
    bfloats,
    encoder,
    endless,
    training_step,
)


def audio_resamples(fault: bool, mark: Mark) -> None:
    """Three workers resample each clip by a filter made for it; without the fault they did before.

    Resample computes its filter when it is made, which here is for each clip, on one core.
    """
    clip = torch.randn(size(66_150, 4_410))

    def resampled(index: int) -> Tensor:
        to_16_khz = Resample(44_100, 16_000, "sinc_interp_kaiser", lowpass_filter_width=64)
        out: Tensor = to_16_khz(clip.roll(index))
        return out

    ready = resampled(0)
    loader = DataLoader(
        Made(resampled if fault else lambda index: ready),
        size(48, 2),
        num_workers=size(3, 1),
        pin_memory=size(True, False),
    )
    width = size(512, 64)
    spectrogram = MelSpectrogram(16_000, n_fft=400, hop_length=160, n_mels=80).to(DEVICE)
    model = nn.Sequential(nn.Linear(80, width), encoder(width, size(4, 1)), nn.Linear(width, 50))
    optimizer = torch.optim.AdamW(model.to(DEVICE).parameters(), 1e-4)
    batches = endless(loader)

    def loss() -> Tensor:
        features = spectrogram(next(batches).to(DEVICE, non_blocking=True)).add(1e-6).log()
        with torch.autocast(DEVICE, torch.bfloat16):
            out: Tensor = model(features.transpose(1, 2))
        return out.float().square().mean()

    repeat(training_step(optimizer, loss), mark)


def audio_masks(fault: bool, mark: Mark) -> None:
    """Clears the padding of each clip by a slice after each layer; without it by one mask.

    The length lies on the GPU, so that the host waits for each slice's beginning.
    """
    channels, frames, clips = size(512, 8), size(800, 20), size(32, 2)
    layers = [nn.Conv1d(channels, channels, 5, padding=2) for _ in range(size(6, 1))]
    for layer in layers:
        layer.to(DEVICE, torch.bfloat16)
    x = bfloats(clips, channels, frames)
    lengths = torch.randint(frames // 2, frames, (clips,), device=DEVICE)
    padding = (torch.arange(frames, device=DEVICE) >= lengths[:, None])[:, None]

    def step() -> None:
        h = x
        for layer in layers:
            h = layer(h).relu()
            if fault:
                for clip, length in enumerate(lengths):
                    h[clip, :, length:] = 0
            else:
                h = h.masked_fill(padding, 0)

    with torch.no_grad():
        repeat(step, mark)


def audio_control(fault: bool, mark: Mark) -> None:
    """Trains wav2vec 2.0 on clips of five seconds."""
    model = wav2vec2_base(aux_num_out=29).to(DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5, fused=True)
    clips = torch.randn(size(32, 1), size(80_000, 1_000), device=DEVICE)

    def loss() -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            out, _ = model(clips)
        heard: Tensor = out
        return heard.float().square().mean()

    repeat(training_step(optimizer, loss), mark)
