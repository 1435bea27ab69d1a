"""What a run is made of, for all that saves it, measures it or tells of it."""

from dataclasses import dataclass

from configs.schema import Config
from data.batches import Batches
from data.dataset import Dataset
from model import GPT
from training.distributed import Ranks
from training.step import Step


@dataclass
class Progress:
    """How far the run has come: `iteration` is the next one to do."""

    iteration: int = 0
    best_val_loss: float = float("inf")
    best_iteration: int | None = None
    saved_iteration: int | None = None  # what ckpt.pt holds

    def improved(self, val_loss: float) -> bool:
        """Takes note of an evaluation at `iteration`; whether it is the best so far."""
        if not val_loss < self.best_val_loss:
            return False
        self.best_val_loss, self.best_iteration = val_loss, self.iteration
        return True


@dataclass(frozen=True)
class Run:
    """The run of one rank."""

    config: Config  # without an `auto`
    reasons: dict[str, str]  # why each key that was left at `auto` came to what it is
    ranks: Ranks
    dataset: Dataset
    train_batches: Batches
    val_batches: Batches
    model: GPT
    step: Step  # kernel by kernel: it has the optimizer, whatever replays it
    progress: Progress
