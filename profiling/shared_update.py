"""How ranks share an update: in which runs, of which buckets of gradients, and in what stages.

training.shared_update carries it out, analysis.scale plays it again. Standard library only.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from cli.keys import Value, spell

Bucket = TypeVar("Bucket")

STAGES = 3  # of an update
EVEN = 8  # elements that a rank's part is a multiple of: 16 bytes of the copies
# what it is for: float32 has no copies to send, float16 a scaler that sees no means
NEEDED = {"parallel": "ddp", "kernels": "fused", "optimizer": "adamw", "dtype": "bfloat16"}


def needed_in_16_bits(ranks: int) -> dict[str, Value]:
    """What gradients in 16 bits are for: compiled code leaves float32, and so do the sums of
    several micro-steps."""
    return {"compile": False, "gradient_accumulation_steps": ranks}


def misfit(config: object, needed: Mapping[str, Value] = NEEDED) -> str | None:
    """What it is not for, of a configuration without an `auto`; None: it is for such a run."""
    for name, value in needed.items():
        found = getattr(config, name)
        if found != value:
            return f"is for {name}={spell(value)}, this run has {name}={spell(found)}"
    return None


def has_equal_parts(elements: int, ranks: int) -> bool:
    """Whether a bucket of so many can be shared."""
    return elements % (ranks * EVEN) == 0


def stages(buckets: Sequence[Bucket]) -> list[Sequence[Bucket]]:
    """Whose copies travel while the next ones are updated."""
    size = max(1, -(-len(buckets) // STAGES))
    return [buckets[first : first + size] for first in range(0, len(buckets), size)]
