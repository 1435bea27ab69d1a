"""Inference of process groups for ranks whose captures do not name them. Called by matching.

The captures of other ranks say which ranks are members of their groups. A stream of an unnamed rank
is taken to run the collectives of a group if the rank is a member, if in each step the same kinds
of collectives follow one another on the stream as in the group, and if the stream fits no other
group and the group no other stream.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from profiling.analysis.ranks.collectives import Collectives
from profiling.analysis.ranks.reduce import ReducedRank

MEMBERS = re.compile(r"\[([\d, ]+)\]$")
Steps = dict[int, list[str]]  # kinds of the collectives of one lane by iteration, in their order


def names_groups(of: Collectives) -> bool:
    return bool(np.any(of.lane != of.stream))


def fill_in_groups(ranks: Sequence[ReducedRank]) -> Sequence[ReducedRank]:
    """Infer groups for the ranks that name none from those of the others, where possible.

    A rank stays as it is where the group of one of its streams cannot be determined.
    """
    named = [rank for rank in ranks if names_groups(rank.collectives)]
    if len(named) in (0, len(ranks)):
        return ranks
    groups = {lane: steps for rank in named for lane, steps in lanes_of(rank).items()}
    return [
        rank if names_groups(rank.collectives) else infer_groups(rank, groups) or rank
        for rank in ranks
    ]


def infer_groups(rank: ReducedRank, groups: dict[str, Steps]) -> ReducedRank | None:
    """The rank with groups as lanes; None where a stream fits no group, or several."""
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
    """Ranks in the group's name; none where PyTorch has shortened a long list of them."""
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
    """Whether both lanes have the same kinds in all steps that both have.

    The first step does not count if there are others: a capture may have begun in its middle.
    """
    steps = sorted(one.keys() & other.keys())
    return bool(steps) and all(one[step] == other[step] for step in steps[1:] or steps)
