"""The search for a commit: what was told of commits so far in, the next one to visit out.

Nothing here runs anything. Commits are numbered along first parents: 0 is GOOD, the last is BAD.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from profiling.analysis.difference.comparison_records import Against

SCHEMA_VERSION = 1
Told = Literal["good", "bad", "skipped"]


@dataclass(frozen=True)
class Visit:
    """A measurement of one commit against another one."""

    commit: str
    against: str
    told: Told  # good: as fast as `against`, or nearer to GOOD than to BAD
    reason: str | None  # why it was skipped; None: it was not
    ratio: float | None  # of step times, `commit` over `against`; None: it did not run
    ci95: tuple[float, float] | None
    processes: int  # of both together
    wall_s: float


class Bisection(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record in bisect.json. Visits are in their order: BAD against GOOD, commits against
    GOOD, the named commit against its parent."""

    schema_version: int
    good: str
    bad: str
    command: str
    steps: int | None
    warm_up: int
    min_effect_percent: float
    visits: list[Visit] = []
    candidates: list[str] = []  # commits that are left at the end; empty: not at its end
    named: str | None = None  # the one that is left, if it differs from its parent; None: no name
    sentence: str | None = None


def differs(found: Against, effect: float) -> Told | None:
    """Bad if two commits differ by `effect` (0.01: one per cent) or more, beyond the noise; good if
    they are equal within it; None if this is not known yet.

    The whole interval has to lie beyond half of the difference: with a worse estimate of it, its
    middle would divide the commits at a wrong place.
    """
    if found.verdict in ("slower", "faster"):
        whole, nearest = abs(math.log(found.ratio)), min(abs(math.log(x)) for x in found.ci95)
        return "bad" if whole >= math.log1p(effect) and nearest > whole / 2 else None
    return "good" if found.verdict == "equal" else None


def side_of(found: Against, whole: float) -> Told | None:
    """Bad if the whole interval lies nearer to BAD than to GOOD, good if the other way round.

    `whole` is the ratio of BAD to GOOD; what divides them is half of that, in logarithms.
    """
    low, high = found.ci95
    middle = math.sqrt(whole)
    if whole < 1:
        low, high, middle = 1 / high, 1 / low, 1 / middle
    return "bad" if low > middle else "good" if high < middle else None


def left(told: Mapping[int, Told], last: int) -> tuple[int, int]:
    """(the last commit known as good, the first known as bad behind it)."""
    bad = min((n for n, each in told.items() if each == "bad"), default=last)
    return max((n for n, each in told.items() if each == "good" and n < bad), default=0), bad


def next_commit(told: Mapping[int, Told], last: int) -> int | None:
    """The commit that halves what is left, of those that were not visited; None at the end."""
    good, bad = left(told, last)
    open_ones = [number for number in range(good + 1, bad) if number not in told]
    return min(open_ones, key=lambda number: abs(2 * number - good - bad), default=None)
