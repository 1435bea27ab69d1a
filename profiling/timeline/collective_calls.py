"""What torch.profiler tells of collectives on the host: kind, group, size. Called by chrome_json.

Newer PyTorch repeats it at the kernels; here it is read where all versions have it. Before 2.2 or
so the range around the operator alone says the kind: `nccl:all_to_all`.
"""

import numpy as np

from profiling.timeline.chrome_events import Args, Event
from profiling.timeline.reading import Names
from profiling.timeline.trace import Columns

OPERATOR, RANGE = "record_param_comms", "nccl:"
ELEMENT_BYTES = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2}
ELEMENT_BYTES |= {"Char": 1, "Byte": 1, "Bool": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1}


def told_of(events: list[Event]) -> list[Event]:
    """Those of the operators that say which collective they are."""
    return [each for each in events if each.name == OPERATOR and each.args and kind(each.args)]


def ranges_of(events: list[Event]) -> list[Event]:
    """Those of the ranges that do."""
    return [each for each in events if each.name.startswith(RANGE)]


def kind(args: Args) -> str | None:
    return args.collective if isinstance(args.collective, str) else None


def columns(events: list[Event], names: Names) -> Columns:
    found = [each.args or Args() for each in events]
    groups = [group(args) for args in found]
    return {
        "name": names.numbered(kind(each.args or Args()) or each.name for each in events),
        "group": np.where([bool(text) for text in groups], names.numbered(groups), -1),
        "bytes": np.fromiter(map(message_bytes, found), np.int64),
        "sequence": np.fromiter(map(sequence, found), np.int64),
    }


def group(args: Args) -> str:
    """The process group, and who is in it where that is told: two may bear one name. Or ''."""
    return f"{args.group or ''} {args.group_ranks or ''}".strip()


def message_bytes(args: Args) -> int:
    """Of the larger of what goes in and what comes out on one rank; -1: not told."""
    sizes = [size for size in (args.sent, args.received) if isinstance(size, int) and size >= 0]
    width = ELEMENT_BYTES.get(args.dtype) if isinstance(args.dtype, str) else None
    return max(sizes) * width if sizes and width and max(sizes) < 2**50 else -1


def sequence(args: Args) -> int:
    return args.sequence if isinstance(args.sequence, int) and 0 <= args.sequence < 2**62 else -1
