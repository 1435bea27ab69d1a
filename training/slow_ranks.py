"""Tells of each row who waited for whom, and says when a rank is slower than the others for long.

Called by training.record.
"""

import logging
from dataclasses import dataclass

from training.distributed import Ranks
from training.next_commands import capture_of_ranks
from training.sinks import Value
from training.waits import Waits

log = logging.getLogger(__name__)

LONG_S = 10.0  # of training that is judged together, and
LONG_ITERATIONS = 30  # no fewer than these: of a few slow ones chance decides who is late
SLOWER = 0.05  # of a step: stragglers that cost so much are told of
NAMED = 4  # stragglers that are told one by one


@dataclass
class SlowRanks:
    """Of one run, on each rank. The line is said once, until the stragglers are others, or none."""

    ranks: Ranks
    out_dir: str
    whole: Waits | None = None  # of the run so far
    recent: Waits | None = None  # not judged yet
    said: tuple[int, ...] = ()

    def read(self, waits: Waits | None) -> dict[str, Value]:
        """For a row; None: nobody waits."""
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
            log.warning("%s; see why: %s", said_of_stragglers(judged), command)
        elif share < SLOWER / 2:
            self.said = ()

    def summary(self) -> dict[str, Value]:
        """For summary.json."""
        return self.whole.metrics() if self.whole else {}


def said_of_stragglers(waits: Waits) -> str:
    """What they cost, and what the slowest and the fastest rank take by themselves."""
    late, slowest, fastest = waits.stragglers, waits.slowest, waits.fastest
    more = f" and {len(late) - NAMED} more" if len(late) > NAMED else ""
    names = ", ".join(map(str, late[:NAMED])) + more
    who = f"rank{'s' if len(late) > 1 else ''} {names}"
    slow_ms, fast_ms = waits.own_ms[slowest], waits.own_ms[fastest]
    return (
        f"the others wait {waits.straggler_ms:.2f} of each {waits.step_ms:.2f} ms step for {who}: "
        f"rank {slowest} works {slow_ms:.2f} ms, rank {fastest} {fast_ms:.2f}"
    )
