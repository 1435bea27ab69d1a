"""The rows of metrics.jsonl for TensorBoard too (tensorboard=true). `tracker.Tracker` owns one.

tensorboard --logdir OUT_DIR
"""

import logging
from pathlib import Path

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


class TensorBoard:
    """Event files in `folder`; a disk that fails ends them, and nothing else."""

    def __init__(self, folder: Path):
        from tensorboard.compat.proto.summary_pb2 import Summary  # here: it is optional
        from torch.utils.tensorboard.writer import FileWriter

        self.summary, self.writer = Summary, None
        try:
            self.writer = FileWriter(str(folder))
        except Exception as error:
            self.fail(error)

    def log(self, row: dict) -> None:
        """The row's numbers as one event, which a thread writes."""
        if self.writer is None:
            return
        values = [
            self.summary.Value(tag=name, simple_value=value)
            for name, value in row.items()
            if isinstance(value, (int, float)) and name != "iter"
        ]
        try:
            self.writer.add_summary(self.summary(value=values), row["iter"])
        except Exception as error:
            self.fail(error)

    def close(self) -> None:
        writer, self.writer = self.writer, None
        try:
            if writer:
                writer.close()
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        self.writer = None
        log.warning("TensorBoard failed (%s); metrics.jsonl goes on without it", error)
