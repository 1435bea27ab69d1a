"""Writes the rows of metrics.jsonl for TensorBoard, too (tensorboard=true).

A sink of training.metrics.tracker. To look at them: tensorboard --logdir OUT_DIR
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.keys import spell
from profiling.shared.json_records import JsonObject, to_json
from profiling.shared.metric_names import BEST_VAL_LOSS, TOKENS_PER_S
from training.metrics.sinks import Row, RunFacts, Sink, Value

log = logging.getLogger(__name__)

# metrics that HParams compares runs by, under the names that summary() gives them
COMPARED = tuple(f"summary/{metric.name}" for metric in (BEST_VAL_LOSS, TOKENS_PER_S))


def check_tensorboard() -> None:
    """Raises ValueError, naming the key, if the package is missing."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise ValueError(
            "tensorboard=true: the package is not installed; `pip install tensorboard`, "
            "or leave the key out"
        ) from None


class TensorBoard(Sink):
    """Writes event files in `folder`; if the disk fails only they end, and the run goes on.

    With `facts` the configuration appears under Text, and its keys under HParams.
    """

    def __init__(self, folder: Path, facts: RunFacts | None = None):
        from torch.utils.tensorboard.writer import SummaryWriter  # here: it is optional

        self.writer: SummaryWriter | None = None
        self.session_end: object = None  # written for HParams if the run ends well
        with self.catch_failures():
            self.writer = SummaryWriter(str(folder))
        if facts:
            self.describe(facts)

    def describe(self, facts: RunFacts) -> None:
        from torch.utils.tensorboard.summary import hparams

        with self.catch_failures():
            if self.writer and self.writer.file_writer:
                sections = {
                    "config": facts.config,
                    "run": facts.in_force,
                    "environment": facts.environment,
                }
                for name, values in sections.items():
                    text = to_json(values).replace("\n", "\n    ")
                    self.writer.add_text(name, "    " + text, facts.iteration)
                # add_hparams would make a run of its own; these metrics are scalars of this run.
                experiment, begin, self.session_end = hparams(
                    {name: hparam_value(value) for name, value in flatten(facts.config).items()},
                    dict.fromkeys(COMPARED, 0.0),
                )
                self.writer.file_writer.add_summary(experiment)
                self.writer.file_writer.add_summary(begin)

    @contextmanager
    def catch_failures(self) -> Iterator[None]:
        """Turns an exception within the block into a warning, and stops writing from then on."""
        try:
            yield
        except Exception as error:
            self.writer = None
            log.warning("TensorBoard failed (%s); metrics.jsonl is still written", error)

    def log(self, row: Row) -> None:
        self.write(row, row["iter"])

    def summary(self, values: Row) -> None:
        """Writes results as summary/NAME at the last iteration; rows use some of the bare names."""
        named = {f"summary/{name}": value for name, value in values.items()}
        self.write(named, values.get("iterations"))
        with self.catch_failures():
            for name, value in named.items():
                if self.writer and isinstance(value, str):
                    self.writer.add_text(name, value, values.get("iterations"))

    def write(self, values: Row, iteration: Value) -> None:
        """Queues the numbers among `values`; a thread of TensorBoard writes them."""
        with self.catch_failures():
            for name, value in values.items():
                if self.writer and isinstance(value, (int, float)) and name != "iter":
                    self.writer.add_scalar(name, value, iteration)

    def finish(self, exit_code: int = 0) -> None:
        with self.catch_failures():
            if self.writer and self.writer.file_writer:
                if exit_code == 0 and self.session_end:
                    self.writer.file_writer.add_summary(self.session_end)
                self.writer.close()


def flatten(config: JsonObject) -> JsonObject:
    """Flattens {"profile": {"steps": 20}} to {"profile.steps": 20}; drops W&B's section."""
    keys: JsonObject = {}
    for name, value in config.items():
        inner = value if isinstance(value, dict) else None
        if inner is None:
            keys[name] = value
        elif name != "wandb":
            keys |= {f"{name}.{key}": each for key, each in inner.items()}
    return keys


def hparam_value(value: object) -> bool | int | float | str:
    """`value`, or its text if it is of a type that HParams does not take."""
    return value if isinstance(value, (bool, int, float, str)) else spell(value)
