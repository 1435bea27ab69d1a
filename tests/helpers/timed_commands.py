"""Commands whose step times come from a table: nothing is started and nothing is timed."""

from collections.abc import Callable
from pathlib import Path

from profiling.analysis.difference.comparison_records import COMMAND, ProcessRun, SeenWork
from profiling.launch.experiment import commands
from profiling.launch.experiment.processes import Conditions

ENVIRONMENT = {"torch": "2.13.0", "cuda": None, "gpu": None}
WORK = SeenWork("a step ends with AdamW.step()", 300, 74_112, ["float32:32x192"], 1, 1.0)


def time_by_table(monkeypatch, ms_of: Callable[[Path | None, int], float], environment=None):
    """Replaces the timing of a command by `ms_of` of its folder and its number; returns the list of
    folders that is filled as processes run. `environment` is a dict that tests may change."""
    ran: list[Path | None] = []

    def time_command(sides, places, experiment, folder, number, value):
        ran.append(places[value])
        ms = ms_of(places[value], len(ran))
        label, line = experiment.factor.labels[value], experiment.factor.values[value]
        run = ProcessRun(number, label, sides[value], "runs", 1.0, None, [29], [ms] * 3, [ms] * 3)
        facts = ENVIRONMENT if environment is None else dict(environment)
        return run, Conditions({COMMAND: line}, {"device": "cpu"}, facts, WORK)

    monkeypatch.setattr(commands, "time_command", time_command)
    return ran
