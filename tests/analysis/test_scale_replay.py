"""Replay of a ddp step: by hand, or by invariants of every replay."""

from dataclasses import replace

import pytest

from profiling.analysis.scale.links import Links
from profiling.analysis.scale.model_sizes import buckets, sizes_of
from profiling.analysis.scale.prediction import limit, replay_mode
from profiling.analysis.scale.replay import Replay, Work, replay_ddp
from profiling.analysis.scale.scale_records import StepParts
from tests.helpers.scale import FREE, MB, PARTS, ROWS, WITH_ROWS, all_reduce_ms, work
from validation.predicted import of_124m


def test_ddp_by_hand():
    """Buckets: head and the first block's first tensor, 1 MB; then as backward goes on."""
    replay = replay_ddp(work(), Links(8, 1.0, 1.0), 2)
    tensors = [100_000, 150_000, 100_000, 150_000, 100_000, 400_000]
    assert [size for size, _ in buckets(tensors, 0.9)] == [MB, MB, 2 * MB]  # in 4-byte parameters
    small, large = all_reduce_ms(1, 2, 1.0), all_reduce_ms(2, 2, 1.0)
    # ready 6 ms behind the forward of 6, 10 ms, and 12 ms, where backward ends
    assert [cost.ms for cost in replay.sent] == pytest.approx([small, small, large])
    assert replay.exposed == pytest.approx(large)
    assert replay.now == pytest.approx(20 + large)


def test_rows_by_hand():
    """The table leaves behind the head's backward, rows behind all; no dense one is made."""
    links = Links(8, 1.0, 1.0)
    replay = replay_ddp(work(parts=WITH_ROWS, rows=ROWS), links, 2)
    head, one, left = (all_reduce_ms(size, 2, 1.0) for size in (1.6, 1, 0.4))
    rows = links.gather(0.4 * MB, 2).ms  # 100 tokens of each of two ranks, 1,000 of two bytes
    assert [cost.ms for cost in replay.sent] == pytest.approx([head, one, one, left, rows])
    # two buckets are ready at 16 ms, behind the blocks; backward ends at 17
    assert replay.exposed == pytest.approx(one + left + rows - 1)
    assert replay.now == pytest.approx(19 + replay.exposed)
    dense = replay_ddp(work(parts=WITH_ROWS), links, 2)
    assert dense.exposed == pytest.approx(all_reduce_ms(2, 2, 1.0))
    assert dense.now - replay.now == pytest.approx(1 + dense.exposed - replay.exposed)


def test_rows_are_added_behind_all_and_matrices_may_lie_in_their_buckets():
    given = work(parts=WITH_ROWS, rows=ROWS, copy_bytes_per_ms=1e6)
    copied = replay_ddp(given, FREE, 2)
    added = 0.4 + 1.6  # MB: rows, and as many of the table there and back
    assert copied.now - copied.exposed == pytest.approx(19 + 8 + added)
    placed = replay_ddp(replace(given, in_buckets=True), FREE, 2)
    assert placed.now - placed.exposed == pytest.approx(19 + added)
    # autograd adds the two of the table in memory of their own
    copied, placed = (
        replay_ddp(replace(given, rows=None, in_buckets=place), FREE, 2) for place in (False, True)
    )
    assert copied.now - copied.exposed == pytest.approx(20 + 8)
    assert placed.now - placed.exposed == pytest.approx(20 + 4)  # the table and the norm


def test_rows_are_for_one_micro_step_and_no_more_tokens_than_ids():
    one, three = (work(parts=replace(WITH_ROWS, micro_steps=count), rows=ROWS) for count in (1, 3))
    assert one.rows_for(4) == ROWS and one.rows_for(5) is None and three.rows_for(2) is None
    links = Links(8, 1.0, 1.0)
    assert replay_ddp(one, links, 8).sent == replay_ddp(work(), links, 8).sent


def test_copies_send_as_much_and_slow_compute_down_less():
    links, given = Links(8, 1.0, 1.0), work(slowdown=1.0, copies_slowdown=0.05)
    collective, copies = (
        replay_ddp(replace(given, averages=way), links, 2) for way in ("collective", "copies")
    )
    small, large = all_reduce_ms(1, 2, 1.0), all_reduce_ms(2, 2, 1.0)
    assert copies.sent == collective.sent
    # both small buckets lie beside compute, the large one behind it
    assert copies.now == pytest.approx(20 + 2 * small * 0.05 / 1.05 + large)
    assert collective.now == pytest.approx(20 + 2 * small / 2 + large)
    free = replay_ddp(replace(given, averages="copies", copies_slowdown=0.0), links, 2)
    assert free.now == pytest.approx(20 + large)
    several_nodes = [
        replay_ddp(replace(given, averages=way), links, 16).now for way in ("collective", "copies")
    ]
    assert several_nodes[0] == several_nodes[1]


def test_a_kernel_averages_between_copies():
    given = work(copy_bytes_per_ms=1e6)
    collective, copies = (
        replay_ddp(replace(given, averages=way), FREE, 4) for way in ("collective", "copies")
    )
    # of 4 MB in all, a part from each of four ranks is read and one is written
    assert copies.now - collective.now == pytest.approx(5, abs=0.1)


def test_buckets_queue_where_the_link_is_slow():
    replay = replay_ddp(work(), Links(8, 0.1, 1.0), 2)
    first, rest = all_reduce_ms(1, 2, 0.1), all_reduce_ms(2, 2, 0.1)
    assert replay.exposed == pytest.approx(12 + 2 * first + rest - 18)  # from 6 + 2 + 4 ms on
    assert limit(replay) == "link"


def test_one_bucket_hides_nothing():
    replay = replay_ddp(work(bucket_mb=1000.0), Links(8, 1.0, 1.0), 4)
    assert replay.exposed == pytest.approx(all_reduce_ms(4, 4, 1.0)) == replay.now - 20


def test_only_the_last_micro_step_sends():
    parts = replace(PARTS, micro_steps=3, step_ms=56.0)
    alone, three = (replay_ddp(work(parts=each), Links(8, 1.0, 1.0), 2) for each in (PARTS, parts))
    assert three.sent == alone.sent
    assert three.now - alone.now == pytest.approx(36)


def test_compute_is_longer_beside_a_collective_and_not_behind_it():
    replay = Replay(slowdown=0.5)
    cost = Links(8, 1.0, 1.0).all_reduce(3 * MB, 2)
    replay.send(cost)
    replay.compute(1.0)
    assert replay.now == pytest.approx(1.5)
    replay.compute(10.0)  # a part of it
    slow = (cost.ms - 1.5) / 1.5
    assert replay.now == pytest.approx(cost.ms + 10 - slow)


@pytest.mark.parametrize("mode", ["ddp", "fsdp", "hsdp"])
def test_a_faster_link_more_slowdown_more_gpus(mode):
    def step(link=300.0, network=40.0, gpus=64, **changes) -> float:
        large = sizes_of(of_124m(50304), "bfloat16")
        parts = StepParts(27.0, 1, 8.0, 17.0, 0.5, 1.1, 2.0, 1.0, "kernels")
        given = Work(parts, large, 25.0, 0.0, None)
        return replay_mode(replace(given, **changes), Links(8, link, network), gpus, mode).now

    assert step(link=30.0) > step(link=100.0) >= step(link=300.0) >= step(link=1000.0)
    assert step(network=1.0) > step(network=10.0) >= step(network=40.0)
    assert step(slowdown=0.5) > step(slowdown=0.1) > step()
    assert step(copy_bytes_per_ms=1e9) > step(copy_bytes_per_ms=1e10) > step()
    assert step(gpus=1024) > step(gpus=128) > step(gpus=16)
    assert step(bucket_mb=1e6) >= step()
