"""A machine's answer to `ab` before its first process, which takes a process that imports torch.

test_what_the_machine_refuses_is_known_before_the_first_process in tests/launch/test_ab.py asks.
"""

from pathlib import Path

from profiling.analysis.difference.comparison_records import Experiment
from profiling.launch.pace import Pace

PACE = Pace("cpu", "cpu", 1e9, (0.01, 0.012), 128, 4, compiles=False, has_cpu_size=True)


def paces(asked: Experiment, _: Path) -> list[Pace]:
    """Stands for profiling.launch.experiment.plan.check_on_this_machine."""
    return [PACE for _ in asked.factor.values]
