"""SIGKILL at random moments, a half of them in saves, resumes and while the folder is opened."""

import signal
from collections.abc import Iterator

from benchmarks.reliability_parts import lives
from benchmarks.reliability_parts.forks import ProcessEnd
from benchmarks.reliability_parts.trial import Trial


def trials(count: int, seed: int, limit_s: float) -> Iterator[Trial]:
    return lives.trials(count, seed, limit_s, "kills", (signal.SIGKILL,), judge)


def judge(ended: ProcessEnd) -> str | None:
    return None if ended.status in (0, -signal.SIGKILL) else f"exit code {ended.status}"
