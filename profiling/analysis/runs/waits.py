"""Who waited for whom in a run of several ranks, over its logged rows. Called by the dashboard."""

import re
from dataclasses import dataclass

import numpy as np

from profiling.analysis.runs.folder import RunFolder
from profiling.metric_names import SLOWEST_RANK, STRAGGLER_MS, WAIT_MS, WAIT_OF_RANK


@dataclass(frozen=True)
class RankWaits:
    """Of one run; milliseconds of a step, means over the rows."""

    run: RunFolder
    wait_ms: float  # of a rank, for the last one to come
    straggler_ms: float  # what ranks that are slower than the rest cost
    slowest: int  # the rank that was so most often
    slowest_share: float  # in how many of the rows, 0 to 1
    each_ms: dict[int, float]  # by rank; empty where they are too many to be logged

    @property
    def ranks(self) -> int | None:
        found = self.run.in_force.get("ranks")
        return found if isinstance(found, int) else None

    @property
    def told_slowest(self) -> str:
        return f"{self.slowest}, in {self.slowest_share:.0%} of the rows"

    @property
    def told_each(self) -> str | None:
        told = [f"rank {rank} {ms:.2f}" for rank, ms in sorted(self.each_ms.items())]
        return ", ".join(told) or None


def rank_waits(run: RunFolder) -> RankWaits | None:
    """None of a run that did not log it: one rank alone waits for nobody."""
    needed = [run.columns.get(metric.name) for metric in (WAIT_MS, STRAGGLER_MS, SLOWEST_RANK)]
    if not all(needed):
        return None
    wait, straggler, slowest = (column.value for column in needed if column)
    ranks, rows = np.unique(slowest, return_counts=True)
    ranks_of = {name: re.fullmatch(WAIT_OF_RANK, name) for name in run.columns}
    return RankWaits(
        run,
        float(wait.mean()),
        float(straggler.mean()),
        int(ranks[rows.argmax()]),
        float(rows.max() / rows.sum()),
        {
            int(found[1]): float(run.columns[name].value.mean())
            for name, found in ranks_of.items()
            if found
        },
    )
