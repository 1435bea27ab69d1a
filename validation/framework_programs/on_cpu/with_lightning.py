"""Programs of Lightning that train on the CPU."""

import warnings
from tempfile import TemporaryDirectory
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from validation.framework_programs.parts import Mark
from validation.framework_programs.torch_parts import Made, residual_mlp

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


def trainer_of(mark: Mark, *callbacks: Callback, **keys: Any) -> lightning.Trainer:
    """Trainer without end that prints nothing, and keeps nothing unless `keys` say so."""
    kept = {"logger": False, "enable_checkpointing": False}
    return lightning.Trainer(
        max_epochs=-1,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[*callbacks, Marks(mark)],
        **(kept | keys),
    )


def fit(model: nn.Module, batch: int, width: int, mark: Mark, *more: Callback, **keys: Any) -> None:
    trainer = trainer_of(mark, *more, enable_checkpointing=bool(more), **keys)
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
    trainer = trainer_of(mark, *([Average()] if fault else []))
    trainer.fit(Ranking(), DataLoader(rows, batch_size=128))


class Neighbours(Callback):
    """Asks, behind each fourth step, whether near answers are of the same class."""

    def __init__(self, width: int) -> None:
        self.known, self.classes = torch.randn(4_000, width), torch.randint(10, (4_000,))
        self.asked, self.truths = torch.randn(500, width), torch.randint(10, (500,))

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx % 4:
            return
        module.eval()
        known = torch.cat([module.model(x) for x in self.known.split(250)])
        near = torch.cdist(module.model(self.asked), known).topk(20, largest=False).indices
        guesses = self.classes[near].mode(1).values
        module.log("knn_accuracy", (guesses == self.truths).float().mean())
        module.train()


def lightning_asks_its_neighbours(fault: bool, mark: Mark) -> None:
    """Scores the model by 20 neighbours among 4,000 samples behind each fourth step."""
    fit(residual_mlp(128, 4), 128, 128, mark, *([Neighbours(128)] if fault else []))


class Norms(Callback):
    """Logs the norms of each weight and of its gradient."""

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        for name, weights in module.named_parameters():
            module.log(f"norm/{name}", weights.norm())
            module.log(f"gradient/{name}", weights.grad.norm())


def lightning_logs_each_parameter(fault: bool, mark: Mark) -> None:
    """Logs two norms of each of 144 parameters into a CSV file, which is written in each step."""
    with TemporaryDirectory(prefix="logs-") as folder:
        logger = CSVLogger(folder, flush_logs_every_n_steps=1) if fault else False
        norms = [Norms()] if fault else []
        trainer = trainer_of(mark, *norms, logger=logger, log_every_n_steps=1)
        rows = TensorDataset(torch.randn(30_000, 64))
        trainer.fit(Regression(residual_mlp(64, 24)), DataLoader(rows, batch_size=64))


class Classifier(lightning.LightningModule):
    """Convolutions over spectra, and one of ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv1d(8, 96, 5), nn.ReLU(), nn.Conv1d(96, 96, 5), nn.ReLU(),
            nn.Conv1d(96, 96, 5), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(96, 10),
        )  # fmt: skip

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


def lightning_loader_control(fault: bool, mark: Mark) -> None:
    """Two workers filter signals for less time than a step takes."""

    def make(index: int) -> tuple[Tensor, int]:
        spectrum = torch.fft.rfft(torch.randn(8, 512))
        spectrum[:, 128:] = 0
        return torch.fft.irfft(spectrum), index % 10

    trainer = trainer_of(mark)
    loader = DataLoader(Made(make), batch_size=16, num_workers=2, persistent_workers=True)
    trainer.fit(Classifier(), loader)
