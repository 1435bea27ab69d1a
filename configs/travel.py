"""Gathers of transformer blocks' weights by ranks that shard the model: which together, how long.

training.step.shards carries it out, analysis.scale simulates it. Standard library only.
"""

from dataclasses import dataclass
from itertools import pairwise

STRETCH_BYTES = 64 << 20  # weights gathered together at least: each gather costs the host as much
KEPT_BYTES = 1 << 30  # up to this size of all blocks together they stay until backward is through


@dataclass(frozen=True)
class Travel:
    # neighbouring blocks whose weights are gathered, and whose gradients are scattered, at once;
    # their lengths differ by at most one
    stretches: tuple[range, ...]
    kept: bool  # weights are gathered once in an iteration, for forward and backward


def decide_travel(blocks: int, block_bytes: int) -> Travel:
    """Choose which blocks travel together, and whether they stay for backward.

    `block_bytes` is the size of one block's weights as they are sent.
    """
    together = -(-STRETCH_BYTES // block_bytes)
    count = max(1, blocks // together)
    ends = [blocks * number // count for number in range(count + 1)]
    stretches = tuple(range(begin, end) for begin, end in pairwise(ends))
    return Travel(stretches, kept=blocks * block_bytes <= KEPT_BYTES)
