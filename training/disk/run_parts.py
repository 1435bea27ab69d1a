"""The parts of a run, for the modules that save, measure and log it."""

from dataclasses import dataclass

from configs.schema import Config
from data.batches import Batches
from data.dataset import Dataset
from model import GPT
from training.disk.run_folder import RunFolder
from training.disk.saving import Saving
from training.ranks.distributed import Ranks
from training.step.step import Step


@dataclass
class Progress:
    """Progress of the run; `iteration` is the next one to do."""

    iteration: int = 0
    best_val_loss: float = float("inf")
    best_iteration: int | None = None
    saved_iteration: int | None = None  # the one in ckpt.pt
    owes_checkpoint: bool = False  # a checkpoint that was due is not on the disk; rank 0 knows
    failed_saves: int = 0  # since the last successful one
    save_error: str = ""  # of the last failed one
    saving: Saving | None = None  # the checkpoint that is being written

    def note_val_loss(self, val_loss: float) -> bool:
        """Takes note of an evaluation at `iteration`. Returns whether it is the best so far."""
        if not val_loss < self.best_val_loss:
            return False
        self.best_val_loss, self.best_iteration = val_loss, self.iteration
        return True


@dataclass(frozen=True)
class Run:
    """The run of one rank."""

    config: Config  # every `auto` is resolved
    reasons: dict[str, str]  # for the value of each key that was left at `auto`
    ranks: Ranks
    folder: RunFolder
    dataset: Dataset
    train_batches: Batches
    val_batches: Batches
    model: GPT
    step: Step  # launches kernel by kernel; it has the optimizer, even if CUDA graphs replay it
    progress: Progress
