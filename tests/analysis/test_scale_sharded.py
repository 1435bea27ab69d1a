"""Replay of fsdp and hsdp steps."""

from dataclasses import replace

import pytest

from configs.sharing import Travel
from profiling.analysis.scale.links import NETWORK_STEP_MS, START_MS, Links
from profiling.analysis.scale.prediction import limit
from profiling.analysis.scale.replay import replay_sharded
from tests.helpers.scale import MB, PARTS, TINY, work


def test_fsdp_by_hand():
    """Latency is next to nothing: the root is waited for, blocks are gathered behind compute."""
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
