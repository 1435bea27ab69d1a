"""How long the ranks of a run wait for each other, and for whom.

They leave the averaging of gradients together, so the last to come to it does not wait: who spends
longer there than that one has waited for it. So it is where hosts wait for each other, as they do
for a row: a rank that is late behind its last bucket is waited for there. Both are times of the
device: a GPU that has work does not wait with its host. Called by training.rows with each row.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from profiling.metric_names import (
    FASTEST_RANK,
    FASTEST_RANK_MS,
    SLOWEST_RANK,
    SLOWEST_RANK_MS,
    STRAGGLER_MS,
    SYNC_MS,
    WAIT_MS,
)
from training.clock import Laps
from training.distributed import Ranks
from training.sinks import Value

MOST_ITERATIONS = 100  # of a row: the last ones, so that what ranks exchange stays small
MOST_RANKS = 8  # of which a row has each one's wait


@dataclass(frozen=True)
class Waits:
    """Milliseconds of an iteration, means over `iterations`; arrays have a value for each rank."""

    iterations: int
    step_ms: float
    sync_ms: float  # the synchronisation itself, from when the last rank has come
    own_ms: np.ndarray  # of the step, before the rank comes to the synchronisation and behind it
    wait_ms: np.ndarray  # from then until the last rank has come
    alone_ms: np.ndarray  # by which a step were shorter had this rank alone come with the next one

    @property
    def slowest(self) -> int:
        return int(self.wait_ms.argmin())

    @property
    def fastest(self) -> int:
        return int(self.wait_ms.argmax())

    @property
    def stragglers(self) -> tuple[int, ...]:
        """Who is waited for: ranks that wait less than half as long as the median. None of them
        where it is now this one, now that one, and all wait alike."""
        return tuple(np.flatnonzero(self.wait_ms < np.median(self.wait_ms) / 2).tolist())

    @property
    def straggler_ms(self) -> float:
        """By which a step were shorter had the stragglers come with the next one. Of several at
        most so much: that is by the means of the others, one of whom is late by chance."""
        late = list(self.stragglers)
        if len(late) <= 1:
            return float(self.alone_ms[late].sum())
        return float(np.delete(self.wait_ms, late).min() - self.wait_ms.min())

    def metrics(self) -> dict[str, Value]:
        """For a row, or a summary."""
        found: dict[str, Value] = {
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
            found |= {f"{WAIT_MS.name}/rank{rank}": ms for rank, ms in each}
        return found

    def __add__(self, other: "Waits") -> "Waits":
        """Of the iterations of both."""
        whole = self.iterations + other.iterations
        mine, its = self.iterations / whole, other.iterations / whole
        return Waits(
            whole,
            mine * self.step_ms + its * other.step_ms,
            mine * self.sync_ms + its * other.sync_ms,
            mine * self.own_ms + its * other.own_ms,
            mine * self.wait_ms + its * other.wait_ms,
            mine * self.alone_ms + its * other.alone_ms,
        )


def waits_of(step_ms: np.ndarray, sync_ms: np.ndarray) -> Waits:
    """Both are (ranks, iterations): of each the whole, and what it spent in the synchronisation."""
    iterations = sync_ms.shape[1]
    transfer_ms, next_ms = np.sort(sync_ms, axis=0)[:2]  # of the last to come, of the one before
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


def exchanged(
    readings: dict[str, Tensor], laps: Laps, ranks: Ranks
) -> tuple[dict[str, float], Waits | None]:
    """For a row: means of these scalars, and the waits in `laps`. All ranks call this, with as many
    iterations, and tell each other both at once.

    None on one rank alone, and where no iteration had its synchronisation measured.
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
