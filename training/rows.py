"""The row of a logged iteration, read off the GPU while it computes the next one.

To read the loss is to wait for the GPU, which then has nothing to do until the host has written the
row and launched an iteration. So the numbers are copied in the order of the GPU's work, and the row
is owed until the next iteration is launched, or until something comes that it has to stand before.
What several ranks have to tell each other for it, their hosts tell meanwhile, too.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from profiling.capture.spans import NoSpans, Spans
from training.clock import CudaClock, HostClock
from training.record import Record
from training.run import Run
from training.waits import exchanged


@dataclass(frozen=True)
class Row:
    """What a row is made of, as it was behind its iteration."""

    iteration: int
    lr: float
    readings: Callable[[], dict[str, Tensor]]  # this rank's; waits for the iteration
    laps: int  # that ended since the last row
    waited_s: float  # for data


@dataclass
class Rows(AbstractContextManager["Rows"]):
    """`take` behind a logged iteration; `settle` behind each launch and before what follows rows.

    On leaving, the row that an error left behind is written; not that of several ranks, of which
    some may not come to it.
    """

    run: Run
    record: Record
    clock: CudaClock | HostClock
    spans: Spans | NoSpans
    owed: Row | None = None

    def __post_init__(self) -> None:
        self.later = runs_ahead(self.run.ranks.device)

    def take(self, iteration: int, lr: float) -> None:
        """Owes the row of `iteration`; where there is no reason to wait with it, writes it."""
        with self.spans.phase("log"):
            tensors, waited_s = self.run.step.readings, self.run.train_batches.waited_s
            readings = copied(tensors) if self.later else lambda: tensors
            self.owed = Row(iteration, lr, readings, self.clock.count(), waited_s)
            if not self.later:
                self.write(self.owed)

    def settle(self) -> None:
        """Writes the row that is owed. Waits for its iteration, and for nothing behind it.

        Raises SystemExit where the loss is not finite.
        """
        if self.owed is not None:
            with self.spans.phase("log"):
                self.write(self.owed)

    def write(self, row: Row) -> None:
        self.owed = None  # also where it ends the run
        readings, laps = row.readings(), self.clock.read(row.laps)
        with self.clock.synchronisation():
            means, waits = exchanged(readings, laps, self.run.ranks)
        self.record.trained(row.iteration, row.lr, means, laps, waits, row.waited_s)

    def __exit__(self, *_: object) -> None:
        if self.run.ranks.world_size > 1:
            self.owed = None
        with suppress(Exception):  # the error that ends the run is the one to see
            self.settle()


def runs_ahead(device: torch.device) -> bool:
    """Whether the host has more to launch where it would wait for a row."""
    return device.type == "cuda"


def copied(scalars: dict[str, Tensor]) -> Callable[[], dict[str, Tensor]]:
    """Copies them as they are behind all that was launched; what reads the copy waits for it alone.

    The next replay of a CUDA graph writes into the same tensors, in the order of the same stream.
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
