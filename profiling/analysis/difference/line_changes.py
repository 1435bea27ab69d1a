"""Compare the lines of the program on two sides, matched by function. Called by comparison.

A change of a file moves the lines behind it, but seldom renames their functions.
"""

import msgspec

from profiling.analysis.difference.compared import Compared
from profiling.analysis.difference.comparison_records import LineChange
from profiling.analysis.difference.kernel_changes import CHANGED_SHARE, LEAST_SHARE
from profiling.analysis.sum_records import Lines, LineSum


def line_changes(baseline: Compared, candidate: Compared) -> list[LineChange] | msgspec.UnsetType:
    """Functions whose kernels changed, the largest change first; unset unless both sides have
    lines of the same kind."""
    one, other = baseline.captured.lines, candidate.captured.lines
    if one is None or other is None or one.of != other.of:
        return msgspec.UNSET
    was, now = by_function(one), by_function(other)
    least_ms = LEAST_SHARE * baseline.mean_ms
    changes = [change(name, was.get(name, []), now.get(name, [])) for name in was | now]
    changed = [
        row for row in changes if abs(row.delta_ms) > max(least_ms, CHANGED_SHARE * row.baseline_ms)
    ]
    return sorted(changed, key=lambda row: -abs(row.delta_ms))


def by_function(lines: Lines) -> dict[str, list[LineSum]]:
    functions: dict[str, list[LineSum]] = {}
    for row in lines.lines:
        name = f"{row.place.rpartition(':')[0]}: {row.function}"
        functions.setdefault(name, []).append(row)
    return functions


def change(name: str, was: list[LineSum], now: list[LineSum]) -> LineChange:
    one_ms, other_ms = sum(row.ms for row in was), sum(row.ms for row in now)
    places = [row.place for row in was], [row.place for row in now]
    return LineChange(name, *places, one_ms, other_ms, other_ms - one_ms)
