"""Which ranks have bars, and rows of a timeline, where a page has no room for all.

Called by profiling.report.ranks.document and timeline.
"""

from collections.abc import Sequence

from profiling.analysis.ranks.records import RankRow

MOST = 32


def shown_ranks(rows: Sequence[RankRow]) -> list[int]:
    """The places in `rows` of all, or of those that wait least and most."""
    if len(rows) <= MOST:
        return list(range(len(rows)))
    order = sorted(range(len(rows)), key=lambda n: rows[n].communication.lost_wait_ms or 0.0)
    half = MOST // 2
    return sorted([*order[:half], *order[-half:]])


def said_of_shown(rows: Sequence[RankRow]) -> str:
    """Behind another sentence; empty where all are shown."""
    if len(rows) <= MOST:
        return ""
    return f" Drawn are {MOST} of {len(rows)} ranks, those that wait least and most."
