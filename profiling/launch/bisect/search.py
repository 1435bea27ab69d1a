"""The search for a commit: what was told of commits so far in, the next one to visit out.

Nothing here runs anything. Commits are numbered along first parents: 0 is GOOD, the last is BAD.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec
import numpy as np

from profiling.analysis.difference.comparison_records import Against
from profiling.analysis.difference.pairs import log_likelihood

SCHEMA_VERSION = 2
Told = Literal["good", "bad", "skipped"]
SURE = 0.99  # probability from which the side of a commit is told


@dataclass(frozen=True)
class Visit:
    """A measurement of one commit against another one."""

    commit: str
    against: str
    told: Told  # good: as fast as `against`, or, where that is GOOD, before the first that differs
    reason: str | None  # why it was skipped; None: it was not
    ratio: float | None  # of step times, `commit` over `against`; None: it did not run
    ci95: tuple[float, float] | None
    processes: int  # of both together
    wall_s: float
    ratios: list[float]  # of step times in each pair of processes; []: it did not run


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


def differs(found: Against, ratios: list[float], effect: float) -> Told | None:
    """Bad if two commits differ by `effect` (0.01: one per cent) or more, beyond the noise; good if
    they are equal within it; None if this is not known yet."""
    if found.verdict in ("slower", "faster"):
        return "bad" if abs(math.log(found.ratio)) >= math.log1p(effect) else None
    return "good" if found.verdict == "equal" else None


@dataclass(frozen=True)
class Search:
    """The visits to commits, the one to BAD among them, and what they tell of the others."""

    last: int  # BAD's number
    effect: float  # that is looked for; 0.01: one per cent
    visited: dict[int, list[float]]  # to the ratios of pairs of processes, commit over GOOD
    failing: set[int] = field(default_factory=set)

    def chances(self) -> np.ndarray:
        """(last + 1,) probability of each commit to be the first one that differs from GOOD.

        All that is known beforehand is that each commit behind GOOD is as likely, and that the
        difference is `effect` or more. How large it is comes from BAD and from all the visits that
        a commit puts behind it.
        """
        bad = float(np.median(np.log(self.visited[self.last])))
        sizes = np.linspace(math.log1p(self.effect), 2 * abs(bad), 36)
        effects = np.array([0.0, *np.copysign(sizes, bad)])
        known = np.zeros((self.last + 1, len(sizes)))
        known[0] = -np.inf  # GOOD does not differ from itself
        for number, ratios in self.visited.items():
            none, *some = log_likelihood(ratios, effects)
            known[1 : number + 1] += some
            known[number + 1 :] += none
        total = np.logaddexp.reduce(known, axis=1)
        chance: np.ndarray = np.exp(total - np.logaddexp.reduce(total))
        return chance

    def side_of(self, number: int, found: Against, ratios: list[float]) -> Told | None:
        """Bad if the first commit that differs is `number`, which has these ratios, or one before
        it; good if it is behind; None if neither is sure yet."""
        also = replace(self, visited={**self.visited, number: ratios})
        return likely_side(also.chances()[: number + 1].sum())

    def next_commit(self) -> int | None:
        """The commit that halves the probability best, of those that do not fail; None if it was
        visited, or if its side is known without a visit."""
        up_to = np.cumsum(self.chances())
        able = [number for number in range(1, self.last) if number not in self.failing]
        best = min(able, key=lambda number: abs(up_to[number] - 0.5), default=None)
        return None if best is None or best in self.visited or likely_side(up_to[best]) else best

    def left(self) -> list[int]:
        """The commit that is more likely than all others, else the fewest that are SURE together.

        Ascending numbers.
        """
        chance = self.chances()
        order = np.argsort(-chance)
        if chance[order[0]] > 0.5:
            return [int(order[0])]
        count = int(np.searchsorted(np.cumsum(chance[order]), SURE)) + 1
        return sorted(int(number) for number in order[:count])


def likely_side(up_to: float) -> Told | None:
    """The side of a commit, from the probability that it or one before it is the first."""
    return "bad" if up_to > SURE else "good" if up_to < 1 - SURE else None
