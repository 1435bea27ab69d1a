"""SIGKILL at random moments, a half of them in saves, resumes and while the folder is opened."""

import signal
from collections.abc import Iterator

from tests.soak import lives
from tests.soak.forks import ProcessEnd
from tests.soak.trials import Trial


def trials(count: int, seed: int, limit_s: float) -> Iterator[Trial]:
    return lives.trials(count, seed, limit_s, "kills", (signal.SIGKILL,), judge)


def judge(ended: ProcessEnd) -> str | None:
    return None if ended.status in (0, -signal.SIGKILL) else f"exit code {ended.status}"
