"""Steps on more GPUs: by hand where that can be done, else by what has to hold of any of them."""

from dataclasses import replace

import pytest

from benchmarks.fleet.simulation import Fleet
from benchmarks.predicted import (
    AT_ONCE,
    AT_POWER_LIMIT,
    GPT2_124M,
    MEASURED,
    link,
    predicted_ms,
)
from configs.schema import Config
from model import GPT
from profiling.analysis.ranks.records import CollectiveSum
from profiling.analysis.runs.run_clocks import RunClocks
from profiling.analysis.scale.links import (
    LINK_STEP_MS,
    NETWORK_STEP_MS,
    START_MS,
    Links,
    known_link,
    known_network,
    measured_link,
)
from profiling.analysis.scale.model_sizes import (
    EmbeddingRows,
    Keys,
    ModelSizes,
    buckets,
    keys_of,
    rows_of,
    shared_buckets,
    sizes_of,
)
from profiling.analysis.scale.prediction import (
    MODES,
    Machine,
    choices,
    limit,
    memory_of,
    predictions,
    replayed,
)
from profiling.analysis.scale.records import HostTime, LinkSpeed, Mode, Scale, Slowdown, StepParts
from profiling.analysis.scale.replay import Replay, Work, replay_ddp, replay_sharded
from profiling.analysis.scale.scale import (
    COPIES_SLOWDOWN_PERCENT,
    SLOWDOWN_PERCENT,
    Asked,
    checked_counts,
    host_step_ms,
    scale,
    slowdown_of,
)
from profiling.analysis.scale.step_parts import step_parts
from profiling.records import to_json
from profiling.travel import Travel, decide_travel
from tests.helpers.captures import capture_of
from tests.helpers.fleet import report_of, written
from training.parallel import rows_travel
from training.shared_update import shared_layers

MB = 10**6
EACH_ALONE = Travel((range(1), range(1, 2)), kept=False)
# two blocks of 250,000 parameters, which are 1 MB; 500,000 outside of them
MATRICES = (150_000, 100_000)
TINY = ModelSizes((100_000,), MATRICES, 2, (), 400_000, 0.8, 2, EACH_ALONE, MATRICES)
# 20 ms: forward 6 of which 2 x 2 are blocks, backward 12 of which 2 x 4 are, update 1 of the rest
PARTS = StepParts(20.0, 1, 6.0, 12.0, 2.0, 4.0, 2.0, 1.0, "kernels")
# of 400 ids, of which the table's 400,000 are
ROWS = EmbeddingRows(tokens=100, ids=400, width=1_000, number_bytes=2)
WITH_ROWS = replace(PARTS, embedding_backward_ms=1.0)
FREE = Links(8, 1e9, 1e9)  # transfers take no time; latency stays


def work(**changes) -> Work:
    return replace(Work(PARTS, TINY, 0.9, 0.0, None), **changes)


def all_reduce_ms(megabytes: float, gpus: int, gb_per_s: float) -> float:
    """Inside of a node."""
    transfer = 2 * (gpus - 1) / gpus * megabytes / gb_per_s
    return transfer + START_MS + 2 * (gpus - 1) * LINK_STEP_MS


# links


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
    with pytest.raises(ValueError, match="ranks: tells the bandwidth of no collective"):
        measured_link(rows[2:], 8, "ranks")


def test_known_links_are_assumed_and_others_are_not_guessed():
    speed = known_link("NVIDIA H200")
    assert speed and speed.source == "assumed" and "450 GB/s" in speed.why
    assert speed.low_gb_per_s < speed.gb_per_s < speed.high_gb_per_s < 450
    assert known_network("NVIDIA H200") and known_network("NVIDIA L4") is None
    assert known_link("NVIDIA GeForce GTX 1080") is None and known_link(None) is None


# sizes


@pytest.mark.parametrize(
    "more", [{}, {"bias": True}, {"positions": "rotary"}, {"n_layer": 5, "n_embd": 48}]
)
def test_sizes_are_those_of_the_model(more):
    config = Config(**{"n_layer": 2, "n_head": 2, "n_embd": 32, "block_size": 16, **more})
    keys = Keys(config.n_layer, config.n_embd, 16, 4, config.bias, config.positions)
    model = GPT(config, 65)
    sizes = sizes_of(keys, 65)
    assert sizes.parameters == sum(each.numel() for each in model.parameters())
    tensors = sorted(each.numel() for each in model.transformer.h[0].parameters())
    assert sorted(sizes.block) == tensors
    assert sizes.travel == decide_travel(config.n_layer, 2 * sum(tensors))
    shared = sum(weight.numel() for weight in shared_layers(model))
    assert sizes.blocks * sum(sizes.matrices) == shared


def test_a_bucket_closes_with_the_tensor_that_fills_it():
    mebi = 2**18  # parameters of 4 bytes
    assert buckets([mebi, mebi, 3 * mebi, mebi], 2) == [
        (2 * 2**20, 1),
        (3 * 2**20, 2),
        (2**20, 3),
    ]
    assert buckets([mebi, mebi], 1000) == [(2 * 2**20, 1)]


def test_the_last_bucket_has_the_embedding_that_is_the_head_too():
    sizes = sizes_of(Keys(12, 768, 1024, 12), 50304)
    size, index = buckets(sizes.tensors(rows=False), 25.0)[-1]
    assert 4 * 50304 * 768 <= size < 4 * 50304 * 768 + 26 * 2**20
    assert index == len(sizes.head) + 12 * len(sizes.block) + len(sizes.positions)


@pytest.mark.parametrize("scope", ["model", "block"])
@pytest.mark.parametrize("batch_size", [1, 12, 50])
def test_rows_travel_where_the_trainer_sends_them(scope, batch_size):
    for gpus in (2, 4, 8):
        config = Config(compile_scope=scope, batch_size=batch_size, block_size=1024)
        config = replace(config, gradient_accumulation_steps=gpus)
        keys = Keys(12, 768, 1024, batch_size, compile=config.compile, compile_scope=scope)
        rows = rows_of(keys, 50257)
        travel = rows is not None and rows.travel(gpus)
        assert travel == rows_travel(config, gpus, 50257), gpus


def test_rows_are_of_the_residual_streams_dtype_without_dropout():
    keys = Keys(12, 768, 1024, 12, residual_dtype="bfloat16")
    dropped, plain = replace(keys, dropout=0.1), replace(keys, residual_dtype="float32")
    for each, number_bytes in ((keys, 2), (dropped, 4), (plain, 4)):
        assert rows_of(each, 50257) == EmbeddingRows(12 * 1024, 50257, 768, number_bytes)


def test_ranks_share_buckets_of_blocks_alone_and_of_one_length():
    sizes = sizes_of(GPT2_124M, 50_257).in_products
    block = 12 * 768**2
    for rows, gpus in ((True, 2), (True, 4), (False, 8), (False, 1024)):
        assert [*shared_buckets(sizes, 25.0, rows, gpus).values()] == [block] * 12
    assert shared_buckets(sizes, 25.0, True, 5) == {}
    # the table is in one bucket with matrices that come before it
    assert sum(shared_buckets(sizes, 40.0, False, 2).values()) < 12 * block
    assert sum(shared_buckets(sizes, 40.0, True, 2).values()) == 12 * block
    assert shared_buckets(sizes, 1000.0, True, 2) == {}


# a step played again


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


@pytest.mark.parametrize(
    "changes, there",
    [
        ({}, True),
        ({"kernels": "compiled"}, False),
        ({"compile": True}, False),
        ({"dtype": "float32"}, False),
    ],
    ids=str,
)
def test_products_write_into_buckets_uncompiled_and_in_16_bits(changes, there):
    keys = replace(GPT2_124M, kernels="fused", compile=False)
    assert replace(keys, **changes).gradients_in_buckets == there


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
    large = sizes_of(GPT2_124M, 50_257)
    given = work(sizes=large, bucket_mb=25.0, shares_update=True)
    share = 12 * 12 * 768**2 / large.parameters
    for gpus in (2, 4, 8):
        replay = replay_ddp(given, FREE, gpus)
        assert replay.now - replay.exposed == pytest.approx(20 - share * (1 - 1 / gpus))


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


def test_fsdp_by_hand():
    """At no latency to speak of: the root is waited for, blocks are gathered behind compute."""
    links = Links(8, 1.0, 1.0)
    replay = replay_sharded(work(), links, 4, shards=4)
    root = links.gather(2 * MB, 4).ms  # 500,000 float32 there and, as gradients, back
    block = links.gather(0.5 * MB, 4).ms  # 250,000 numbers of two bytes
    scattered = links.gather(MB, 4).ms
    sent = [cost.ms for cost in replay.sent]
    # root, both blocks; of backward the first block alone, between the last one's begin and end
    assert sent == pytest.approx([root, block, block, block, scattered, scattered, root])
    assert replay.exposed == pytest.approx(root + block + root)
    assert replay.now == pytest.approx(20 + replay.exposed - 0.75)  # a quarter of the update


@pytest.mark.parametrize("micro_steps", [1, 3])
def test_small_blocks_are_gathered_once_and_together(micro_steps):
    together = replace(TINY, travel=Travel((range(2),), kept=True))
    parts = replace(PARTS, micro_steps=micro_steps, step_ms=2.0 + 18 * micro_steps)
    links = Links(8, 1.0, 1.0)
    replay = replay_sharded(work(sizes=together, parts=parts), links, 4, shards=4)
    root, blocks, scattered = (links.gather(size * MB, 4).ms for size in (2, 1, 2))
    assert [cost.ms for cost in replay.sent] == pytest.approx([root, blocks, scattered, root])
    # 2 ms of backward behind the blocks hide what they scatter
    assert replay.exposed == pytest.approx(root + blocks + root)


def test_weights_that_do_not_stay_are_gathered_in_each_pass():
    parts = replace(PARTS, micro_steps=3, step_ms=56.0)
    replay = replay_sharded(work(parts=parts), Links(8, 1.0, 1.0), 4, shards=4)
    # root, both blocks, one of them again; then what is scattered: both blocks and the root's
    assert len(replay.sent) == 3 * 4 + 3


def test_hsdp_sends_shares_between_nodes():
    links = Links(4, 1.0, 0.05)
    replay = replay_sharded(work(), links, 16, shards=4)
    share = links.between_nodes().all_reduce(MB / 4, 4)
    assert [cost for cost in replay.sent if cost.slower == "network"].count(share) == 2
    assert share.ms == pytest.approx(
        1.5 * 0.25 / 0.05 + START_MS + 2 * 2 * NETWORK_STEP_MS  # a tree of four
    )
    assert limit(replay) == "network"


@pytest.mark.parametrize("mode", ["ddp", "fsdp", "hsdp"])
def test_a_faster_link_more_slowdown_more_gpus(mode):
    def step(link=300.0, network=40.0, gpus=64, **changes) -> float:
        large = sizes_of(Keys(12, 768, 1024, 12), 50304)
        parts = StepParts(27.0, 1, 8.0, 17.0, 0.5, 1.1, 2.0, 1.0, "kernels")
        given = Work(parts, large, 25.0, 0.0, None)
        return replayed(replace(given, **changes), Links(8, link, network), gpus, mode).now

    assert step(link=30.0) > step(link=100.0) >= step(link=300.0) >= step(link=1000.0)
    assert step(network=1.0) > step(network=10.0) >= step(network=40.0)
    assert step(slowdown=0.5) > step(slowdown=0.1) > step()
    assert step(copy_bytes_per_ms=1e9) > step(copy_bytes_per_ms=1e10) > step()
    assert step(gpus=1024) > step(gpus=128) > step(gpus=16)
    assert step(bucket_mb=1e6) >= step()


# what was measured before: docs/scale.md has the table


@pytest.mark.parametrize("step", MEASURED, ids=lambda step: f"{step.what}, {step.gpus} GPUs")
def test_steps_that_were_measured(step):
    """Within 4 %: in one piece behind backward, and bucket by bucket."""
    gb_per_s = link().gb_per_s
    assert predicted_ms(step, gb_per_s) == pytest.approx(step.measured_ms, rel=0.04)
    slowed = predicted_ms(step, gb_per_s) > predicted_ms(step, gb_per_s, slowed=False)
    assert slowed == (step.keys.bucket_mb != AT_ONCE)  # else nothing runs beside it


def test_what_is_said_of_the_power_limit_is_what_was_measured_there():
    predicted = [predicted_ms(step, link().gb_per_s) for step in AT_POWER_LIMIT]
    longer = [step.measured_ms / ms for step, ms in zip(AT_POWER_LIMIT, predicted, strict=True)]
    assert [round(100 * (least - 1)) for least in (min(longer), max(longer))] == [3, 4]


def test_the_hosts_time_is_that_of_two_steps_and_less_than_a_third():
    small, large = sizes_of(GPT2_124M, 2048), sizes_of(Keys(48, 1600, 1024, 8, bias=True), 50257)
    alone = Travel(tuple(range(at, at + 1) for at in range(12)), kept=False)
    assert host_step_ms(small, 1) == pytest.approx(37.6, abs=0.1)
    assert host_step_ms(replace(small, travel=alone), 1) == pytest.approx(73.4, abs=0.1)
    # gpt2_xl, compiled, on two H200s: 221 to 263 ms, so that the host cannot have taken longer
    assert len(large.travel.stretches) == 24 and host_step_ms(large, 1) < 221
    # weights that are kept do not travel again
    assert host_step_ms(small, 3) - host_step_ms(small, 1) == pytest.approx(24 * 2.24)
    assert host_step_ms(large, 3) == pytest.approx(3 * host_step_ms(large, 1))


# the answer


def machine(memory_bytes: int | None = None, host_step_ms: float = 0.0) -> Machine:
    link = LinkSpeed(100.0, 50.0, 200.0, "given", "")
    network = replace(link, gb_per_s=10.0, low_gb_per_s=5.0)
    return Machine(8, link, network, HostTime(host_step_ms, 0.0, "assumed"), memory_bytes)


def test_one_gpu_is_what_was_measured_and_ranges_are_around_the_middle():
    rows = predictions(work(), machine(), (1, 2, 16), ("ddp", "fsdp", "hsdp"), 1000, None)
    assert [(row.gpus, row.nodes, row.mode) for row in rows] == [
        (1, 1, "one"),
        (2, 1, "ddp"),
        (2, 1, "fsdp"),
        (16, 2, "ddp"),
        (16, 2, "fsdp"),
        (16, 2, "hsdp"),
    ]
    alone = rows[0]
    assert (alone.step_ms, alone.efficiency_percent, alone.sent_bytes) == (20.0, 100.0, 0)
    assert alone.tokens_per_s == pytest.approx(50_000) and alone.fits is None
    for row in rows[1:]:
        assert row.fastest_ms < row.step_ms < row.slowest_ms
        assert row.tokens_per_s == pytest.approx(row.gpus * 1e6 / row.step_ms)
        assert row.efficiency_percent == pytest.approx(2000 / row.step_ms)
    assert rows[1].sent_bytes == 4 * TINY.parameters  # 2 (n-1)/n of float32 gradients


def test_a_host_that_launches_kernel_by_kernel_may_be_the_limit():
    ways: tuple[Mode, ...] = ("ddp", "fsdp")
    ddp, fsdp = predictions(work(), machine(host_step_ms=30.0), (4,), ways, 1000, None)
    assert fsdp.step_ms == 30.0 and fsdp.limited_by == "host"
    assert fsdp.fastest_ms < 25.0
    assert ddp.limited_by != "host" and ddp.step_ms < 21.0


def test_memory_of_each_way_of_sharing():
    whole, share = (memory_of(TINY, mode, shards, 1) for mode, shards in (("ddp", 1), ("fsdp", 4)))
    assert whole.known == 16 * TINY.parameters and whole.gathered == 0
    assert share.known - share.gathered == 4 * TINY.parameters
    # weights and gradients outside of blocks, two blocks of 16 bits, a block's gradients
    assert share.gathered == 8 * 500_000 + 2 * 2 * 250_000 + 4 * 250_000
    assert memory_of(TINY, "fsdp", 4, micro_steps=2).gradients == 4 * TINY.parameters
    three = replace(TINY, blocks=6, travel=Travel((range(3), range(3, 6)), kept=False))
    two = replace(three, travel=Travel((range(2), range(2, 4), range(4, 6)), kept=False))
    kept = replace(two, travel=replace(two.travel, kept=True))
    gathered = [memory_of(sizes, "fsdp", 4, 1).gathered - 8 * 500_000 for sizes in (three, two)]
    # the weights of two stretches, and the gradients of one
    assert gathered == [(6 * 2 + 3 * 4) * 250_000, (4 * 2 + 2 * 4) * 250_000]
    assert memory_of(kept, "fsdp", 4, 1).gathered == 8 * 500_000 + (6 * 2 + 2 * 4) * 250_000


def test_copies_need_a_place_to_come_to():
    def gathered(gpus=2, **changes):
        played = work(**{"averages": "copies"} | changes)
        (row,) = predictions(played, machine(), (gpus,), ("ddp",), 1000, None)
        return row.memory.gathered

    assert gathered(averages="collective") == gathered(gpus=16) == 0
    assert gathered() == max(size for size, _ in buckets(TINY.tensors(False), 0.9))
    shared = sum(work(shares_update=True).shared_buckets(2).values())
    halves = [gathered(shares_update=True, reduce_dtype=d) for d in ("float32", "bfloat16")]
    assert shared > 0 and halves[0] - halves[1] == 2 * shared
    assert halves[0] == 4 * (shared + TINY.table)


def test_ddp_is_for_all_that_fits():
    rows = predictions(work(), machine(10**9), (1, 8, 64), ("ddp", "fsdp", "hsdp"), 1000, 10**6)
    assert all(row.fits for row in rows)
    assert [each.mode for each in choices(rows)] == ["one", "ddp", "ddp"]
    small = machine(14 * MB)
    rows = predictions(work(), small, (1, 8, 64), ("ddp", "fsdp", "hsdp"), 1000, 10**6)
    assert [row.fits for row in rows] == [False, False, True, False, True, True]
    found = choices(rows)
    assert [each.mode for each in found] == ["one", "fsdp", "hsdp"]
    assert "none fits" in found[0].why and "ddp does not fit, 17.0 MB" in found[2].why


# from captures


def test_parts_of_a_captured_step():
    capture = capture_of("flash_metrics")
    assert capture.manifest
    sizes = sizes_of(keys_of(capture.manifest, capture.trace.file), 65)
    parts = step_parts(capture, sizes)
    assert parts.step_ms == pytest.approx(capture.report.health.free_step_ms)
    assert (parts.micro_steps, parts.blocks_from) == (1, "kernels")
    # the page of this capture: forward 1.71 of kernels, backward 3.47, a block's attention 0.105
    assert parts.forward_ms == pytest.approx(1.73, abs=0.02)
    assert parts.backward_ms == pytest.approx(3.50, abs=0.02)
    assert parts.block_backward_ms == pytest.approx(0.542 * 5.40 / 5.58, abs=0.003)
    pieces = parts.head_backward_ms + 6 * parts.block_backward_ms
    assert 0.02 < parts.backward_ms - pieces < 0.3  # the embedding's
    assert 0.01 < parts.embedding_backward_ms < parts.backward_ms - pieces
    assert 0.1 < parts.update_ms < parts.rest_ms
    assert parts.squares_ms is None


def test_what_the_norm_takes_of_an_update_is_told_by_a_kernels_name():
    capture = capture_of("flash_metrics")
    assert capture.manifest
    trace, norms = capture.analysis.trace, "lpnorm_cleanup"
    names = ["adamw_squares_triton" if norms in name else name for name in trace.names]
    named = replace(capture.analysis, trace=replace(trace, names=names))
    sizes = sizes_of(keys_of(capture.manifest, trace.file), 65)
    parts = step_parts(replace(capture, analysis=named), sizes)
    (kernel,) = (row for row in capture.report.kernels if norms in row.name)
    captured_ms = kernel.total_ns / capture.analysis.step_count / 1e6
    free = parts.step_ms / capture.report.window.step_ms.median
    assert parts.squares_ms == pytest.approx(captured_ms * free)
    assert parts.squares_ms < parts.update_ms


def test_blocks_by_arithmetic_where_attention_is_no_kernel_of_its_own():
    capture = capture_of("flash_metrics")
    assert capture.manifest
    keys = replace(keys_of(capture.manifest, capture.trace.file), n_layer=3)
    parts = step_parts(capture, sizes_of(keys, 65))
    assert parts.blocks_from == "arithmetic"
    assert 0.9 < 3 * parts.block_forward_ms / parts.forward_ms < 1.0
    pieces = parts.head_backward_ms + 3 * parts.block_backward_ms
    assert parts.backward_ms - pieces == pytest.approx(parts.embedding_backward_ms)


@pytest.mark.parametrize("percent, said", [(97.0, True), (12.0, False)])
def test_a_clock_at_its_power_limit_is_assumed_to_stay(percent, said):
    rows = {"gpu/sm_clock_mhz": 1573.0, "gpu/throttle_power_percent": percent}
    limited = replace(capture_of("flash_eager.trace"), clocks=RunClocks(rows))
    found = scale(limited, Asked((1, 4), 8)).assumed
    at_the_limit = "the GPU's clock stays as it was, 1573 MHz, held down by its power limit 97 %"
    assert any(each.startswith(at_the_limit) for each in found) == said


def test_what_is_assumed_is_said():
    result = scale(capture_of("flash_eager.trace"), Asked((1, 4), 8))
    said = " ".join(result.assumed)
    assert "data sheet" in said and "--slowdown" in said and "activations: not measured" in said
    assert result.network is None
    assert (result.slowdown.percent, result.slowdown.source) == (SLOWDOWN_PERCENT, "assumed")
    assert "compute is 100 % longer beside a collective" in said and "(--host-ms)" in said
    given = LinkSpeed(300.0, 300.0, 300.0, "given", "--link")
    asked = Asked((1, 4), 8, link=given, slowdown_percent=5.0, host_step_ms=30.0)
    said = " ".join(scale(capture_of("flash_eager.trace"), asked, peak_bytes=2 * 10**9).assumed)
    assert "data sheet" not in said and "--slowdown" not in said and "--host-ms" not in said
    assert "activations are those of the measured run" in said
    assert to_json(result)


def scaled(asked: Asked, vocab_size: int = 50_257, **config: object) -> Scale:
    """Of a run of 16,384 tokens."""
    capture = capture_of("flash_metrics")
    assert capture.manifest and capture.manifest.config
    changed = replace(
        capture.manifest, vocab_size=vocab_size, config=capture.manifest.config | config
    )
    return scale(replace(capture, manifest=changed), asked)


def test_predictions_tell_whether_rows_travel():
    asked = Asked((1, 2, 4), 8, ("ddp", "fsdp"))
    result = scaled(asked)
    rows = {(row.gpus, row.mode): row.embedding_rows for row in result.predictions}
    assert [key for key, travel in rows.items() if travel] == [(2, "ddp")]
    saved = f"{result.measured.embedding_backward_ms:.2f} ms of backward"
    assert "ddp of up to 2 GPUs the embedding's gradient travels" in " ".join(result.assumed)
    assert saved in " ".join(result.assumed)
    table = 4 * 50_257 * 384
    assert result.model.last_bucket_bytes > table > result.model.rows_last_bucket_bytes
    whole = scaled(asked, compile_scope="model")
    assert not any(row.embedding_rows for row in whole.predictions)
    assert "compile_scope=model" in " ".join(whole.assumed)
    assert "travels as a row" not in " ".join(scaled(asked, vocab_size=65).assumed)


def test_copies_are_assumed_to_slow_less_and_are_for_one_node():
    asked = Asked((1, 8, 16), 8, ("ddp",), all_reduce="copies")
    result = scaled(asked)
    assert [row.all_reduce for row in result.predictions] == [None, "copies", "collective"]
    assert result.slowdown == Slowdown(SLOWDOWN_PERCENT, "assumed")
    assert result.slowdown_beside_copies == Slowdown(COPIES_SLOWDOWN_PERCENT, "assumed")
    said = " ".join(result.assumed)
    assert "4 to 9 %" in said and "ddp of several averages by collectives" in said
    collective = scaled(replace(asked, all_reduce="collective"))
    assert collective.slowdown_beside_copies is None
    assert "all_reduce=copies" not in " ".join(collective.assumed)
    (_, here, there), (_, before, same) = result.predictions, collective.predictions
    assert here.step_ms < before.step_ms and there.step_ms == same.step_ms
    assert here.sent_bytes == before.sent_bytes
    given = scaled(replace(asked, slowdown_percent=7.0))
    assert given.slowdown_beside_copies == Slowdown(7.0, "given")


FUSED = {"kernels": "fused", "compile": False}


def test_a_shared_update_is_said_and_makes_ddp_shorter():
    asked = Asked((1, 2, 8), 8, ("ddp", "fsdp"), all_reduce="copies")
    shared, alone = (
        scaled(replace(asked, shard_update=on), vocab_size=65, **FUSED) for on in (True, False)
    )
    ways = [(row.gpus, row.mode) for row in shared.predictions if row.shard_update]
    assert ways == [(2, "ddp"), (8, "ddp")]
    for with_it, without in zip(shared.predictions, alone.predictions, strict=True):
        if with_it.shard_update:
            assert with_it.sent_bytes < without.sent_bytes
        else:
            assert with_it == without
    # the first bucket of 25 MiB; the second one has the table, which all update
    said = " ".join(shared.assumed)
    assert "each GPU updates its part of 6.6 of 10.7 million weights" in said
    assert f"of {shared.measured.update_ms:.2f} ms for all; what the norm takes" in said
    assert "shard_update" not in " ".join(alone.assumed)
    # norms and positions are in no bucket
    assert shared.model.last_bucket_bytes == 4 * ((72 - 45) * 384**2 + 65 * 384)
    assert shared.model.last_bucket_bytes < alone.model.last_bucket_bytes
    assert alone.model.parameters == shared.model.parameters


def test_gradients_in_16_bits_are_said_and_halve_what_is_sent_of_them():
    asked = Asked((1, 2), 8, ("ddp", "fsdp"), shard_update=True)
    long, short = (
        scaled(replace(asked, reduce_dtype=dtype), vocab_size=65, **FUSED)
        for dtype in ("float32", "bfloat16")
    )
    assert [row.reduce_dtype for row in long.predictions] == [None, "float32", None]
    assert [row.reduce_dtype for row in short.predictions] == [None, "bfloat16", None]
    saved = long.predictions[1].sent_bytes - short.predictions[1].sent_bytes
    assert saved == 45 * 384**2  # half of two bytes of each weight in the bucket that is shared
    assert short.predictions[1].step_ms < long.predictions[1].step_ms
    said = "products that leave them so take as long"
    assert said in " ".join(short.assumed) and said not in " ".join(long.assumed)


@pytest.mark.parametrize(
    ("changes", "micro_steps", "why"),
    [
        ({"compile": True}, 1, "is for compile=false, this run has compile=true"),
        ({}, 3, "is for gradient_accumulation_steps=1, this run has gradient_accumulation_steps=3"),
    ],
)
def test_16_bits_are_refused_where_the_trainer_refuses_them(changes, micro_steps, why):
    asked = Asked((1, 2), 8, micro_steps=micro_steps, shard_update=True)
    assert scaled(asked, **(FUSED | changes))
    with pytest.raises(ValueError, match=f"^--reduce-dtype bfloat16: {why}$"):
        scaled(replace(asked, reduce_dtype="bfloat16"), **(FUSED | changes))


def test_pieces_of_graphs_are_said_where_there_are_graphs():
    said = {on: scaled(Asked((1, 2), 8), cuda_graphs=on) for on in ("true", "false")}
    pauses = ["CUDA graphs are cut" in " ".join(result.assumed) for result in said.values()]
    assert pauses == [True, False]
    with_them, without = (result.predictions[1].step_ms for result in said.values())
    assert with_them > without


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kernels": "compiled"}, "is for kernels=fused, this run has kernels=compiled"),
        ({"optimizer": "muon"}, "is for optimizer=adamw, this run has optimizer=muon"),
        ({"dtype": "float32"}, "is for dtype=bfloat16, this run has dtype=float32"),
        ({"bucket_mb": 1000.0}, "not for 2 GPUs: of buckets of 1000 MiB none is of blocks alone"),
    ],
)
def test_a_shared_update_is_refused_where_the_trainer_refuses_it(changes, why):
    asked = Asked((1, 2), 8, shard_update=True)
    with pytest.raises(ValueError, match=f"^--shard-update: {why}"):
        scaled(asked, **(FUSED | changes))


def test_a_number_of_gpus_that_has_no_equal_parts_is_refused():
    with pytest.raises(ValueError, match="not for 7 GPUs: .* a multiple of 56 weights"):
        scaled(Asked((2, 7), 8, shard_update=True), **FUSED)


def test_the_slowdown_is_what_compute_lost_beside_collectives(tmp_path):
    asked, beside = Asked((1, 4), 8), {"ranks": 2, "steps": 4, "buckets": 2}
    twice, hardly = (
        slowdown_of(asked, report_of(written(Fleet(**beside, slowdown=by), tmp_path / str(by))))
        for by in (1.9, 1.0)
    )
    assert twice.source == hardly.source == "measured"
    assert twice.percent == pytest.approx(90, abs=8) and hardly.percent < 3
    behind = report_of(written(Fleet(ranks=2, steps=4, buckets=0, slowdown=1.9), tmp_path / "0"))
    assert slowdown_of(asked, behind) == Slowdown(SLOWDOWN_PERCENT, "assumed")
    given = replace(asked, slowdown_percent=7.0)
    assert slowdown_of(given, behind) == Slowdown(7.0, "given")


def test_kernels_that_fsdp_refuses_are_told():
    capture = capture_of("flash_metrics")
    assert capture.manifest and capture.manifest.config
    fused = replace(capture.manifest, config=capture.manifest.config | {"kernels": "fused"})
    said = {
        ways: " ".join(scale(replace(capture, manifest=fused), Asked((8,), 8, ways)).assumed)
        for ways in (("ddp",), MODES)
    }
    assert "kernels=fused" in said[MODES] and "kernels=fused" not in said["ddp",]


def test_more_micro_steps_are_as_long_as_those_that_were_measured():
    one, five = (
        scale(capture_of("flash_metrics"), Asked((1, 8), 8, micro_steps=count)) for count in (1, 5)
    )
    passes = one.measured.forward_ms + one.measured.backward_ms
    assert five.measured.step_ms - one.measured.step_ms == pytest.approx(4 * passes)
    assert five.tokens == 5 * one.tokens
    kept = [result.predictions[1].efficiency_percent for result in (one, five)]
    assert kept[0] < kept[1] < 100


def test_counts_fill_their_nodes():
    assert checked_counts((16, 2, 2, 1), 8) == (1, 2, 16)
    with pytest.raises(ValueError, match="--gpus 12: no multiple of --gpus-per-node 8"):
        checked_counts((12,), 8)
