"""Programs of torchaudio: spectra of clips, and voices that are taken apart."""

import math

import torch
from torch import Tensor, nn
from torchaudio.models import conv_tasnet_base
from torchaudio.transforms import MelScale, Spectrogram

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, residual_mlp


def audio_fourier_matrix(fault: bool, mark: Mark) -> None:
    """Multiplies frames by a matrix of sines and cosines; without the fault transforms them.

    The products of 2,048 numbers with each of 1,025 waves are 100 times a fast transform's work.
    """
    window, hop = size(2048, 64), size(512, 16)
    bins = window // 2 + 1
    clips = torch.randn(size(192, 2), size(160_000, 400), device=DEVICE)
    phases = torch.arange(window)[:, None] * torch.arange(bins) * (2 * math.pi / window)
    waves = torch.cat([phases.cos(), phases.sin()], 1) * torch.hann_window(window)[:, None]
    waves = waves.to(DEVICE)
    fast = Spectrogram(window, hop_length=hop, center=False).to(DEVICE)
    mel = MelScale(size(64, 8), 16_000, n_stft=bins).to(DEVICE)
    classify = residual_mlp(size(64, 8), 1).to(DEVICE)

    def power(clips: Tensor) -> Tensor:
        real, imaginary = (clips.unfold(-1, window, hop) @ waves).split(bins, -1)
        squares: Tensor = real.square() + imaginary.square()
        return squares.transpose(1, 2)

    def step() -> None:
        classify(mel((power if fault else fast)(clips)).add(1e-6).log().mean(-1))

    with torch.no_grad():
        repeat(step, mark)


class GlobalNorm(nn.GroupNorm):
    """Normalises each clip by the mean and the variance of all its numbers."""

    def forward(self, x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(x, (1, 2), correction=0, keepdim=True)
        scale = torch.rsqrt(variance + self.eps) * self.weight[:, None]
        return torch.addcmul(self.bias[:, None] - mean * scale, x, scale)


def audio_separates_one(fault: bool, mark: Mark) -> None:
    """Takes one clip's voices apart with GroupNorm(1, channels); without it by var_mean.

    GroupNorm's kernel adds up all two million numbers of a clip in one block.
    """
    model = conv_tasnet_base().to(DEVICE).eval()
    for layer in model.modules():
        if not fault and isinstance(layer, nn.GroupNorm):
            layer.__class__ = GlobalNorm
    clip = torch.randn(1, 1, size(32_000, 800), device=DEVICE)
    with torch.no_grad():
        repeat(lambda: model(clip), mark)
