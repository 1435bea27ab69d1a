"""The rows of metrics.jsonl for TensorBoard too (tensorboard=true). A sink of training.tracker.

tensorboard --logdir OUT_DIR
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.sinks import Row, Sink, Value

log = logging.getLogger(__name__)


def check_tensorboard() -> None:
    """Raises ValueError, naming the key, where the package is missing."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise ValueError(
            "tensorboard=true: the package is not installed; `pip install tensorboard`, "
            "or leave the key out"
        ) from None


class TensorBoard(Sink):
    """Event files in `folder`; a disk that fails ends them, and nothing else."""

    def __init__(self, folder: Path):
        from torch.utils.tensorboard.writer import SummaryWriter  # here: it is optional

        self.writer: SummaryWriter | None = None
        with self.guarded():
            self.writer = SummaryWriter(str(folder))

    @contextmanager
    def guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.writer = None
            log.warning("TensorBoard failed (%s); metrics.jsonl goes on without it", error)

    def log(self, row: Row) -> None:
        self.write(row, row["iter"])

    def summary(self, values: Row) -> None:
        """Under summary/NAME, since the rows have some of these names, at the last iteration."""
        named = {f"summary/{name}": value for name, value in values.items()}
        self.write(named, values.get("iterations"))

    def write(self, values: Row, iteration: Value) -> None:
        """The numbers among them; a thread of TensorBoard's writes them."""
        with self.guarded():
            for name, value in values.items():
                if self.writer and isinstance(value, (int, float)) and name != "iter":
                    self.writer.add_scalar(name, value, iteration)

    def finish(self, exit_code: int = 0) -> None:
        with self.guarded():
            if self.writer:
                self.writer.close()
