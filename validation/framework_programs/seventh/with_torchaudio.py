"""A program of torchaudio: a speech recogniser, with the character errors of torchmetrics."""

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchaudio.models import Conformer
from torchaudio.transforms import MelSpectrogram
from torchmetrics.text import CharErrorRate

from validation.framework_programs.parts import Mark, repeat, size
from validation.framework_programs.torch_parts import DEVICE, training_step

LETTERS = "_ abcdefghijklmnopqrstuvwxyz'"


def texts_of(chances: Tensor) -> list[str]:
    """The most likely text of each clip: repeated letters once, without blanks."""
    texts = []
    for best in chances.argmax(-1).tolist():
        letters = [LETTERS[number] for number, _ in itertools.groupby(best)]
        texts.append("".join(letter for letter in letters if letter != "_"))
    return texts


def audio_character_errors(fault: bool, mark: Mark) -> None:
    """Counts the character errors of each batch in training; without the fault of none.

    Their edit distances are loops of Python over letters, and the GPU waits for them.
    """
    count, seconds = size(32, 2), size(2, 1)
    spectrogram = MelSpectrogram(16_000, n_fft=400, hop_length=320, n_mels=80).to(DEVICE)
    conformer = Conformer(80, 4, size(512, 32), size(4, 1), 31).to(DEVICE)
    head = nn.Sequential(nn.BatchNorm1d(80), nn.Conv1d(80, len(LETTERS), 1)).to(DEVICE)
    optimizer = torch.optim.AdamW([*conformer.parameters(), *head.parameters()], 1e-6)
    clips = torch.randn(count, 16_000 * seconds, device=DEVICE)
    frames = torch.full((count,), 50 * seconds, device=DEVICE)
    spoken = "the quick brown fox jumps " * 2 * seconds
    labels = torch.randint(1, len(LETTERS), (count, 5 * seconds), device=DEVICE)
    errors, ends = CharErrorRate(), frames.cpu()

    def loss() -> Tensor:
        features = spectrogram(clips)[..., : 50 * seconds].add(1e-6).log().transpose(1, 2)
        heard, _ = conformer(features, frames)
        chances = head(heard.transpose(1, 2)).transpose(1, 2).log_softmax(-1)
        if fault:
            errors.update(texts_of(chances), [spoken] * count)
        return F.ctc_loss(chances.transpose(0, 1), labels, ends, ends // 10)

    repeat(training_step(optimizer, loss), mark)
