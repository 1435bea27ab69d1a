"""Rules by which ranks share blocks of weights and the optimizer's update.

training.step.shards and training.optimizers.shared_update carry them out, analysis.scale simulates
them. Standard library only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from cli.keys import Value, spell

SHARDED = ("fsdp", "hsdp")  # values of `parallel` with which each rank has a share of the weights
# Parts in which the weights of all blocks are gathered. Nothing hides the first part, so there are
# several; twelve were enough for gpt2_xl.
STRETCHES = 12
# Weights gathered together: each gather costs the host the same time, however small it is, but two
# gathered parts and the gradients of one are in memory at once.
LEAST_STRETCH_BYTES, MOST_STRETCH_BYTES = 64 << 20, 192 << 20
# Weights of all blocks that stay until backward is through, as a share of a GPU's memory: 5 of
# 80 GB, and most of the memory is left for activations. Without GPUs it is a number of bytes.
KEPT_SHARE = 1 / 16
KEPT_BYTES = 1 << 30


@dataclass(frozen=True)
class Travel:
    """Plan for gathering the blocks of a sharded model: which together, and for how long."""

    # neighbouring blocks whose weights are gathered, and whose gradients are scattered, at once;
    # their lengths differ by at most one
    stretches: tuple[range, ...]
    kept: bool  # weights are gathered once in an iteration, for forward and backward

    @property
    def longest(self) -> int:
        """Blocks in the longest stretch."""
        return max(map(len, self.stretches))

    @property
    def blocks_held(self) -> int:
        """Blocks whose weights are in memory at once: all, or those of two stretches."""
        blocks = sum(map(len, self.stretches))
        return blocks if self.kept else min(2 * self.longest, blocks)


def decide_travel(blocks: int, block_bytes: int, gpu_bytes: int | None) -> Travel:
    """Choose which blocks travel together, and whether they stay for backward.

    `block_bytes` is the size of one block's weights as they are sent, `gpu_bytes` the memory of the
    smallest GPU, or None without GPUs.
    """
    all_bytes = blocks * block_bytes
    stretch_bytes = max(LEAST_STRETCH_BYTES, min(all_bytes // STRETCHES, MOST_STRETCH_BYTES))
    together = -(-stretch_bytes // block_bytes)
    count = max(1, blocks // together)
    ends = [blocks * number // count for number in range(count + 1)]
    stretches = tuple(range(begin, end) for begin, end in pairwise(ends))
    kept_bytes = KEPT_BYTES if gpu_bytes is None else KEPT_SHARE * gpu_bytes
    return Travel(stretches, kept=all_bytes <= kept_bytes)


Bucket = TypeVar("Bucket")

STAGES = 3  # of an update
EVEN = 8  # a rank's part is a multiple of so many elements: 16 bytes of the bfloat16 copies
# runs that can share an update: float32 has no copies to send, float16 a scaler that sees no means
NEEDED = {"parallel": "ddp", "kernels": "fused", "optimizer": "adamw", "dtype": "bfloat16"}


def needed_in_16_bits(ranks: int) -> dict[str, Value]:
    """Keys that a run must have to send gradients in 16 bits.

    Compiled code leaves float32 gradients, and so do the sums of several micro-steps.
    """
    return {"compile": False, "gradient_accumulation_steps": ranks}


def misfit(config: object, needed: Mapping[str, Value] = NEEDED) -> str | None:
    """Why a configuration cannot share its update, or None if it can.

    `config` has no `auto` left; `needed` are the keys with the values that it must have.
    """
    for name, value in needed.items():
        actual = getattr(config, name)
        if actual != value:
            return f"needs {name}={spell(value)}, but this run has {name}={spell(actual)}"
    return None


def has_equal_parts(elements: int, ranks: int) -> bool:
    """Whether a bucket of `elements` can be split into equal parts for the ranks."""
    return elements % (ranks * EVEN) == 0


def stages(buckets: Sequence[Bucket]) -> list[Sequence[Bucket]]:
    """Split the buckets into up to STAGES groups: copies of one are sent while the next is
    updated."""
    size = max(1, -(-len(buckets) // STAGES))
    return [buckets[first : first + size] for first in range(0, len(buckets), size)]
