"""The rows of metrics.jsonl for TensorBoard too (tensorboard=true). A sink of training.tracker.

tensorboard --logdir OUT_DIR
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.keys import spell
from profiling.metric_names import BEST_VAL_LOSS, TOKENS_PER_S
from profiling.records import JsonObject, to_json
from training.sinks import Row, RunFacts, Sink, Value

log = logging.getLogger(__name__)

# what HParams sets runs side by side by: names of summary()
COMPARED = tuple(f"summary/{metric.name}" for metric in (BEST_VAL_LOSS, TOKENS_PER_S))


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
    """Event files in `folder`; a disk that fails ends them, and nothing else.

    With `facts` the configuration stands under Text, and its keys under HParams.
    """

    def __init__(self, folder: Path, facts: RunFacts | None = None):
        from torch.utils.tensorboard.writer import SummaryWriter  # here: it is optional

        self.writer: SummaryWriter | None = None
        self.session_end: object = None  # for HParams, of a run that ended well
        with self.guarded():
            self.writer = SummaryWriter(str(folder))
        if facts:
            self.describe(facts)

    def describe(self, facts: RunFacts) -> None:
        from torch.utils.tensorboard.summary import hparams

        with self.guarded():
            if self.writer and self.writer.file_writer:
                told = {
                    "config": facts.config,
                    "run": facts.in_force,
                    "environment": facts.environment,
                }
                for name, values in told.items():
                    text = to_json(values).replace("\n", "\n    ")
                    self.writer.add_text(name, "    " + text, facts.iteration)
                # the metrics are scalars of this run: add_hparams would make another run of them
                experiment, begin, self.session_end = hparams(
                    {name: plain(value) for name, value in flat(facts.config).items()},
                    dict.fromkeys(COMPARED, 0.0),
                )
                self.writer.file_writer.add_summary(experiment)
                self.writer.file_writer.add_summary(begin)

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
        with self.guarded():
            for name, value in named.items():
                if self.writer and isinstance(value, str):
                    self.writer.add_text(name, value, values.get("iterations"))

    def write(self, values: Row, iteration: Value) -> None:
        """The numbers among them; a thread of TensorBoard's writes them."""
        with self.guarded():
            for name, value in values.items():
                if self.writer and isinstance(value, (int, float)) and name != "iter":
                    self.writer.add_scalar(name, value, iteration)

    def finish(self, exit_code: int = 0) -> None:
        with self.guarded():
            if self.writer and self.writer.file_writer:
                if exit_code == 0 and self.session_end:
                    self.writer.file_writer.add_summary(self.session_end)
                self.writer.close()


def flat(config: JsonObject) -> JsonObject:
    """{"profile": {"steps": 20}} as {"profile.steps": 20}; without W&B's section."""
    found: JsonObject = {}
    for name, value in config.items():
        inner = value if isinstance(value, dict) else None
        if inner is None:
            found[name] = value
        elif name != "wandb":
            found |= {f"{name}.{key}": each for key, each in inner.items()}
    return found


def plain(value: object) -> bool | int | float | str:
    """HParams takes nothing else."""
    return value if isinstance(value, (bool, int, float, str)) else spell(value)
