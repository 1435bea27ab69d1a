"""Programs of Lightning that train on the CPU."""

import warnings
from tempfile import TemporaryDirectory
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from validation.framework_programs.parts import Mark
from validation.framework_programs.torch_parts import residual_mlp

warnings.filterwarnings("ignore")


class Regression(lightning.LightningModule):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        loss: Tensor = self.model(batch[0]).square().mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 1e-4)


class Marks(Callback):
    def __init__(self, mark: Mark) -> None:
        self.mark = mark

    def on_train_batch_end(self, *given: Any) -> None:
        self.mark()


def fit(model: nn.Module, batch: int, width: int, mark: Mark, *more: Callback, **keys: Any) -> None:
    trainer = lightning.Trainer(
        max_epochs=-1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=bool(more),
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[*more, Marks(mark)],
        **keys,
    )
    rows = TensorDataset(torch.randn(30_000, width))
    trainer.fit(Regression(model), DataLoader(rows, batch_size=batch))


def lightning_saves_each_third_step(fault: bool, mark: Mark) -> None:
    """Saves weights and AdamW's state, 60 MB, behind each third step."""
    with TemporaryDirectory(prefix="lightning-", dir=".") as folder:
        keep = ModelCheckpoint(folder, every_n_train_steps=3, save_top_k=1, monitor=None)
        fit(residual_mlp(640, 6), 48, 640, mark, *([keep] if fault else []))


def lightning_detects_anomalies(fault: bool, mark: Mark) -> None:
    """Leaves the search for anomalies on, in a deep and narrow model."""
    fit(residual_mlp(48, 60), 64, 48, mark, detect_anomaly=fault)


class Ranking(lightning.LightningModule):
    """A table of 60,000 things with sparse gradients, and a score for each basket of them."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.score = nn.EmbeddingBag(60_000, 64, sparse=True), nn.Linear(64, 1)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        loss: Tensor = (self.score(self.table(batch[0])).squeeze(1) - batch[1]).square().mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


class Average(Callback):
    """Keeps a moving average of all weights, which is computed into new tensors."""

    def __init__(self) -> None:
        self.kept: dict[str, Tensor] = {}

    def on_train_batch_end(self, trainer: Any, module: nn.Module, *given: Any) -> None:
        for name, weights in module.state_dict().items():
            kept = self.kept.get(name, weights)
            self.kept[name] = 0.999 * kept + 0.001 * weights


def lightning_averages_the_table(fault: bool, mark: Mark) -> None:
    """Averages all 60,000 rows in each step, of which a batch changes 2,560; else none."""
    rows = TensorDataset(torch.randint(60_000, (60_000, 20)), torch.rand(60_000))
    trainer = lightning.Trainer(
        max_epochs=-1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[*([Average()] if fault else []), Marks(mark)],
    )
    trainer.fit(Ranking(), DataLoader(rows, batch_size=128))
