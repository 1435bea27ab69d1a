"""What PyTorch's operators were called with, as torch.profiler(record_shapes=True) writes it.

Kept of matrix products, convolutions and attention alone, whose work follows from it
(profiling.analysis.kernels.operator_costs). Called by profiling.timeline.chrome_json.
"""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec
import numpy as np

from profiling.timeline.chrome_events import Event
from profiling.timeline.trace import Inputs

ATTENTION = ("flash_attention", "efficient_attention", "cudnn_attention")
SHAPED = {f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul")}
SHAPED |= {"aten::convolution", "aten::convolution_backward", "aten::scaled_dot_product_attention"}
SHAPED |= {f"aten::_scaled_dot_product_{n}{end}" for n in ATTENTION for end in ("", "_backward")}
MOST_DIMENSIONS = 64  # PyTorch's own limit


class InputsSeen:
    """Gives all calls of one operator with the same inputs one number, while a trace is read."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, bytes, bytes, bytes], int] = defaultdict(count().__next__)

    def numbered(self, events: Iterable[Event]) -> np.ndarray:
        keys = (
            (event.name, bytes(args.dims), bytes(args.types), bytes(args.values))
            for event in events
            if (args := event.args)
        )
        return np.fromiter(map(self.numbers.__getitem__, keys), np.int32)

    def records(self) -> list[Inputs]:
        return [
            Inputs(
                name,
                [sizes(each) for each in items(dims)],
                [str(each) for each in items(types)],
                [str(each) for each in items(values)],
            )
            for name, dims, types, values in self.numbers
        ]


def items(text: bytes) -> list[Any]:
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = msgspec.json.decode(text)
        return found if isinstance(found, list) else []
    return []


def sizes(dims: object) -> list[int]:
    """Of a tensor; [] of anything else."""
    if not isinstance(dims, list) or len(dims) > MOST_DIMENSIONS:
        return []
    return dims if all(type(size) is int and size >= 0 for size in dims) else []
