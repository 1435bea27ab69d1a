"""Programs of Lightning: its Trainer has the loop."""

import warnings
from collections.abc import Iterable
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytorch_lightning as lightning
import torch
from pytorch_lightning.callbacks import Callback, ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader

from validation.framework_programs.parts import Mark, size
from validation.framework_programs.torch_parts import Made, encoder, residual_mlp

warnings.filterwarnings("ignore")


class Regression(lightning.LightningModule):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        loss: Tensor = self.model(batch).float().square().mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 1e-4)


class Marks(Callback):
    def __init__(self, mark: Mark) -> None:
        self.mark = mark

    def on_train_batch_end(self, *given: Any) -> None:
        self.mark()


def fit(
    module: lightning.LightningModule,
    loader: Iterable[Any],
    mark: Mark,
    *callbacks: Callback,
    **arguments: object,
) -> None:
    trainer = lightning.Trainer(
        max_steps=-1,
        max_epochs=-1,
        devices=1,
        accelerator=size("gpu", "cpu"),
        precision=size("bf16-mixed", "32-true"),
        logger=False,
        enable_checkpointing=bool(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[*callbacks, Marks(mark)],  # Lightning runs checkpoints last, in the next step
        **arguments,
    )
    trainer.fit(module, loader)


def lightning_spectrograms(fault: bool, mark: Mark) -> None:
    """Three workers that make spectrograms of clips by NumPy; without the fault made ones."""
    clip = np.random.rand(size(160_000, 8_000)).astype("float32")
    frames = np.arange(0, len(clip) - 512, 160)[:, None] + np.arange(512)

    def spectrogram(index: int) -> Tensor:
        power = np.abs(np.fft.rfft(np.roll(clip, index)[frames] * np.hanning(512))) ** 2
        return torch.from_numpy(np.log(power[:, :256] + 1e-6).astype("float32"))

    ready = spectrogram(0)
    made = Made(spectrogram if fault else lambda index: ready)
    loader = DataLoader(made, batch_size=32, num_workers=size(3, 1), pin_memory=size(True, False))
    fit(Regression(residual_mlp(256, size(12, 1))), loader, mark)


def words() -> DataLoader[Any]:
    """Batches of sequences that workers only collate."""
    ready = torch.randint(0, 1_000, (size(256, 4),))
    return DataLoader(
        Made(lambda index: ready),
        batch_size=32,
        num_workers=size(4, 1),
        pin_memory=size(True, False),
    )


def words_encoder(width: int, layers: int) -> Regression:
    return Regression(nn.Sequential(nn.Embedding(1_000, width), encoder(width, layers)))


def lightning_checkpoints(fault: bool, mark: Mark) -> None:
    """A checkpoint after each third batch."""
    width = size(768, 64)
    with TemporaryDirectory(prefix="checkpoints-") as folder:
        keep = ModelCheckpoint(folder, every_n_train_steps=3, save_top_k=1)
        fit(words_encoder(width, size(4, 1)), words(), mark, *([keep] if fault else []))


def lightning_control(fault: bool, mark: Mark) -> None:
    """Transformer layers behind a loader that keeps up."""
    width = size(1024, 64)
    fit(words_encoder(width, size(8, 1)), words(), mark)
