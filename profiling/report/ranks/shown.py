"""Chooses the ranks that are drawn, as bars and as rows of a timeline, where there are too many.

Called by profiling.report.ranks.document and timeline.
"""

from collections.abc import Sequence

from profiling.analysis.ranks.records import RankRow

MOST = 32  # ranks that are drawn


def shown_ranks(rows: Sequence[RankRow]) -> list[int]:
    """Indices in `rows` of the ranks to draw: all, or those that wait least and most."""
    if len(rows) <= MOST:
        return list(range(len(rows)))
    order = sorted(range(len(rows)), key=lambda n: rows[n].communication.lost_wait_ms or 0.0)
    half = MOST // 2
    return sorted([*order[:half], *order[-half:]])


def shown_note(rows: Sequence[RankRow]) -> str:
    """A sentence to append that says which ranks are drawn; empty where all are."""
    if len(rows) <= MOST:
        return ""
    return f" Shown are {MOST} of {len(rows)} ranks: those that wait the least and the most."
