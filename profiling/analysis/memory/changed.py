"""Plays a memory history again with allocations as a change would have them: larger or smaller,
shared with other ranks, or dropped by forward and computed again in backward.

What is predicted is the peak of allocated bytes. Each size is known as least, expected and most;
the allocator's own part of that is up to 1 MiB of a free block that is too small to split off.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiling.analysis.memory.device_memory import DeviceMemory
from profiling.analysis.memory.growth import Growth, Mask, turns
from profiling.analysis.memory.kinds import ACTIVATIONS, MOMENTS, WORKSPACE
from profiling.analysis.memory.replay import LARGE_REST, SMALL, rounded
from profiling.analysis.memory.stacks import OF_CHECKPOINT, Phase
from profiling.timeline.memory_snapshot import Int32s, Ints

LEAST, EXPECTED, MOST = range(3)
LEAST_STACKS = 3  # from which blocks keep something
ALIKE = 1.1  # the block that keeps most has at most so many times the bytes of the least
LEAST_KEPT = 0.1  # of what forward keeps for backward; compiled code has no stacks of blocks


@dataclass(frozen=True)
class Bounds:
    """Bytes, and in which part of a step the expected ones are reached."""

    least: int
    expected: int
    most: int
    phase: str | None = None


@dataclass(frozen=True, eq=False)
class Changed:
    """Allocations as they would be; a row of the recorded ones may be there twice."""

    memory: DeviceMemory
    row: Ints  # of the recorded allocation
    born: Ints
    died: Ints
    asked: Ints  # (3, rows): least, expected, most
    beside: Bounds  # bytes that are there besides

    @property
    def peak(self) -> Bounds:
        found, settings = self.memory.replayed.allocations, self.memory.snapshot.settings
        count = self.memory.count
        recorded = found.asked[self.row]
        rest = found.size[self.row] - rounded(recorded, settings)
        can_rest = not self.memory.history.segments.expandable.any()
        peaks, event = [], 0
        beside = (self.beside.least, self.beside.expected, self.beside.most)
        for which, (asked, more) in enumerate(zip(self.asked, beside, strict=True)):
            block = rounded(asked, settings)
            other = asked != recorded
            large = LARGE_REST * (can_rest & (block > SMALL))
            if which == LEAST:
                block += np.where(other | (large > 0), 0, rest)
            else:
                changed = large if which == MOST else np.minimum(rest, large)
                block += np.where(other, changed, rest)
            block[other & (asked == 0)] = 0
            change = np.bincount(self.born + 1, block, count + 1)
            gone = self.died < count
            change -= np.bincount(self.died[gone] + 1, block[gone], count + 1)
            allocated = np.cumsum(change)
            highest = int(allocated.argmax())
            peaks.append(int(allocated[highest]) + more)
            event = highest - 1 if which == EXPECTED else event
        least, expected, most = peaks
        return Bounds(least, expected, most, self.memory.phase_at(event))


def as_recorded(memory: DeviceMemory) -> Changed:
    found = memory.replayed.allocations
    rows = np.arange(len(found.asked))
    asked = np.stack([found.asked] * 3)
    born, died = found.born.astype(np.int64), found.died.astype(np.int64)
    return Changed(memory, rows, born, died, asked, Bounds(0, 0, 0))


def grown(changed: Changed, growth: Growth, value: int) -> Changed:
    """The allocations with another value of a key, in proportion to what was changed before."""
    recorded = changed.memory.replayed.allocations.asked
    asked = growth.asked(value, recorded)[:, changed.row]
    was = recorded[changed.row]
    return replace(
        changed,
        asked=np.where(changed.asked == was, asked, changed.asked * asked // np.maximum(was, 1)),
    )


def with_parts(changed: Changed, rows: Mask, parts: int) -> Changed:
    """The allocations, of which these recorded ones have one of so many parts."""
    own = rows[changed.row]
    return replace(changed, asked=np.where(own, -(-changed.asked // parts), changed.asked))


def moments_halved(changed: Changed) -> Changed:
    return with_parts(changed, changed.memory.kind == MOMENTS, 2)


def shared(changed: Changed, kinds: Sequence[int], ranks: int, beside: Bounds) -> Changed:
    """The allocations of one of `ranks` that share these kinds, and what updates make of them."""
    memory = changed.memory
    born_in = memory.phases.at(memory.replayed.allocations.born)
    phase = np.append(memory.phases.phase, Phase.OTHER)[born_in]
    rows = np.isin(memory.kind, kinds) | ((memory.kind == WORKSPACE) & (phase == Phase.OPTIMIZER))
    return replace(with_parts(changed, rows, ranks), beside=beside)


@dataclass(frozen=True, eq=False)
class Repeated:
    """Blocks that forward calls one after the other, and what each keeps for backward."""

    count: int
    row: Ints  # allocations that they keep
    forward: Ints  # for each: the forward that made it
    passed_on: Mask  # which are freed before the block's backward: the next one's input
    forward_end: Ints  # for each: the event with which its block's forward ends
    backward_begin: Ints  # likewise, the one with which its backward begins

    @property
    def forwards(self) -> int:
        return len(np.unique(self.forward))

    def are_alike(self, asked: Ints) -> bool:
        """Whether the blocks of each forward keep as much, by what all allocations ask for."""
        _, first, block = np.unique(self.forward_end, return_index=True, return_inverse=True)
        kept, forward = np.bincount(block, asked[self.row]), self.forward[first]
        by_forward = [kept[forward == each] for each in np.unique(forward)]
        return all(sizes.max() <= ALIKE * sizes.min() for sizes in by_forward)


def repeated_blocks(memory: DeviceMemory, count: int | None = None) -> Repeated:
    """The blocks: what is made again and again from one stack. `count` is their number, if known.

    Raises ValueError with a sentence if there are none, or if they are computed again already.
    """
    if any(OF_CHECKPOINT.search(file) for file, _, _ in memory.snapshot.frames):
        raise ValueError("the program computes activations again already")
    found, phases = memory.replayed.allocations, memory.phases
    made, gone = phases.at(found.born), phases.at(found.died)
    padded = np.append(phases.phase, Phase.OTHER)
    kept = (memory.kind == ACTIVATIONS) & (padded[made] == Phase.FORWARD)
    kept &= (found.died < memory.count) & (padded[gone] == Phase.BACKWARD) & (found.stack >= 0)
    rows = np.flatnonzero(kept)
    rows = rows[np.argsort(found.born[rows], kind="stable")]
    group = groups(made[rows], found.stack[rows])
    if not count:
        of_group = np.bincount(group)
        stacks = np.bincount(of_group[of_group > 1], minlength=1)
        count = int(stacks.argmax())
    own = in_each_block(group, found.asked[rows], max(count, 1))
    is_little = found.size[rows[own]].sum() < LEAST_KEPT * found.size[rows].sum()
    if count < 2 or len(np.unique(group[own])) < LEAST_STACKS or is_little:
        raise ValueError("no blocks that repeat were found in forward; compiled code shows none")
    rows, group = rows[own], group[own]
    block = turns(group) * count // np.bincount(group)[group]
    which = made[rows] * count + block
    ended, last = np.zeros((2, (len(phases.first) + 1) * count + 1), np.int64)
    np.maximum.at(ended, which, found.born[rows])
    np.maximum.at(last, which, found.died[rows])
    # a block's backward begins with what is made once that of the next one has freed all it kept
    births = np.sort(found.born)
    later = np.searchsorted(births, last[which + 1], side="right")
    begin, is_last = np.append(births, memory.count)[later], block == count - 1
    passed_on = ~is_last & (found.died[rows] < begin)
    passed_on |= is_last & np.isin(found.stack[rows], found.stack[rows[passed_on]])
    first = np.full(len(last), memory.count, np.int64)
    np.minimum.at(first, which[~passed_on], found.died[rows[~passed_on]])
    begin = np.where(is_last, first[which] - 1, begin)
    return Repeated(count, rows, made[rows], passed_on, ended[which], begin)


def groups(*columns: Ints | Int32s) -> Ints:
    """The number of the values that each row has in all columns."""
    group: Ints = np.unique(np.stack(columns), axis=1, return_inverse=True)[1].reshape(-1)
    return group


def in_each_block(group: Ints, asked: Ints, count: int) -> Mask:
    """Mask of what each of `count` blocks makes as often, by the groups of one stack.

    A group may have fewer others besides, of other sizes: a first product makes a workspace, too.
    """
    sized = groups(group, asked)
    alike = np.bincount(sized)[sized] % count == 0
    others = np.bincount(group, ~alike).astype(np.int64)[group]
    mask: Mask = (np.bincount(group)[group] % count == 0) | (alike & (others < count))
    return mask


def recomputed(changed: Changed, blocks: Repeated, input_bytes: int | None) -> Changed:
    """The allocations if blocks keep their inputs alone, and are computed again in backward.

    What is passed on stays. Where nothing is, each block keeps `input_bytes` more until its
    backward ends. If that is None, they are the median of what blocks keep, at least nothing and at
    most the largest of it. The peak is known to one block's activations: what a block needs while
    it is computed again is not known.
    """
    found = changed.memory.replayed.allocations
    again = ~blocks.passed_on
    row, ended = blocks.row[again], blocks.forward_end[again]
    begin = blocks.backward_begin[again]
    died = changed.died.copy()
    died[row] = np.maximum(ended, found.born[row] + 1)
    asked = changed.asked[:, row]
    one_block = int(asked[EXPECTED].sum()) // (blocks.count * blocks.forwards)
    freed = found.died[row].astype(np.int64)
    made = with_more(replace(changed, died=died), row, begin, freed, asked)
    if again.all():
        made = with_inputs(made, blocks, asked, input_bytes)
    return replace(made, beside=Bounds(-one_block, 0, one_block))


def with_inputs(changed: Changed, blocks: Repeated, kept: Ints, input_bytes: int | None) -> Changed:
    """The allocations and an input of each block, until all that the block keeps is freed."""
    ends, first, block = np.unique(blocks.forward_end, return_index=True, return_inverse=True)
    died: Ints = np.zeros(len(first), np.int64)
    np.maximum.at(died, block.reshape(-1), changed.memory.replayed.allocations.died[blocks.row])
    sizes = [input_bytes or 0] * 3
    if input_bytes is None:
        sizes = [0, int(np.median(kept[EXPECTED])), int(kept[MOST].max())]
    asked = np.repeat(np.array([sizes], np.int64).T, len(first), axis=1)
    return with_more(changed, blocks.row[first], ends, died, asked)


def with_more(changed: Changed, row: Ints, born: Ints, died: Ints, asked: Ints) -> Changed:
    return replace(
        changed,
        row=np.append(changed.row, row),
        born=np.append(changed.born, born),
        died=np.append(changed.died, died),
        asked=np.append(changed.asked, asked, axis=1),
    )
