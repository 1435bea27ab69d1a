"""SIGINT and SIGTERM at random moments: each ends quietly, and nothing is lost."""

import signal
from collections.abc import Iterator

from tests.soak import lives
from tests.soak.forks import ProcessEnd
from tests.soak.trials import Trial

# 0, or by the signal itself: it was at its end, where Python has given its handlers back
EXPECTED = (0, *(code for n in (signal.SIGINT, signal.SIGTERM) for code in (128 + n, -n)))


def trials(count: int, seed: int, limit_s: float) -> Iterator[Trial]:
    both = (signal.SIGINT, signal.SIGTERM)
    return lives.trials(count, seed, limit_s, "signals", both, judge)


def judge(ended: ProcessEnd) -> str | None:
    if ended.status not in EXPECTED:
        return f"exit code {ended.status}: {' '.join(ended.err.split())[-200:]}"
    lines = [line for line in ended.err.splitlines() if line.strip()]
    return f"{len(lines)} lines: {lines[-1]}" if len(lines) > 1 else None
