"""How the weights of blocks come and go between ranks that share the model.

training.shards carries it out, analysis.scale plays it again. Standard library only.
"""

from dataclasses import dataclass
from itertools import pairwise

STRETCH_BYTES = 64 << 20  # of weights that travel together: each gather costs the host as much
KEPT_BYTES = 1 << 30  # of all blocks together: up to here they stay until backward is through


@dataclass(frozen=True)
class Travel:
    # neighbours that are gathered, and whose gradients are scattered, at once; none has more blocks
    # than another by more than one
    stretches: tuple[range, ...]
    kept: bool  # gathered once in an iteration, for forward and backward


def decide_travel(blocks: int, block_bytes: int) -> Travel:
    """`block_bytes`: of the weights of one, as they are sent."""
    together = -(-STRETCH_BYTES // block_bytes)
    count = max(1, blocks // together)
    ends = [blocks * number // count for number in range(count + 1)]
    stretches = tuple(range(begin, end) for begin, end in pairwise(ends))
    return Travel(stretches, kept=blocks * block_bytes <= KEPT_BYTES)
