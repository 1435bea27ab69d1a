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
    named = [rank for rank in ranks if names_groups(rank.collectives)]
    if len(named) in (0, len(ranks)):
        return ranks
    groups = {lane: steps for rank in named for lane, steps in lanes_of(rank).items()}
    return [
        rank if names_groups(rank.collectives) else infer_groups(rank, groups) or rank
        for rank in ranks
    ]


def infer_groups(rank: ReducedRank, groups: dict[str, Steps]) -> ReducedRank | None:
    """None where a stream's group is not told, or may be one of several."""
    mine = {name: steps for name, steps in groups.items() if rank.rank in members(name)}
    lanes = lanes_of(rank)
    candidates = {
        lane: [name for name in mine if same_kinds(mine[name], lanes[lane])] for lane in lanes
    }
    names = [name for of_lane in candidates.values() for name in of_lane]
    if any(len(of_lane) != 1 for of_lane in candidates.values()) or len(set(names)) < len(names):
        return None
    collectives = rank.collectives
    place = {lane: len(collectives.names) + number for number, lane in enumerate(candidates)}
    lane = np.array(
        [place[text] for text in collectives.texts(collectives.lane).tolist()], np.int64
    )
    return replace(
        rank, collectives=replace(collectives, names=[*collectives.names, *names], lane=lane)
    )


def members(group: str) -> set[int]:
    """Whom its name says; PyTorch shortens long lists, which say nobody here."""
    match = MEMBERS.search(group)
    return {int(number) for number in match[1].split(",") if number.strip()} if match else set()


def lanes_of(rank: ReducedRank) -> dict[str, Steps]:
    collectives = rank.collectives
    lanes: dict[str, Steps] = {}
    columns = (
        collectives.texts(collectives.lane),
        collectives.texts(collectives.kind),
        rank.iterations[collectives.step],
    )
    for lane, kind, iteration in zip(*(column.tolist() for column in columns), strict=True):
        lanes.setdefault(lane, {}).setdefault(iteration, []).append(kind)
    return lanes


def same_kinds(one: Steps, other: Steps) -> bool:
    """In the steps of both but the first, amid which a capture may have begun."""
    steps = sorted(one.keys() & other.keys())
    return bool(steps) and all(one[step] == other[step] for step in steps[1:] or steps)
