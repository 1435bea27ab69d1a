"""Inputs of PyTorch's operators, as torch.profiler(record_shapes=True) records them.

They are kept for matrix products, convolutions and attention alone, whose work follows from them
(profiling.analysis.gpu_work.operator_costs). Called by profiling.timeline.chrome_json.
"""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from itertools import count

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
    """Numbers the distinct (operator, inputs) of a trace while it is read, by first occurrence."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, bytes, bytes, bytes], int] = defaultdict(count().__next__)

    def numbers_of(self, events: Iterable[Event]) -> np.ndarray:
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


def items(text: bytes) -> list[object]:
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = msgspec.json.decode(text)
        return value if isinstance(value, list) else []
    return []


def sizes(dims: object) -> list[int]:
    """The sizes of a tensor's dimensions; [] for anything that is no tensor."""
    if not isinstance(dims, list) or len(dims) > MOST_DIMENSIONS:
        return []
    return dims if all(type(size) is int and size >= 0 for size in dims) else []
