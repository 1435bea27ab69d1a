"""A program of torchaudio: a speech recogniser that learns from long clips."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchaudio.transforms import MelSpectrogram

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step

LETTERS = 32


def audio_long_clips(fault: bool, mark: Mark) -> None:
    """Trains with CTC on 4 clips of 40 seconds at a time; without the fault on 64.

    The loss goes from one of 4,000 frames to the next, in a block of the GPU for each clip.
    """
    clips, frames, hop, width = size(4 if fault else 64, 2), size(4_000, 40), 160, size(256, 8)
    spectrogram = MelSpectrogram(16_000, n_fft=400, hop_length=hop, n_mels=80).to(DEVICE)
    model = nn.Sequential(
        nn.Conv1d(80, width, 5, padding=2), nn.GELU(), nn.Conv1d(width, LETTERS, 1)
    ).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), 1e-5, fused=True)
    heard = torch.randn(clips, frames * hop, device=DEVICE)
    spoken = torch.randint(1, LETTERS, (clips, frames // 10), device=DEVICE)
    lengths = torch.full((clips,), frames), torch.full((clips,), frames // 10)

    def loss() -> Tensor:
        features = spectrogram(heard)[..., :frames].add(1e-6).log()
        chances = model(features).permute(2, 0, 1).log_softmax(-1)
        return F.ctc_loss(chances, spoken, *lengths)

    repeat(training_step(optimizer, loss), mark)
