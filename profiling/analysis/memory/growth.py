"""Tells which allocations of a program grow with its batch or its context, and how.

Two snapshots of one program tell it exactly: an allocation of one is found in the other by its
stack and its turn. One snapshot tells it by divisibility: what forward and backward make grows if
its bytes are a multiple of the batch, or of batch and context. A copy of a weight can be that by
chance, so that many blocks of its size may as well not grow, nor may what is there for more than a
whole step, unless it is an input.
"""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.memory.device_memory import DeviceMemory
from profiling.analysis.memory.kinds import (
    ACTIVATIONS,
    GRADIENTS,
    MOMENTS,
    UNKNOWN,
    WEIGHTS,
    WORKSPACE,
)
from profiling.analysis.memory.replay import BEFORE
from profiling.analysis.memory.stacks import Phase, is_python
from profiling.shared.units import whole_percent
from profiling.timeline.memory_snapshot import Ints

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
NODE = re.compile(r"torch::autograd::generated::\w+")
OF_STEPS = (ACTIVATIONS, WORKSPACE, UNKNOWN)  # kinds that can grow
# share of the peak that two snapshots of one program may not have in common, and with workspaces
MOST_UNLIKE, MOST_UNLIKE_WORKSPACE = 0.02, 0.25
MOST_EXTRA, AHEAD = 16, 4  # allocations that one side may have more of; that are looked at
PADDED = 1.01  # a copy may have so many times the bytes: a vocabulary in a multiple of 64
FRACTIONS = (1, 2, 4)  # a number of scores has so many bytes; a weight has so many of its copy
NEAR = 1.01  # a workspace grows by no more than that times the ratio
ROW_BYTES = 128  # inductor makes long rows a multiple of it, and leaves out the last one's rest


@dataclass(frozen=True, eq=False)
class Growth:
    """Bytes that each allocation asks for by a key's value v: fixed + linear v + square v²."""

    value: int  # of the key in the snapshot
    fixed: Floats
    linear: Floats
    square: Floats
    unsure: Mask  # may as well be in proportion, or not grow
    passing: Mask  # those of them that another algorithm may do without
    assumes: str

    def asked(self, value: int, recorded: Ints) -> Ints:
        """Bytes (3, allocations) asked for at another value: least, expected and most."""
        grown = self.fixed + self.linear * value + self.square * value**2
        expected = np.maximum(np.ceil(grown - 1e-3), 0).astype(np.int64)
        in_proportion = -(-recorded * value // self.value)
        slower = np.where(self.square > 0, in_proportion, recorded)
        bounds = np.stack([slower, in_proportion, expected])
        least = np.where(self.unsure, np.where(self.passing, 0, bounds.min(axis=0)), expected)
        most = np.where(self.unsure, bounds.max(axis=0), expected)
        return np.stack([least, expected, most])


def growth_of_pair(
    memory: DeviceMemory, value: int, other: DeviceMemory, other_value: int, key: str
) -> Growth:
    """Growth between snapshots of one program at two values. Raises ValueError if it is not one."""
    rows, others = rows_in_common(memory, other, other_value / value)
    for side, found in ((memory, rows), (other, others)):
        whole, unlike = share_of_peak_without(side, found)
        if unlike > MOST_UNLIKE or (unlike := whole) > MOST_UNLIKE_WORKSPACE:
            raise ValueError(
                f"{whole_percent(unlike)} of the peak of {side.snapshot.file.name} is not in the "
                f"other snapshot; give two of one program, of as many steps, with another {key} "
                "alone"
            )
    asked = memory.replayed.allocations.asked
    one = asked[rows].astype(np.float64)
    two = other.replayed.allocations.asked[others].astype(np.float64)
    slope = (two - one) / (other_value - value)
    # those of scores: in two sizes, exactly as the square
    squares = (key == "context") & (one != two) & (one * other_value**2 == two * value**2)
    fixed, linear, square = asked.astype(np.float64), np.zeros(len(asked)), np.zeros(len(asked))
    fixed[rows] = np.where(squares, 0, one - slope * value)
    linear[rows] = np.where(squares, 0, slope)
    square[rows] = np.where(squares, one / value**2, 0)
    unsure, workspace = may_grow(memory), memory.kind == WORKSPACE
    most = (other_value / value) ** (2 if key == "context" else 1)
    unsure[rows] &= workspace[rows] & neither_stay_nor_grow(one, two, most)
    fixed[unsure], linear[unsure], square[unsure] = asked[unsure], 0, 0
    passing = unsure & workspace
    grows = unsure & ~passing
    fixed[grows], linear[grows] = 0, asked[grows] / value
    words = f"each allocation grows in a line through its sizes at {key} {value} and {other_value}"
    if passing[memory.replayed.allocations.live_at(memory.replayed.peak)].any():
        words += ", but for workspaces of other algorithms"
    return Growth(value, fixed, linear, square, unsure, passing, words)


def growth_of_one(
    memory: DeviceMemory, value: int, unit: int, key: str, heads: int | None = None
) -> Growth:
    """Growth by one snapshot: of what is a multiple of `unit` bytes.

    With `heads`, blocks with a number for each score grow as the square of the value.
    """
    asked = memory.replayed.allocations.asked
    rest = -asked % (ROW_BYTES * unit)
    rest[(rest >= ROW_BYTES) | (asked % unit == 0)] = 0
    whole = asked + rest  # as if the last row were padded, too
    grows = may_grow(memory) & (whole % unit == 0)
    stays = grows & lives_for_a_step(memory)
    grows &= ~stays | (memory.kind != WORKSPACE)  # such as cuBLAS's
    stays &= grows
    unsure = stays | like_weights(memory, grows)
    linear = np.where(grows & ~unsure, whole / value, 0.0)
    square = np.zeros(len(asked))
    if heads:
        scores = unit * value * heads
        squares = (linear > 0) & np.isin(asked, [scores * size for size in FRACTIONS])
        square[squares], linear[squares] = asked[squares] / value**2, 0.0
        unsure |= squares
    fixed = np.where(linear > 0, -rest, np.where(square > 0, 0.0, asked))
    words = f"what forward and backward make in multiples of {unit} bytes grows with the {key}"
    without = ["what may be copies of weights"] * bool((unsure & ~stays & (square == 0)).any())
    without += ["what is there for a whole step"] * bool(stays.any())
    if without:
        words += f", but for {' and '.join(without)}"
    return Growth(value, fixed, linear, square, unsure, np.zeros_like(unsure), words)


def growth_of_layers(
    memory: DeviceMemory, kept: Ints, layers: int, block: int, whole: int
) -> Growth:
    """Growth with the number of layers: of the allocations that blocks keep, and of the state.

    `block` of `whole` bytes of the weights are one block's.
    """
    asked = memory.replayed.allocations.asked.astype(np.float64)
    state = np.isin(memory.kind, (WEIGHTS, GRADIENTS, MOMENTS))
    linear = np.where(state, asked * block / max(whole, 1), 0.0)
    linear[kept] = asked[kept] / layers
    none, square = np.zeros(len(asked), np.bool_), np.zeros(len(asked))
    words = f"{layers} blocks with {block:,} bytes of weights each, and what they keep for backward"
    return Growth(layers, asked - layers * linear, linear, square, none, none, words)


def may_grow(memory: DeviceMemory) -> Mask:
    """Mask of what is made in the history outside the optimizer, and is no state."""
    found = memory.replayed.allocations
    phase = np.append(memory.phases.phase, Phase.OTHER)[memory.phases.at(found.born)]
    made = (found.born != BEFORE) & (phase != Phase.OPTIMIZER) & (found.asked > 0)
    mask: Mask = made & np.isin(memory.kind, OF_STEPS)
    return mask


def like_weights(memory: DeviceMemory, grows: Mask) -> Mask:
    """Mask of what grows, or belongs to a weight as its size says.

    In forward that is a weight in 16 bits, or padded, in backward also what becomes its gradient,
    each perhaps padded. In one part of a step there are no more of them than weights of that size.
    """
    found, mask = memory.replayed.allocations, np.zeros(len(grows), np.bool_)
    part = memory.phases.at(found.born)
    phase = np.append(memory.phases.phase, Phase.OTHER)[part]
    weights = found.asked[(memory.kind == WEIGHTS) & found.live_at(memory.replayed.peak)]
    for which, whole in ((Phase.FORWARD, weights + 1), (Phase.BACKWARD, weights)):
        sizes = np.concatenate([whole, weights // 2])
        sizes, counts = np.unique(sizes, return_counts=True)
        if not len(sizes):
            continue
        near = np.searchsorted(sizes, found.asked, side="right") - 1
        is_near = (near >= 0) & (found.asked <= PADDED * sizes[near])
        rows = np.flatnonzero(grows & (phase == which) & is_near)
        alike = np.stack([part[rows], near[rows]])
        turn = turns(np.unique(alike, axis=1, return_inverse=True)[1].reshape(-1))
        mask[rows[turn < counts[near[rows]]]] = True
    return mask


def lives_for_a_step(memory: DeviceMemory) -> Mask:
    """Mask of what is there for more than a whole step: no activation, though perhaps an input."""
    found, ends = memory.replayed.allocations, memory.ends.events
    mask: Mask = np.searchsorted(ends, found.died) - np.searchsorted(ends, found.born) > 1
    return mask


def turns(group: Ints) -> Ints:
    """The number of each element among those of its group, from 0."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    lengths = np.diff(np.append(first, len(ordered)))
    turn = np.zeros(len(group), np.int64)
    turn[order] = np.arange(len(ordered)) - np.repeat(first, lengths)
    return turn


def rows_in_common(memory: DeviceMemory, other: DeviceMemory, ratio: float) -> tuple[Ints, Ints]:
    """The allocations of both that are the same one, found by their turn.

    That is the turn in a part of a step where both make as many there, workspaces apart, else among
    those with a stack of these functions. Where these differ in number, too, such as by a workspace
    that is made once, or in order, as compiled code does, `ratio` of the values says which belong
    together.
    """
    numbers: dict[object, int] = {}
    orders, parts, functions = [], [], []
    for side in (memory, other):
        found = side.replayed.allocations
        orders.append(np.lexsort((found.asked, found.born)))
        parts.append(2 * part_of_step(side) + (side.kind == WORKSPACE))
        of_stack = [numbers.setdefault(each, len(numbers)) for each in functions_of_stacks(side)]
        functions.append(np.array(of_stack)[found.stack])
    names, counts = np.unique(np.concatenate(parts), return_counts=True)
    twice = 2 * np.bincount(np.searchsorted(names, parts[0]), minlength=len(names))
    for part, function in zip(parts, functions, strict=True):
        function[np.isin(part, names[twice == counts])] = -1
    keys = [np.stack(pair) for pair in zip(parts, functions, strict=True)]
    group = np.unique(np.concatenate(keys, axis=1), axis=1, return_inverse=True)[1].reshape(-1)
    most = int(group.max(initial=0)) + 1
    rows = []
    for which, order in zip(np.split(group, [len(parts[0])]), orders, strict=True):
        ends = np.cumsum(np.bincount(which, minlength=most))
        rows.append(np.split(order[np.argsort(which[order], kind="stable")], ends[:-1]))
    asked, theirs = memory.replayed.allocations.asked, other.replayed.allocations.asked
    pairs = [aligned(one, two, asked, theirs, ratio) for one, two in zip(*rows, strict=True)]
    return np.concatenate([one for one, _ in pairs]), np.concatenate([two for _, two in pairs])


def neither_stay_nor_grow(one: Ints | Floats, two: Ints | Floats, ratio: float) -> Mask:
    """Mask of sizes of two snapshots that neither stay nor grow by up to the ratio."""
    least, most = sorted((1.0, ratio))
    mask: Mask = (two < one * least / NEAR) | (two > one * most * NEAR)
    return mask


def aligned(one: Ints, two: Ints, asked: Ints, theirs: Ints, ratio: float) -> tuple[Ints, Ints]:
    """The elements of both that belong together, in order, but that one side may have a few more.

    An element is extra if without it the next ones have sizes that stay, or grow by the ratio.
    Where there are many, or the order is another, the elements with such sizes belong together.
    """
    if len(one) > len(two):
        two, one = aligned(two, one, theirs, asked, 1 / ratio)
        return one, two
    extra = len(two) - len(one)
    in_order = extra > 0 or not neither_stay_nor_grow(asked[one], theirs[two], ratio**2).any()
    if extra > MOST_EXTRA or not in_order:
        return alike_in_size(one, two, asked, theirs, ratio)
    if not extra:
        return one, two

    def fit(first: int, second: int) -> int:
        near = zip(one[first : first + AHEAD], two[second : second + AHEAD], strict=False)
        return sum(int(theirs[b]) in likely_sizes(int(asked[a]), ratio) for a, b in near)

    kept, skipped = [], 0
    for place in range(len(one)):
        while skipped < extra and fit(place, place + skipped + 1) > fit(place, place + skipped):
            skipped += 1
        kept.append(place + skipped)
    return one, two[kept]


def alike_in_size(
    one: Ints, two: Ints, asked: Ints, theirs: Ints, ratio: float
) -> tuple[Ints, Ints]:
    """The elements of both whose sizes grow by the ratio or its square, or else stay.

    The largest come first, as what stays may have the size to which a smaller one grows. What is
    left is in order.
    """
    if ratio < 1:
        two, one = alike_in_size(two, one, theirs, asked, 1 / ratio)
        return one, two
    left: dict[float, list[int]] = {}
    for element in two[::-1].tolist():
        left.setdefault(int(theirs[element]), []).append(element)
    pairs = []
    for element in one[np.argsort(-asked[one], kind="stable")].tolist():
        sizes = likely_sizes(int(asked[element]), ratio)
        if found := next((left[size] for size in sizes if left.get(size)), None):
            pairs.append((element, found.pop()))
    ones, twos = np.array(pairs, np.int64).reshape(-1, 2).T
    rest, others = one[~np.isin(one, ones)], two[~np.isin(two, twos)]
    if len(rest) == len(others):
        ones, twos = np.append(ones, rest), np.append(twos, others)
    return ones, twos


def likely_sizes(size: int, ratio: float) -> tuple[float, float, float]:
    """Bytes of an allocation that grows by the ratio, by its square, or stays.

    They are rounded to a thousandth, because few ratios are exact.
    """
    return round(size * ratio, 3), round(size * ratio**2, 3), size


def part_of_step(memory: DeviceMemory) -> Ints:
    """Number of the part of a step in which each allocation is made.

    It is counted from the first update, since a history may begin anywhere.
    """
    found, phases = memory.replayed.allocations, memory.phases
    updates = np.flatnonzero(phases.phase == Phase.OPTIMIZER)
    first = int(updates[0]) if len(updates) else 0
    before = -len(phases.first) - 2
    return np.where(found.born == BEFORE, before, phases.at(found.born) - first)


def functions_of_stacks(memory: DeviceMemory) -> list[object]:
    """The functions of Python and the nodes of autograd in each stack; behind them those of none.

    Lines move when a script is edited, and below is other C++ for other sizes.
    """
    telling = []
    for frame in memory.snapshot.frames:
        node = NODE.search(frame[2])
        telling.append(frame[2] if is_python(frame) else node and node[0])
    stacks = memory.snapshot.stacks
    return [*(tuple(filter(None, (telling[n] for n in stack))) for stack in stacks), None]


def share_of_peak_without(memory: DeviceMemory, rows: Ints) -> tuple[float, float]:
    """Share of the bytes at the peak that are not of these allocations: all, and no workspaces."""
    found = memory.replayed.allocations
    live = found.live_at(memory.replayed.peak)
    without = live.copy()
    without[rows] = False
    no_workspace = without & (memory.kind != WORKSPACE)
    whole = max(int(found.size[live].sum()), 1)
    return found.size[without].sum() / whole, found.size[no_workspace].sum() / whole
