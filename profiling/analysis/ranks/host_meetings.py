"""Waits of hosts for one another that no call shows, such as in gloo's collectives. Called by
summary.

Hosts that meet go on together: at the same place of the same step, the pauses of all ranks end at
one time. There each host waited for the last one, which paused for the shortest time: whatever a
pause lasts beyond that is no work of the host.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.ranks.clocks import Clocks
from profiling.analysis.ranks.own_host import OwnHost, Pauses
from profiling.analysis.ranks.reduce import ReducedRank

TOGETHER_NS = 500_000  # hosts that meet go on within this time; four hosts did within 250,000
NEVER = (2**62, -1)
# (iteration, number of launches before it in its step) -> (end in ns, row) of each pause there
Placed = dict[tuple[int, int], list[tuple[int, int]]]


def without_meetings(ranks: Sequence[ReducedRank], clocks: Clocks) -> list[ReducedRank]:
    """Take the waits for other hosts off each host's own time.

    Returns the ranks as they are where a host or a clock is not known.
    """
    hosts = [rank.own_host for rank in ranks if rank.own_host is not None]
    if len(hosts) < len(ranks) or not clocks.known.all():
        return list(ranks)
    offsets_ns = clocks.offset_ns.tolist()
    placed = [
        pauses_by_place(rank, host.pauses, offset_ns)
        for rank, host, offset_ns in zip(ranks, hosts, offsets_ns, strict=True)
    ]
    rows = rows_of_meetings(placed)
    lengths_ns = [
        host.pauses.end_ns[row] - host.pauses.start_ns[row]
        for host, row in zip(hosts, rows, strict=True)
    ]
    beyond_ns = np.array(lengths_ns) - np.min(lengths_ns, axis=0)
    return [
        replace(rank, own_host=without_waits(host, row, ns))
        for rank, host, row, ns in zip(ranks, hosts, rows, beyond_ns, strict=True)
    ]


def without_waits(host: OwnHost, rows: np.ndarray, waits_ns: np.ndarray) -> OwnHost:
    """Take off waits of `waits_ns` in the pauses at `rows`, as far as they count as work."""
    pauses = host.pauses
    less_ns = np.minimum(waits_ns, pauses.own_ns[rows])
    of_steps = np.bincount(pauses.step[rows], less_ns, len(host.step_ns))
    return replace(host, step_ns=np.maximum(host.step_ns - of_steps, 0))


def pauses_by_place(rank: ReducedRank, pauses: Pauses, offset_ns: int) -> Placed:
    """Pauses of each place, with the ends on the first rank's clock."""
    placed: Placed = {}
    columns = (rank.iterations[pauses.step], pauses.launches, pauses.end_ns - offset_ns)
    for row, (iteration, launches, end_ns) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        placed.setdefault((iteration, launches), []).append((end_ns, row))
    return placed


def rows_of_meetings(placed: Sequence[Placed]) -> NDArray[np.int64]:
    """(ranks, meetings): for each meeting of all ranks, the row of its pause on each of them."""
    meetings = []
    for place, pauses in placed[0].items():
        for end_ns, _ in pauses:
            near = [
                min(found.get(place, [NEVER]), key=lambda pause: abs(pause[0] - end_ns))
                for found in placed
            ]
            ends_ns = [each for each, _ in near]
            if max(ends_ns) - min(ends_ns) <= TOGETHER_NS:
                meetings.append([row for _, row in near])
    return np.array(meetings, np.int64).reshape(-1, len(placed)).T
