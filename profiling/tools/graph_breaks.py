"""Where and why torch.compile stopped a graph, out of the lines that Dynamo logs.

Called by profiling.verbs.compiled. Dynamo's own counter misses some kinds of breaks, its log none.
"""

import re
from collections import Counter
from dataclasses import dataclass

PLACE = re.compile(r"Graph break in user code at (?P<file>.+):(?P<line>\d+)\n")
REASON = re.compile(
    r"Reason: (?P<reason>.*?)(?:\n\s*(?:Hint|Developer debug context|User code traceback):|\Z)",
    re.S,
)


@dataclass(frozen=True)
class GraphBreak:
    file: str | None  # None and None where the message names no place
    line: int | None
    reason: str  # on one line
    count: int


def graph_breaks(messages: list[str]) -> list[GraphBreak]:
    """The breaks in the order in which they first came."""
    found = Counter(one_break(message) for message in messages)
    return [GraphBreak(*place, reason, count) for (place, reason), count in found.items()]


def one_break(message: str) -> tuple[tuple[str | None, int | None], str]:
    place, reason = PLACE.search(message), REASON.search(message)
    told = reason["reason"] if reason else message
    return (
        (place["file"], int(place["line"])) if place else (None, None),
        " ".join(told.split()),
    )
