"""Replay of a step whose update is shared by the ranks."""

from dataclasses import replace

import pytest

from profiling.analysis.scale.links import Links
from profiling.analysis.scale.model_sizes import sizes_of
from profiling.analysis.scale.replay import replay_ddp
from tests.helpers.scale import FREE, MB, PARTS, ROWS, WITH_ROWS, all_reduce_ms, work
from validation.predicted import of_124m


def test_a_shared_update_by_hand():
    """Half of an exchange beside backward; the norm's gradient and then copies behind it."""
    links = Links(8, 1.0, 1.0)
    replay = replay_ddp(work(shares_update=True), links, 2)
    half, copies = (links.gather(size * MB, 2).ms for size in (1, 0.5))
    table, norm = all_reduce_ms(1.6, 2, 1.0), all_reduce_ms(0.4, 2, 1.0)
    sent = [cost.ms for cost in replay.sent]
    assert sent == pytest.approx([half, half, table, norm, copies, copies])
    assert sum(cost.bytes_sent for cost in replay.sent) == 3.5 * MB  # without it 4
    # the update of a half of the weights takes half as long, and the other half's hides copies
    assert replay.exposed == pytest.approx(table + norm)
    assert replay.now == pytest.approx(20 + table + norm - 0.25)
    eager = replay_ddp(work(shares_update=True, parts=replace(PARTS, update_ms=0.0)), links, 2)
    assert eager.now - replay.now == pytest.approx(0.25 + 2 * copies)


def test_parts_of_others_are_read_by_squares_and_update_where_no_kernel_averages():
    """Half of 2 MB is another GPU's, and read twice; of the table's 1.6 MB a kernel averages."""
    links = Links(8, 1000.0, 1.0)
    shared = work(shares_update=True, copy_bytes_per_ms=1e7, in_buckets=True)
    by_copies, by_collective = (
        replay_ddp(replace(shared, averages=averages), links, 2).now
        for averages in ("copies", "collective")
    )
    latency_ms = 0.02  # of a transfer, behind which squares are summed
    assert by_copies - by_collective == pytest.approx((2 + 1.5 * 1.6) * MB / 1e7, abs=latency_ms)


def test_gradients_in_16_bits_by_hand():
    """2 MB of gradients are 1: half as much is sent, and half of it read twice by each GPU."""
    links, shared = Links(8, 1.0, 1.0), work(shares_update=True)
    long, short = (
        replay_ddp(replace(shared, reduce_dtype=dtype), links, 2)
        for dtype in ("float32", "bfloat16")
    )
    quarter = links.gather(0.5 * MB, 2).ms
    assert [cost.ms for cost in short.sent[:2]] == pytest.approx([quarter, quarter])
    assert short.sent[2:] == long.sent[2:], "the table, the norm, and copies of weights"

    def read(averages, dtype, gpus=2) -> float:
        given = replace(shared, averages=averages, reduce_dtype=dtype, copy_bytes_per_ms=1e7)
        replay = replay_ddp(given, FREE, gpus)
        return replay.now - replay.exposed

    squares_and_update = 2 * 0.5 * MB / 1e7  # of half a million weights a byte for each
    # as much as one GPU, which reads float32: two parts of two bytes
    saved = read("copies", "float32") - read("copies", "bfloat16")
    assert saved == pytest.approx(2 * squares_and_update)
    # of their mean, which is a quarter of a million: less than the update as it was captured
    update = read("collective", "float32") - read("collective", "bfloat16")
    assert update == pytest.approx(squares_and_update / 2)


def test_a_cut_graph_pauses_behind_what_it_sends():
    links, dense = Links(8, 1.0, 1.0), work(pause_ms=0.125)
    replay, at_once = (replay_ddp(given, links, 2) for given in (dense, work()))
    # three buckets, of which the last one is waited for anyway
    assert replay.now - at_once.now == pytest.approx(2 * 0.125)
    shared = replace(dense, shares_update=True, copy_bytes_per_ms=None)
    cut, whole = (
        replay_ddp(replace(shared, pause_ms=ms), FREE, 2).now for ms in (dense.pause_ms, 0.0)
    )
    stages, sent = 2, len(shared.shared_buckets(2)) + 1  # the table's too
    assert cut - whole == pytest.approx((stages + sent) * 0.125, abs=0.1)


def test_copies_that_the_rest_of_the_update_does_not_hide_are_exposed():
    links = Links(8, 0.5, 1.0)
    replay = replay_ddp(work(shares_update=True), links, 2)
    behind = all_reduce_ms(1.6, 2, 0.5) + all_reduce_ms(0.4, 2, 0.5)
    # the first leave behind an eighth of the update, which is through behind three quarters
    left = 0.125 + 2 * links.gather(0.5 * MB, 2).ms - 0.75
    assert left > 0 and replay.exposed == pytest.approx(behind + left)


def test_squares_of_a_part_are_summed_beside_rows():
    links = Links(8, 1.0, 1.0)
    given = work(parts=replace(WITH_ROWS, squares_ms=0.4), rows=ROWS, shares_update=True)
    replay = replay_ddp(given, links, 2)
    rows, norm = links.gather(0.4 * MB, 2).ms, all_reduce_ms(0.4, 2, 1.0)
    behind_backward = rows + norm  # the squares' tenth of a millisecond is in there
    assert rows > 0.1
    # 1 ms that is no update, squares of the own half, both eighths, the own half
    copies = 0.075 + 2 * links.gather(0.5 * MB, 2).ms
    assert replay.now == pytest.approx(17 + behind_backward + 1 + 0.2 + max(0.45, copies))
    assert replay.exposed == pytest.approx(behind_backward - 0.1 + copies - 0.45)


def test_a_larger_share_of_many_gpus_is_shorter_where_links_are_free():
    large = sizes_of(of_124m(50_257), "bfloat16")
    given = work(sizes=large, bucket_mb=25.0, shares_update=True)
    share = 12 * 12 * 768**2 / large.parameters
    for gpus in (2, 4, 8):
        replay = replay_ddp(given, FREE, gpus)
        assert replay.now - replay.exposed == pytest.approx(20 - share * (1 - 1 / gpus))
