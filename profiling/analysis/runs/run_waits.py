"""Summarise which rank waited for which in a run, over its logged rows. Called by the dashboard."""

import re
from dataclasses import dataclass

import numpy as np

from profiling.analysis.runs.folder import RunFolder
from profiling.shared.metric_names import SLOWEST_RANK, STRAGGLER_MS, WAIT_MS, WAIT_OF_RANK
from profiling.shared.units import whole_percent


@dataclass(frozen=True)
class RankWaits:
    """Waiting times of one run in ms per step, as means over the rows."""

    run: RunFolder
    wait_ms: float  # time that a rank waits for the last one to come
    straggler_ms: float  # cost of ranks that are slower than the rest
    slowest: int  # the rank that was slowest most often
    slowest_share: float  # share of the rows in which it was slowest, 0 to 1
    each_ms: dict[int, float]  # wait of each rank; empty where there are too many to log

    @property
    def ranks(self) -> int | None:
        ranks = self.run.in_force.get("ranks")
        return ranks if isinstance(ranks, int) else None

    @property
    def slowest_words(self) -> str:
        return f"{self.slowest}, in {whole_percent(self.slowest_share)} of the rows"

    @property
    def waits_words(self) -> str | None:
        waits = [f"rank {rank} {ms:.2f}" for rank, ms in sorted(self.each_ms.items())]
        return ", ".join(waits) or None


def rank_waits(run: RunFolder) -> RankWaits | None:
    """The waits of a run, or None where it did not log them: one rank alone waits for nobody."""
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
            int(matched[1]): float(run.columns[name].value.mean())
            for name, matched in ranks_of.items()
            if matched
        },
    )
