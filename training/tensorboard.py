"""The rows of metrics.jsonl for TensorBoard too (tensorboard=true). `tracker.Tracker` owns one.

tensorboard --logdir OUT_DIR
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from profiling.records import JsonObject

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

    sync_command = None

    def __init__(self, folder: Path):
        from tensorboard.compat.proto.summary_pb2 import Summary  # here: it is optional
        from torch.utils.tensorboard.writer import FileWriter

        self.event, self.writer = Summary, None
        try:
            self.writer = FileWriter(str(folder))
        except Exception as error:
            self.fail(error)

    def wait_until_started(self) -> None:
        pass

    def log(self, row: Mapping[str, object]) -> None:
        self.write(row, row["iter"])

    def summary(self, values: Mapping[str, object]) -> None:
        """Under summary/NAME, since the rows have some of these names, at the last iteration."""
        named = {f"summary/{name}": value for name, value in values.items()}
        self.write(named, values.get("iterations"))

    def write(self, values: Mapping[str, object], iteration: object) -> None:
        """The numbers as one event, which a thread writes."""
        if self.writer is None:
            return
        scalars = [
            self.event.Value(tag=name, simple_value=value)
            for name, value in values.items()
            if isinstance(value, (int, float)) and name != "iter"
        ]
        try:
            self.writer.add_summary(self.event(value=scalars), iteration)
        except Exception as error:
            self.fail(error)

    def finish(self, exit_code: int = 0, disk_refused: bool = False) -> JsonObject:
        writer, self.writer = self.writer, None
        try:
            if writer:
                writer.close()
        except Exception as error:
            self.fail(error)
        return {}

    def fail(self, error: Exception) -> None:
        self.writer = None
        log.warning("TensorBoard failed (%s); metrics.jsonl goes on without it", error)
