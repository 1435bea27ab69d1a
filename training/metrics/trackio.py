"""A run in Trackio (trackio=true), where Trackio's own variables such as TRACKIO_SPACE_ID say.

To look at it: trackio show
"""

from training.metrics.sinks import Row, RunFacts
from training.metrics.tensorboard import flatten


class TrackioRun:
    """Run with the name, the group and the keys that it has in W&B."""

    def __init__(self, facts: RunFacts, project: str, group: str | None):
        import trackio  # here: it is optional

        self.run = trackio.init(
            project=project,
            name=facts.name,
            group=group,
            config=flatten(facts.config),
            embed=False,
            auto_log_gpu=False,  # the rows have its metrics
            auto_log_cpu=False,
        )

    def log(self, values: Row, iteration: int) -> None:
        self.run.log(dict(values), step=iteration)

    def finish(self, exit_code: int) -> None:
        self.run.finish()
