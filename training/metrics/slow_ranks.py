"""Adds to each row who waited for whom, and warns when a rank stays slower than the others.

Called by training.metrics.record.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from training.metrics.rank_waits import Waits
from training.metrics.sinks import Alert, Value
from training.ranks.distributed import Ranks
from training.ranks.next_commands import capture_of_ranks

log = logging.getLogger(__name__)

LONG_S = 10.0  # seconds of training that are judged together, but no fewer than
LONG_ITERATIONS = 30  # iterations: in a few slow ones chance decides who is late
SLOWER = 0.05  # share of a step: stragglers that cost this much are reported
NAMED = 4  # stragglers that are named; the rest are counted


@dataclass
class SlowRanks:
    """Watches the waits of one run, on each rank.

    Stragglers are reported once, and again only after they have changed or caught up.
    """

    ranks: Ranks
    out_dir: str
    alert: Callable[[Alert], None]
    whole: Waits | None = None  # of the run so far
    recent: Waits | None = None  # not judged yet
    said: tuple[int, ...] = ()  # stragglers that were reported last

    def read(self, waits: Waits | None) -> dict[str, Value]:
        """Metrics of `waits` for a row; empty for None, when ranks do not wait."""
        if waits is None:
            return {}
        self.whole = self.whole + waits if self.whole else waits
        self.watch(waits)
        return waits.metrics()

    def watch(self, waits: Waits) -> None:
        self.recent = self.recent + waits if self.recent else waits
        trained_s = self.recent.iterations * self.recent.step_ms / 1e3
        if trained_s < LONG_S or self.recent.iterations < LONG_ITERATIONS:
            return
        judged, self.recent = self.recent, None
        share = judged.straggler_ms / judged.step_ms
        if share >= SLOWER and judged.stragglers != self.said:
            self.said = judged.stragglers
            command = capture_of_ranks(self.out_dir, self.ranks, judged.slowest, judged.fastest)
            log.warning("%s; to see why: %s", stragglers_line(judged), command)
            self.alert(Alert("Ranks wait for a slow rank", stragglers_line(judged)))
        elif share < SLOWER / 2:
            self.said = ()

    def summary(self) -> dict[str, Value]:
        """Metrics of all waits so far, for summary.json."""
        return self.whole.metrics() if self.whole else {}


def stragglers_line(waits: Waits) -> str:
    """Text on what the stragglers cost, and what the slowest and the fastest rank take alone."""
    late, slowest, fastest = waits.stragglers, waits.slowest, waits.fastest
    more = f" and {len(late) - NAMED} more" if len(late) > NAMED else ""
    names = ", ".join(map(str, late[:NAMED])) + more
    who = f"rank{'s' if len(late) > 1 else ''} {names}"
    slow_ms, fast_ms = waits.own_ms[slowest], waits.own_ms[fastest]
    return (
        f"the others wait {waits.straggler_ms:.2f} of each {waits.step_ms:.2f} ms step for {who}: "
        f"rank {slowest} works {slow_ms:.2f} ms, rank {fastest} {fast_ms:.2f}"
    )
