"""The process groups of ranks whose captures do not name them. Called by matching.

Another rank's capture says who is in its groups. A rank that is, and on whose stream the same kinds
of collectives follow one another in each step, runs that group's on that stream, if the group and
the stream are the only ones for each other.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from profiling.analysis.ranks.collectives import Collectives
from profiling.analysis.ranks.reduce import ReducedRank

MEMBERS = re.compile(r"\[([\d, ]+)\]$")
Steps = dict[int, list[str]]  # the kinds of the collectives of a lane in each iteration


def names_groups(of: Collectives) -> bool:
    return bool(np.any(of.lane != of.stream))


def fill_in_groups(ranks: Sequence[ReducedRank]) -> Sequence[ReducedRank]:
    """The ranks, with groups for those that name none, where the others tell all of theirs."""
    told = [rank for rank in ranks if names_groups(rank.collectives)]
    if len(told) in (0, len(ranks)):
        return ranks
    groups = {lane: steps for rank in told for lane, steps in lanes_of(rank).items()}
    return [
        rank if names_groups(rank.collectives) else infer_groups(rank, groups) or rank
        for rank in ranks
    ]


def infer_groups(rank: ReducedRank, groups: dict[str, Steps]) -> ReducedRank | None:
    """None where a stream's group is not told, or may be one of several."""
    mine = {name: steps for name, steps in groups.items() if rank.rank in members(name)}
    lanes = lanes_of(rank)
    found = {lane: [name for name in mine if same_kinds(mine[name], lanes[lane])] for lane in lanes}
    names = [name for of_lane in found.values() for name in of_lane]
    if any(len(of_lane) != 1 for of_lane in found.values()) or len(set(names)) < len(names):
        return None
    of = rank.collectives
    place = {lane: len(of.names) + number for number, lane in enumerate(found)}
    lane = np.array([place[text] for text in of.texts(of.lane).tolist()], np.int64)
    return replace(rank, collectives=replace(of, names=[*of.names, *names], lane=lane))


def members(group: str) -> set[int]:
    """Whom its name says; PyTorch shortens long lists, which say nobody here."""
    found = MEMBERS.search(group)
    return {int(number) for number in found[1].split(",") if number.strip()} if found else set()


def lanes_of(rank: ReducedRank) -> dict[str, Steps]:
    of = rank.collectives
    found: dict[str, Steps] = {}
    columns = of.texts(of.lane), of.texts(of.kind), rank.iterations[of.step]
    for lane, kind, iteration in zip(*(column.tolist() for column in columns), strict=True):
        found.setdefault(lane, {}).setdefault(iteration, []).append(kind)
    return found


def same_kinds(one: Steps, other: Steps) -> bool:
    """In the steps of both but the first, amid which a capture may have begun."""
    steps = sorted(one.keys() & other.keys())
    return bool(steps) and all(one[step] == other[step] for step in steps[1:] or steps)
