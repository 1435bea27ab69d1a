"""Model of the time of a collective: latency and bandwidth, inside a node and between nodes.

It is the alpha-beta model in the form of NCCL's own tuner (github.com/NVIDIA/nccl,
src/graph/tuning.cc): the tuner's latency for each step of a ring, trees between nodes, and the
longer one of the transfers inside and between nodes, since different chunks are in both at once.
"""

from dataclasses import dataclass
from math import ceil, log2
from typing import Literal

from profiling.analysis.ranks.collective_sums import crossing_share
from profiling.analysis.ranks.rank_records import CollectiveSum
from profiling.analysis.scale.scale_records import LinkSpeed
from profiling.shared.hardware import gpu_link_bytes_per_s, network_bytes_per_s
from profiling.shared.units import whole_percent

BYTES_PER_MS = 1e6  # at 1 GB/s
# latencies in ms from NCCL's tuner, for large messages: of a collective, of a step over NVLink, and
# of a step over the network
START_MS, LINK_STEP_MS, NETWORK_STEP_MS = 0.0084, 0.0034, 0.0096
LARGE_BYTES = 1_000_000  # smaller collectives measure latency rather than bandwidth
# shares of the data sheet's bandwidth, (middle, low, high). NVLink: middle and low fit four steps
# on 2 and 4 H200s and the slowest of them (docs/scale.md), high is the most that NCCL assumes for
# Hopper. Network: nothing was measured.
LINK_SHARES, NETWORK_SHARES = (0.65, 0.39, 0.80), (0.85, 0.60, 0.95)
Place = Literal["link", "network"]
Speed = Literal["middle", "low", "high"]
SPEEDS: tuple[Speed, ...] = ("middle", "low", "high")


@dataclass(frozen=True)
class Cost:
    """Time and bytes of one collective."""

    ms: float
    latency_ms: float
    bytes_sent: float  # by each GPU
    slower: Place  # where its transfer takes longer


@dataclass(frozen=True)
class Links:
    """Links of GPUs in nodes; speeds are in GB/s per GPU, each way."""

    gpus_per_node: int
    gb_per_s: float  # inside a node; meaningless where a node has one GPU
    network_gb_per_s: float  # between nodes; meaningless where there is one node

    def all_reduce(self, size: float, gpus: int) -> Cost:
        """Cost of an all-reduce of `size` bytes on each GPU."""
        return self.cost(size, gpus, passes=2)

    def gather(self, size: float, gpus: int) -> Cost:
        """Cost of an all-gather or a reduce-scatter of `size` bytes in all."""
        return self.cost(size, gpus, passes=1)

    def cost(self, size: float, gpus: int, passes: int) -> Cost:
        """Cost of a collective of `passes`, in each of which every GPU gets or gives all shares."""
        local = min(gpus, self.gpus_per_node)
        nodes = gpus // local
        inside = passes * (local - 1) / local * size
        between = passes * (nodes - 1) / nodes * size / local
        link_ms = inside / (self.gb_per_s * BYTES_PER_MS)
        network_ms = between / (self.network_gb_per_s * BYTES_PER_MS)
        latency_ms = START_MS + steps_ms(gpus, nodes, passes)
        transfer_ms = max(link_ms, network_ms)
        slower: Place = "link" if link_ms >= network_ms else "network"
        return Cost(latency_ms + transfer_ms, latency_ms, inside + between, slower)

    def between_nodes(self) -> "Links":
        """Links of one GPU in each node, as between GPUs that have the same share."""
        return Links(1, self.gb_per_s, self.network_gb_per_s)


def steps_ms(gpus: int, nodes: int, passes: int) -> float:
    """Latency in ms of a ring; of an all-reduce over nodes, of a tree if that is shorter."""
    local = gpus // nodes
    ring = (nodes - 1) * NETWORK_STEP_MS + (gpus - nodes) * LINK_STEP_MS
    if passes == 1 or nodes == 1:
        return passes * ring
    tree = (local - 1) * LINK_STEP_MS + ceil(log2(nodes)) * NETWORK_STEP_MS
    return passes * min(ring, tree)


def measured_link(collectives: list[CollectiveSum], gpus_per_node: int, file: str) -> LinkSpeed:
    """Speed of the large collectives among the ranks of one node, from `collectives` in `file`.

    Raises ValueError where none of them has a known bandwidth.
    """
    measured = [
        speed for row in collectives if (speed := bandwidth(row, gpus_per_node)) is not None
    ]
    if not measured:
        raise ValueError(
            f"{file}: contains the bandwidth of no collective of {LARGE_BYTES // 10**6} MB or "
            "more among the ranks of a node; capture all ranks with profile=torch, which "
            "records sizes"
        )
    speeds = sorted(speed for speed, _ in measured)
    largest = max(measured, key=lambda row: row[1])[0]
    return LinkSpeed(
        largest, speeds[0], speeds[-1], "measured", f"the largest collective of {file}"
    )


def bandwidth(row: CollectiveSum, gpus_per_node: int) -> tuple[float, int] | None:
    """(GB/s once the latency is subtracted, bytes); None where the row does not allow it."""
    passes = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}.get(row.kind)
    if passes is None or row.bytes is None or row.bus_gb_per_s is None:
        return None
    if row.bytes < LARGE_BYTES or not 1 < row.ranks <= gpus_per_node:
        return None
    moved = (crossing_share(row.kind, row.ranks) or 0) * row.bytes
    left_ms = moved / (row.bus_gb_per_s * BYTES_PER_MS) - START_MS - steps_ms(row.ranks, 1, passes)
    return (moved / left_ms / BYTES_PER_MS, row.bytes) if left_ms > 0 else None


def given_link(flag: str, speeds: tuple[float, ...]) -> LinkSpeed:
    """Speed that the user gave with `flag`: one number, or a low and a high one."""
    low, high = min(speeds), max(speeds)
    return LinkSpeed((low + high) / 2, low, high, "given", flag)


def known_link(gpu: str | None) -> LinkSpeed | None:
    """Speed that collectives reach by the GPU's data sheet; None: its links are not known."""
    peak = gpu_link_bytes_per_s(gpu) if gpu else None
    return assumed_link(peak, LINK_SHARES, f"links of the {gpu}") if peak else None


def known_network(gpu: str | None) -> LinkSpeed | None:
    """Speed of a NIC for each GPU, as in the vendor's own machines; None: not known."""
    peak = network_bytes_per_s(gpu) if gpu else None
    return assumed_link(peak, NETWORK_SHARES, f"one NIC per {gpu}") if peak else None


def assumed_link(peak: float, shares: tuple[float, float, float], what: str) -> LinkSpeed:
    middle, low, high = (share * peak / 1e9 for share in shares)
    why = f"{what}: {whole_percent(shares[0])} of the data sheet's {peak / 1e9:.0f} GB/s"
    return LinkSpeed(middle, low, high, "assumed", why)
