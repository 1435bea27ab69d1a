"""Time of a collective on each link, and the speed of a link."""

from dataclasses import replace

import pytest

from profiling.analysis.ranks.rank_records import CollectiveSum
from profiling.analysis.scale.links import (
    LINK_STEP_MS,
    NETWORK_STEP_MS,
    START_MS,
    Links,
    known_link,
    known_network,
    measured_link,
)
from tests.helpers.scale import FREE, MB, all_reduce_ms


def test_an_all_reduce_inside_a_node_is_a_ring():
    cost = Links(8, 100.0, 1.0).all_reduce(100 * MB, 4)
    assert cost.ms == pytest.approx(1.5 + 0.0084 + 6 * 0.0034)  # 2 * 3/4 of 100 MB at 100 GB/s
    assert cost.bytes_sent == 150 * MB and cost.slower == "link"


def test_a_gather_is_half_of_it():
    cost = Links(8, 100.0, 1.0).gather(100 * MB, 4)
    assert cost.ms == pytest.approx(0.75 + 0.0084 + 3 * 0.0034)


def test_between_nodes_the_slower_place_decides_and_a_tree_keeps_latency_low():
    links = Links(8, 300.0, 10.0)
    cost = links.all_reduce(800 * MB, 64)
    # 2 * 7/8 of a share of 100 MB at 10 GB/s; inside it would be 2 * 7/8 of 800 MB at 300
    assert cost.ms - cost.latency_ms == pytest.approx(17.5)
    assert cost.slower == "network"
    assert cost.latency_ms == pytest.approx(START_MS + 2 * (7 * LINK_STEP_MS + 3 * NETWORK_STEP_MS))
    assert Links(8, 300.0, 100.0).all_reduce(800 * MB, 64).slower == "link"
    assert cost.bytes_sent == 2 * 700 * MB + 2 * 87.5 * MB


def test_a_gather_of_many_goes_round_by_all_of_them():
    few, many = (FREE.gather(0, gpus).ms for gpus in (64, 1024))
    assert many - few == pytest.approx(120 * NETWORK_STEP_MS + 840 * LINK_STEP_MS)


def collective(**changes) -> CollectiveSum:
    row = CollectiveSum(
        kind="all_reduce",
        group="0",
        ranks=4,
        count=10,
        bytes=100 * MB,
        algorithm="ring",
        wait_ms=0.0,
        transfer_ms=1.0,
        exposed_ms=0.0,
        slowed_ms=0.0,
        bus_gb_per_s=150.0 / all_reduce_ms(100, 4, 300.0),
        link_percent=None,
        last_rank=None,
        last_percent=None,
    )
    return replace(row, **changes)


def test_bandwidth_is_what_a_collective_took_behind_its_latency():
    rows = [
        collective(),
        collective(bytes=50 * MB, bus_gb_per_s=75.0 / all_reduce_ms(50, 4, 240.0)),
        collective(bytes=4, bus_gb_per_s=0.001),  # tells latency alone
        collective(bytes=None, bus_gb_per_s=None),
        collective(ranks=16, bus_gb_per_s=20.0),  # of two nodes
        collective(kind="broadcast", bus_gb_per_s=9.0),
    ]
    speed = measured_link(rows, 8, "ranks")
    assert speed.gb_per_s == pytest.approx(300.0) == speed.high_gb_per_s
    assert speed.low_gb_per_s == pytest.approx(240.0) and speed.source == "measured"
    with pytest.raises(ValueError, match="ranks: contains the bandwidth of no collective"):
        measured_link(rows[2:], 8, "ranks")


def test_known_links_are_assumed_and_others_are_not_guessed():
    speed = known_link("NVIDIA H200")
    assert speed and speed.source == "assumed" and "450 GB/s" in speed.why
    assert speed.low_gb_per_s < speed.gb_per_s < speed.high_gb_per_s < 450
    assert known_network("NVIDIA H200") and known_network("NVIDIA L4") is None
    assert known_link("NVIDIA GeForce GTX 1080") is None and known_link(None) is None
