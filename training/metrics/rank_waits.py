"""Measures how long the ranks of a run wait for each other, and for whom.

Ranks leave the averaging of gradients together, so the last one to arrive does not wait, and a rank
that spends longer there has waited for it. The same holds where hosts wait for each other, as they
do for a row: a rank that is late after its last bucket is waited for there. Both times are the
device's, because a GPU that has work does not wait with its host. Called by training.metrics.rows
with each row.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from profiling.shared.metric_names import (
    FASTEST_RANK,
    FASTEST_RANK_MS,
    SLOWEST_RANK,
    SLOWEST_RANK_MS,
    STRAGGLER_MS,
    SYNC_MS,
    WAIT_MS,
)
from training.metrics.sinks import Value
from training.ranks.distributed import Ranks
from training.step.clock import Laps

MOST_ITERATIONS = 100  # last ones of a row that are exchanged, so that this stays small
MOST_RANKS = 8  # up to this many ranks a row has the wait of each


@dataclass(frozen=True)
class Waits:
    """Milliseconds of an iteration, means over `iterations`; arrays have a value for each rank."""

    iterations: int
    step_ms: float
    sync_ms: float  # the synchronisation itself, after the last rank has arrived
    own_ms: np.ndarray  # the step without the synchronisation: before the rank arrives, and after
    wait_ms: np.ndarray  # from the rank's arrival until the last rank has arrived
    alone_ms: np.ndarray  # how much shorter a step were if only this rank came with the next one

    @property
    def slowest(self) -> int:
        return int(self.wait_ms.argmin())

    @property
    def fastest(self) -> int:
        return int(self.wait_ms.argmax())

    @property
    def stragglers(self) -> tuple[int, ...]:
        """Ranks that the others wait for: they wait less than half as long as the median.

        Empty if the ranks are late in turn, so that all wait alike.
        """
        return tuple(np.flatnonzero(self.wait_ms < np.median(self.wait_ms) / 2).tolist())

    @property
    def straggler_ms(self) -> float:
        """Time by which a step would be shorter if the stragglers arrived with the next rank.

        With several stragglers it is an upper bound, computed from the means of the other ranks:
        in each step one of those is late by chance.
        """
        late = list(self.stragglers)
        if len(late) <= 1:
            return float(self.alone_ms[late].sum())
        return float(np.delete(self.wait_ms, late).min() - self.wait_ms.min())

    def metrics(self) -> dict[str, Value]:
        """Metrics for a row or a summary, by name."""
        values: dict[str, Value] = {
            WAIT_MS.name: float(self.wait_ms.mean()),
            STRAGGLER_MS.name: self.straggler_ms,
            SYNC_MS.name: self.sync_ms,
            SLOWEST_RANK.name: self.slowest,
            SLOWEST_RANK_MS.name: float(self.own_ms[self.slowest]),
            FASTEST_RANK.name: self.fastest,
            FASTEST_RANK_MS.name: float(self.own_ms[self.fastest]),
        }
        if len(self.wait_ms) <= MOST_RANKS:
            each = enumerate(self.wait_ms.tolist())
            values |= {f"{WAIT_MS.name}/rank{rank}": ms for rank, ms in each}
        return values

    def __add__(self, other: "Waits") -> "Waits":
        """Means over the iterations of both."""
        total = self.iterations + other.iterations
        share, rest = self.iterations / total, other.iterations / total
        return Waits(
            total,
            share * self.step_ms + rest * other.step_ms,
            share * self.sync_ms + rest * other.sync_ms,
            share * self.own_ms + rest * other.own_ms,
            share * self.wait_ms + rest * other.wait_ms,
            share * self.alone_ms + rest * other.alone_ms,
        )


def waits_of(step_ms: np.ndarray, sync_ms: np.ndarray) -> Waits:
    """Waits from each rank's step times and the times within the synchronisation.

    Both arrays are (ranks, iterations), and there are at least two ranks.
    """
    iterations = sync_ms.shape[1]
    # The last rank to arrive spends the least time there: the transfer itself. Then the one before.
    transfer_ms, next_ms = np.sort(sync_ms, axis=0)[:2]
    alone_ms = np.zeros_like(sync_ms)
    alone_ms[sync_ms.argmin(axis=0), np.arange(iterations)] = next_ms - transfer_ms
    return Waits(
        iterations=iterations,
        step_ms=float(step_ms.mean()),
        sync_ms=float(transfer_ms.mean()),
        own_ms=(step_ms - sync_ms).mean(axis=1),
        wait_ms=(sync_ms - transfer_ms).mean(axis=1),
        alone_ms=alone_ms.mean(axis=1),
    )


def exchange_readings(
    readings: dict[str, Tensor], laps: Laps, ranks: Ranks
) -> tuple[dict[str, float], Waits | None]:
    """Means of the scalars over all ranks, and the waits in `laps`, for a row.

    All ranks call this together, with the same number of iterations; both are exchanged at once.
    The waits are None with one rank, and if no iteration had its synchronisation measured.
    """
    times = torch.tensor(laps.synchronised_ms[-MOST_ITERATIONS:], dtype=torch.float64)
    scalars = torch.stack(list(readings.values())).cpu().double()
    of_ranks = torch.stack(ranks.gather(torch.cat([scalars, times.flatten()]))).numpy()
    means = of_ranks[:, : len(scalars)].mean(axis=0)
    step_ms, sync_ms = of_ranks[:, len(scalars) :].reshape(len(of_ranks), -1, 2).transpose(2, 0, 1)
    return (
        dict(zip(readings, means.tolist(), strict=True)),
        waits_of(step_ms, sync_ms) if len(times) else None,
    )
