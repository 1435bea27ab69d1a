"""A machine's answer to `ab` and `bench` before they start, which takes a process with torch.

Asked truly in tests/launch: test_what_the_machine_refuses_is_known_before_the_first_process, and
test_without_another_checkout_there_is_ours_alone.
"""

from pathlib import Path

from profiling.analysis.difference.comparison_records import Experiment
from profiling.launch.pace import Pace

PACE = Pace("cpu", "cpu", 1e9, (0.01, 0.012), 128, 4, compiles=False, has_cpu_size=True)


def paces(asked: Experiment, _: Path) -> list[Pace]:
    """Stands for profiling.launch.experiment.plan.check_on_this_machine."""
    return [PACE for _ in asked.factor.values]
