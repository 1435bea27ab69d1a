"""Programs of torchaudio: features of clips, and a filter."""

import torch
from torch import Tensor
from torchaudio.functional import fftconvolve, lfilter
from torchaudio.transforms import AmplitudeToDB, MelSpectrogram

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE


def audio_features_one_by_one(fault: bool, mark: Mark) -> None:
    """Makes the spectrogram of each of 192 clips by itself; without the fault of all at once.

    Each is twenty small kernels.
    """
    clips = torch.randn(size(192, 3), 16_000, device=DEVICE)
    heard = MelSpectrogram(16_000, n_fft=400, hop_length=160, n_mels=80).to(DEVICE)
    decibels = AmplitudeToDB(top_db=80.0)

    def features(clip: Tensor) -> Tensor:
        made: Tensor = decibels(heard(clip))
        return (made - made.mean(-1, keepdim=True)) / (made.std(-1, keepdim=True) + 1e-5)

    def step() -> None:
        torch.stack([features(clip) for clip in clips]) if fault else features(clips)

    with torch.no_grad():
        repeat(step, mark)


def audio_filters_by_recursion(fault: bool, mark: Mark) -> None:
    """Filters four clips of three seconds by lfilter; without the fault by its response's FFT.

    One thread of the GPU goes through a clip, from sample to sample.
    """
    clips = torch.rand(size(4, 1), size(48_000, 400), device=DEVICE) - 0.5
    ahead = torch.tensor([0.02, 0.04, 0.02], device=DEVICE)
    back = torch.tensor([1.0, -1.56, 0.64], device=DEVICE)
    impulse = torch.zeros(1, size(2048, 32), device=DEVICE)
    impulse[:, 0] = 1
    spectrogram = MelSpectrogram(16_000, n_fft=400, hop_length=160, n_mels=80).to(DEVICE)

    def step() -> None:
        if fault:
            filtered = lfilter(clips, back, ahead)
        else:
            filtered = fftconvolve(clips, response)[:, : clips.shape[1]]
        spectrogram(filtered)

    with torch.no_grad():
        response = lfilter(impulse, back, ahead).expand(len(clips), -1)
        repeat(step, mark)
