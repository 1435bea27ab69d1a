"""Collectives by kind, group and size: waits, transfers and bandwidth. Called by summary."""

from collections.abc import Sequence

import numpy as np

from profiling.analysis.ranks.collective_waits import Waits
from profiling.analysis.ranks.rank_records import CollectiveSum
from profiling.analysis.ranks.reduce import ReducedRank
from profiling.shared.hardware import gpu_link_bytes_per_s


def crossing_share(kind: str, n: int) -> float | None:
    """Bytes that cross the links of each of `n` GPUs, per byte of the message; None: unknown kind.

    These are the factors of bus bandwidth in NCCL's tests.
    """
    shares = {
        "all_reduce": 2 * (n - 1) / n,
        "reduce_scatter": (n - 1) / n,
        "all_gather": (n - 1) / n,
        "all_to_all": (n - 1) / n,
        "broadcast": 1.0,
        "reduce": 1.0,
        "send_recv": 1.0,
    }
    return shares.get(kind)


def collective_sums(
    ranks: Sequence[ReducedRank], waits: Waits, iterations: np.ndarray
) -> list[CollectiveSum]:
    """Sum up the collectives of `iterations` by kind, group and size, the costliest first."""
    matched = waits.matched
    rows = np.flatnonzero(np.isin(matched.iteration, iterations))
    first = matched.there[rows].argmax(axis=1)  # column of the rank that describes it
    size = np.count_nonzero(matched.there[rows], axis=1)
    keys = np.empty(len(rows), object)
    for number in np.unique(first).tolist():
        table, mine = ranks[number].collectives, np.flatnonzero(first == number)
        row = matched.row[rows[mine], number]
        texts = (table.texts(column[row]).tolist() for column in (table.lane, table.algorithm))
        columns = (matched.kind[rows[mine]], *texts, size[mine], table.bytes[row])
        for i, (kind, lane, algorithm, count, size_bytes) in zip(
            mine, zip(*columns, strict=True), strict=True
        ):
            keys[i] = (str(kind), lane, int(count), int(size_bytes), algorithm)
    groups: dict[tuple[str, str, int, int, str], list[int]] = {}
    for key, row in zip(keys.tolist(), rows.tolist(), strict=True):
        groups.setdefault(key, []).append(row)
    gpu = next((rank.gpu for rank in ranks if rank.gpu), None)
    sums = [collective_sum(ranks, waits, np.array(rows), key, gpu) for key, rows in groups.items()]
    return sorted(sums, key=lambda row: -(row.exposed_ms + row.slowed_ms) * row.count)


def collective_sum(
    ranks: Sequence[ReducedRank],
    waits: Waits,
    rows: np.ndarray,
    key: tuple[str, str, int, int, str],
    gpu: str | None,
) -> CollectiveSum:
    kind, lane, size, message_bytes, algorithm = key
    # the last rank to come does not wait, so its time is the transfer whatever the clocks are
    transfer_ns = waits.transfer_ns[rows, waits.last[rows]]
    last, count = np.unique(waits.last[rows], return_counts=True)
    moved = crossing_share(kind, size) if message_bytes >= 0 else None
    median_ns = float(np.median(transfer_ns))
    rate = moved * message_bytes / median_ns if moved is not None and median_ns > 0 else None
    peak = gpu_link_bytes_per_s(gpu) if gpu else None
    return CollectiveSum(
        kind=kind,
        group=lane.removeprefix("group "),
        ranks=size,
        count=len(rows),
        bytes=message_bytes if message_bytes >= 0 else None,
        algorithm=algorithm or None,
        wait_ms=float(np.nanmean(waits.wait_ns[rows])) / 1e6,
        transfer_ms=float(transfer_ns.mean()) / 1e6,
        exposed_ms=float(np.nanmean(waits.exposed_ns[rows])) / 1e6,
        slowed_ms=float(np.nanmean(waits.slowed_ns[rows])) / 1e6,
        bus_gb_per_s=rate,
        link_percent=1e11 * rate / peak if rate is not None and peak else None,
        last_rank=ranks[int(last[np.argmax(count)])].rank,
        last_percent=100 * float(count.max()) / len(rows),
    )
