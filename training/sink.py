"""What a tracker asks of a place for rows besides metrics.jsonl: TensorBoard, W&B."""

from collections.abc import Mapping
from typing import Protocol

from profiling.records import JsonObject

Value = float | int | str | None
Row = Mapping[str, Value]  # of a metric's name; "iter" is the iteration


class Sink(Protocol):
    """May fail at any time: then it says so once, raises nothing and takes no more rows."""

    def wait_until_started(self) -> None: ...
    def log(self, row: Row) -> None: ...  # None: not known
    def summary(self, values: Row) -> None: ...  # the run's results
    def finish(self, exit_code: int, disk_refused: bool) -> JsonObject: ...  # for summary.json

    @property
    def sync_command(self) -> str | None: ...  # what would upload the rest, after finish()
