"""Collectives as torch.profiler records them on the host: kind, group, size. Called by chrome_json.

Newer versions of PyTorch repeat these facts at the kernels; they are read here where all versions
have them. Before about 2.2 only the range around the operator has the kind: `nccl:all_to_all`.
"""

import numpy as np

from profiling.timeline.chrome_events import Args, Event
from profiling.timeline.reading import Names
from profiling.timeline.trace import Columns

OPERATOR, RANGE = "record_param_comms", "nccl:"
ELEMENT_BYTES = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2}
ELEMENT_BYTES |= {"Char": 1, "Byte": 1, "Bool": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1}


def collective_operators(events: list[Event]) -> list[Event]:
    """The operators that say which collective they are."""
    return [event for event in events if event.name == OPERATOR and event.args and kind(event.args)]


def collective_ranges(events: list[Event]) -> list[Event]:
    """The ranges that say which collective they are."""
    return [event for event in events if event.name.startswith(RANGE)]


def kind(args: Args) -> str | None:
    return args.collective if isinstance(args.collective, str) else None


def columns(events: list[Event], names: Names) -> Columns:
    args = [event.args or Args() for event in events]
    groups = [group(each) for each in args]
    return {
        "name": names.numbers_of(kind(event.args or Args()) or event.name for event in events),
        "group": np.where([bool(text) for text in groups], names.numbers_of(groups), -1),
        "bytes": np.fromiter(map(message_bytes, args), np.int64),
        "sequence": np.fromiter(map(sequence, args), np.int64),
    }


def group(args: Args) -> str:
    """The process group's name and, as two may share it, its members; '' where none is recorded."""
    return f"{args.group or ''} {args.group_ranks or ''}".strip()


def message_bytes(args: Args) -> int:
    """Bytes of the input or the output on one rank, whichever is larger; -1 if unknown."""
    sizes = [size for size in (args.sent, args.received) if isinstance(size, int) and size >= 0]
    width = ELEMENT_BYTES.get(args.dtype) if isinstance(args.dtype, str) else None
    return max(sizes) * width if sizes and width and max(sizes) < 2**50 else -1


def sequence(args: Args) -> int:
    return args.sequence if isinstance(args.sequence, int) and 0 <= args.sequence < 2**62 else -1
