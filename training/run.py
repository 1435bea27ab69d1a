"""What a run is made of, for all that saves it, measures it or tells of it."""

from dataclasses import dataclass

from configs.schema import Config
from data.batches import Batches
from data.dataset import Dataset
from model import GPT
from training.distributed import Ranks
from training.run_folder import RunFolder
from training.saving import Saving
from training.step import Step


@dataclass
class Progress:
    """How far the run has come: `iteration` is the next one to do."""

    iteration: int = 0
    best_val_loss: float = float("inf")
    best_iteration: int | None = None
    saved_iteration: int | None = None  # what ckpt.pt holds
    owes_checkpoint: bool = False  # one that was due is not on the disk: rank 0 knows
    failed_saves: int = 0  # since the last that did not fail
    save_error: str = ""  # of the last of these
    saving: Saving | None = None  # the checkpoint that is being written

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
    folder: RunFolder
    dataset: Dataset
    train_batches: Batches
    val_batches: Batches
    model: GPT
    step: Step  # kernel by kernel: it has the optimizer, whatever replays it
    progress: Progress
