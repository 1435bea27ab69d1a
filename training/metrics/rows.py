"""Reads the row of a logged iteration from the GPU while it computes the next iteration.

Reading the loss waits for the GPU, which would then be idle until the host has written the row and
launched an iteration. So the numbers are copied in the order of the GPU's work, and the row stays
pending until the next iteration is launched, or until something is logged that must come after it.
The hosts of several ranks exchange their part of the row meanwhile, too.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from profiling.recording.spans import NoSpans, Spans
from training.disk.run_parts import Run
from training.metrics.rank_waits import exchange_readings
from training.metrics.record import Record
from training.step.clock import CudaClock, HostClock


@dataclass(frozen=True)
class Row:
    """Values of a row as they were right after its iteration."""

    iteration: int
    lr: float
    readings: Callable[[], dict[str, Tensor]]  # of this rank; the call waits for the iteration
    laps: int  # number that ended since the last row
    waited_s: float  # for data, by the process so far


@dataclass
class Rows(AbstractContextManager["Rows"]):
    """Writes the rows of logged iterations, one launch late on a GPU.

    Call `take` after a logged iteration, and `write_pending` after each launch and before anything
    that must follow the row. On leaving, a row that is still pending after an error is written; not
    with several ranks, some of which may not arrive there.
    """

    run: Run
    record: Record
    clock: CudaClock | HostClock
    spans: Spans | NoSpans
    pending: Row | None = None

    def __post_init__(self) -> None:
        self.later = runs_ahead(self.run.ranks.device)

    def take(self, iteration: int, lr: float) -> None:
        """Makes the row of `iteration` pending; on a CPU it is written at once."""
        with self.spans.phase("log"):
            tensors, waited_s = self.run.step.readings, self.run.train_batches.waited_s
            readings = copy_scalars(tensors) if self.later else lambda: tensors
            self.pending = Row(iteration, lr, readings, self.clock.count(), waited_s)
            if not self.later:
                self.write(self.pending)

    def write_pending(self) -> None:
        """Writes the pending row, if any. Waits for its iteration, and for nothing launched later.

        Raises SystemExit if the loss is not finite.
        """
        if self.pending is not None:
            with self.spans.phase("log"):
                self.write(self.pending)

    def write(self, row: Row) -> None:
        self.pending = None  # first: writing the row may end the run
        readings, laps = row.readings(), self.clock.read(row.laps)
        with self.clock.synchronisation():
            means, waits = exchange_readings(readings, laps, self.run.ranks)
        self.record.log_training(row.iteration, row.lr, means, laps, waits, row.waited_s)

    def __exit__(self, *_: object) -> None:
        if self.run.ranks.world_size > 1:
            self.pending = None
        with suppress(Exception):  # the error that ends the run is the one to see
            self.write_pending()


def runs_ahead(device: torch.device) -> bool:
    """Whether the host runs ahead of `device`, so that a row is better read later."""
    return device.type == "cuda"


def copy_scalars(scalars: dict[str, Tensor]) -> Callable[[], dict[str, Tensor]]:
    """Starts to copy scalars to the host, as they are after everything launched so far.

    Returns a function that waits for this copy alone and returns its values by name. The next
    replay of a CUDA graph writes into the same tensors, but later in the same stream.
    """
    stacked = torch.stack(list(scalars.values()))
    values = torch.empty_like(stacked, device="cpu", pin_memory=True)
    values.copy_(stacked, non_blocking=True)
    copying = torch.cuda.Event()
    copying.record()

    def read() -> dict[str, Tensor]:
        copying.synchronize()
        return dict(zip(scalars, values, strict=True))

    return read
