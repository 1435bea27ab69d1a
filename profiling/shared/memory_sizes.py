"""Bytes that a training holds on a GPU: one arithmetic for the check before a run, for scale, and
for what fits by a memory snapshot.

Called by training.machine.memory_fit, profiling.analysis.scale and profiling.analysis.memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from profiling.shared.model_description import Matrix

FLOAT32_BYTES = 4
ROOM = 0.95  # share of a GPU's memory for tensors: CUDA has some, and gaps between blocks
StateKind = Literal["weights", "gradients", "moments"]
STATE: tuple[StateKind, ...] = ("weights", "gradients", "moments")


@dataclass(frozen=True)
class State:
    """Bytes of a model and what its optimizer needs."""

    weights: int
    gradients: int
    moments: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.moments

    def shared(self, ranks: int, kinds: Sequence[StateKind] = STATE) -> "State":
        """Share of each of `ranks` that share these kinds, and have the others whole."""
        return replace(self, **{kind: getattr(self, kind) // ranks for kind in kinds})


def state_of(parameters: int, moments: int) -> State:
    """State of `parameters` numbers with gradients, and of `moments` numbers, in float32."""
    held = FLOAT32_BYTES * parameters
    return State(held, held, FLOAT32_BYTES * moments)


def gathered_bytes(root: int, block: int, travel_bytes: int, blocks: int, stretch: int) -> int:
    """Bytes that fsdp holds for a moment beside a rank's share.

    That is the `root` parameters outside of blocks with their gradients, `blocks` blocks of `block`
    parameters as they travel, and the gradients of a `stretch` of blocks.
    """
    return 2 * FLOAT32_BYTES * root + (travel_bytes * blocks + FLOAT32_BYTES * stretch) * block


def kept_for_backward(
    products: Sequence[Matrix], width: int, tokens: int, number_bytes: int, recomputed: bool
) -> int:
    """Least bytes that forward of a block keeps: its input if it is computed again, else more.

    Backward needs what a block's products make but for the last one, which is added to the residual
    stream. The output of attention's last product is added too, but stands for its input.
    """
    kept = width if recomputed else sum(outputs for outputs, _ in products) - width
    return tokens * kept * number_bytes


def fits(least: int, most: int | None, memory_bytes: int | None) -> bool | None:
    """Whether bytes between `least` and `most` fit; None: not known. `most` is None likewise."""
    if memory_bytes is None:
        return None
    if least > ROOM * memory_bytes:
        return False
    return True if most is not None and most <= ROOM * memory_bytes else None
