"""Programs of Lightning: `python lightning_fit.py NAME`."""

import logging
import sys
import warnings
from typing import Any

import pytorch_lightning as lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 120
WIDTH = 256


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))


class Automatic(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = layers()

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        loss: Tensor = (self.model(batch[0]) - batch[0]).square().mean()
        if index % 20 == 19:
            print(f"batch {index}: loss {loss.item():.6f}")
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


class Manual(Automatic):
    """Two optimizers that the module itself steps."""

    def __init__(self) -> None:
        super().__init__()
        self.other = layers()
        self.automatic_optimization = False

    def training_step(self, batch: list[Tensor], index: int) -> Any:
        of_model, of_other = self.optimizers()
        for part, optimizer in ((self.model, of_model), (self.other, of_other)):
            loss: Tensor = (part(batch[0]) - batch[0]).square().mean()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        if index % 20 == 19:
            print(f"batch {index}: loss {loss.item():.6f}")

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), 0.1) for part in (self.model, self.other)]


def fit(module: lightning.LightningModule) -> None:
    loader = DataLoader(TensorDataset(torch.randn(STEPS * 32, WIDTH)), batch_size=32)
    lightning.Trainer(
        max_epochs=1,
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(module, loader)


def automatic() -> None:
    fit(Automatic())


def manual() -> None:
    fit(Manual())


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    lightning.seed_everything(0, verbose=False)
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
