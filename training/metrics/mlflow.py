"""A run in MLflow (mlflow=true), where MLFLOW_TRACKING_URI says, by default mlflow.db here.

To look at it: mlflow ui
"""

import os
import time

from cli.keys import spell
from training.metrics.sinks import Row, RunFacts
from training.metrics.tensorboard import flatten

MOST_PARAMS = 100  # that MLflow takes at once


class MlflowRun:
    """Run with the name and the keys that it has in W&B, in the experiment of its project."""

    def __init__(self, facts: RunFacts, project: str):
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient, entities  # here: it is optional

        self.entities, self.client = entities, MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or project
        known = self.client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self.client.create_experiment(name)
        self.run_id = self.client.create_run(experiment, run_name=facts.name).info.run_id
        keys = flatten(facts.config).items()
        params = [entities.Param(key, spell(value)) for key, value in keys]
        for start in range(0, len(params), MOST_PARAMS):
            self.client.log_batch(self.run_id, params=params[start : start + MOST_PARAMS])

    def log(self, values: Row, iteration: int) -> None:
        """Logs numbers as metrics, and texts as tags."""
        now_ms, tag = int(time.time() * 1e3), self.entities.RunTag
        numbers = {name: value for name, value in values.items() if isinstance(value, (int, float))}
        tags = [tag(name, str(value)) for name, value in values.items() if name not in numbers]
        metric = self.entities.Metric
        metrics = [metric(name, value, now_ms, iteration) for name, value in numbers.items()]
        self.client.log_batch(self.run_id, metrics=metrics, tags=tags)

    def finish(self, exit_code: int) -> None:
        self.client.set_terminated(self.run_id, "FAILED" if exit_code else "FINISHED")
