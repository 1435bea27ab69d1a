"""Tells what an allocation is for, from the stacks that made and freed it and from its lifetime.

A kind is a conclusion, as the allocator knows none: what backward makes and somebody else frees is
a gradient, what forward makes and backward frees an activation. Where no rule holds it is unknown.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.memory.replay import Allocations
from profiling.analysis.memory.stacks import Phase, Role, Stacks
from profiling.timeline.memory_snapshot import ALLOC, Events, Int32s, Ints

KINDS = (
    "weights",
    "gradients",
    "moments",
    "activations",
    "workspace",
    "library",
    "unknown",
)
WEIGHTS, GRADIENTS, MOMENTS, ACTIVATIONS, WORKSPACE, LIBRARY, UNKNOWN = range(7)
# cuBLAS's workspace, PyTorch's default before Hopper and from then on, and what it is taken for
CUBLAS_BYTES = {8_519_680: (UNKNOWN, ACTIVATIONS, GRADIENTS), 32 << 20: (ACTIVATIONS, GRADIENTS)}
MOST_CUBLAS = 4  # one for each thread and stream that multiplies; more are a program's own
OF_ROLE = {
    Role.WEIGHTS: WEIGHTS,
    Role.ZERO_GRAD: GRADIENTS,
    Role.BUCKETS: GRADIENTS,
    Role.MOMENTS: MOMENTS,
    Role.WORKSPACE: WORKSPACE,
    Role.LIBRARY: LIBRARY,
}


@dataclass(frozen=True)
class Phases:
    """The parts of the steps in a history: runs of events."""

    first: Ints  # event with which each begins
    phase: Ints  # of Phase

    def at(self, events: Ints | Int32s) -> Ints:
        """Number of the run to which each event belongs; -1 before the first."""
        return np.searchsorted(self.first, events, side="right") - 1


def phases_of(events: Events, stacks: Stacks) -> Phases:
    """The parts of the steps, told by the stacks of allocations."""
    rows = np.flatnonzero(events.action == ALLOC)
    phase = stacks.phase[events.stack[rows]]
    telling = phase != Phase.OTHER
    rows, phase = rows[telling], phase[telling]
    changes = np.ones(len(rows), np.bool_)
    changes[1:] = phase[1:] != phase[:-1]
    return Phases(rows[changes], phase[changes])


def kinds_of(found: Allocations, stacks: Stacks, phases: Phases, count: int) -> Ints:
    """The kind of each allocation; `count` is the number of events."""
    role, freed = stacks.role[found.stack], stacks.role[found.free_stack]
    gone = found.died < count
    born_in, died_in = phases.at(found.born), phases.at(found.died)
    brief = gone & (born_in == died_in) & (found.born >= 0)
    padded = np.append(phases.phase, Phase.OTHER)
    in_backward = gone & ((freed == Role.BACKWARD) | (padded[died_in] == Phase.BACKWARD))
    kind = np.full(len(role), UNKNOWN)
    for which, meant in OF_ROLE.items():
        kind[role == which] = meant
    kind[role == Role.OPTIMIZER] = MOMENTS
    kind[role == Role.BACKWARD] = GRADIENTS
    kind[role == Role.FORWARD] = ACTIVATIONS
    passing = np.isin(role, (Role.OPTIMIZER, Role.BACKWARD, Role.FORWARD))
    kind[passing & brief] = WORKSPACE
    kind[(role == Role.NONE) & in_backward] = ACTIVATIONS
    old = role == Role.ABSENT
    kind[old & in_backward] = ACTIVATIONS
    kind[old & gone & (freed == Role.ZERO_GRAD)] = GRADIENTS
    kind[old & gone & (freed == Role.OPTIMIZER)] = MOMENTS
    kind[(role == Role.NONE) & gone & (freed == Role.ZERO_GRAD)] = GRADIENTS
    kind[of_cublas(kind, found, ~gone)] = WORKSPACE
    by_size(kind, found, old & ~gone & (kind == UNKNOWN), phases, count)
    return kind


def of_cublas(kind: Ints, found: Allocations, stays: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask of cuBLAS's workspaces: few of one size, which stay, and no gradients of weights."""
    mask = np.zeros(len(kind), np.bool_)
    for size, taken_for in CUBLAS_BYTES.items():
        alike = (found.asked == size) & stays
        rows = alike & np.isin(kind, taken_for)
        weights = alike & (kind == WEIGHTS)
        if rows.sum() <= MOST_CUBLAS and not weights.any():
            mask |= rows
    return mask


def by_size(
    kind: Ints, found: Allocations, old: NDArray[np.bool_], phases: Phases, count: int
) -> None:
    """Tell weights from moments among allocations without a stack, which came before the history.

    Each weight has a gradient of its size. As many blocks of a size as there are gradients are
    weights, those with the lowest addresses; twice as many more are moments. Those of which a stack
    tells it count.
    """
    optimizers = phases.first[phases.phase == Phase.OPTIMIZER]
    moment = int(optimizers[-1]) - 1 if len(optimizers) else count - 1
    gradients = found.asked[(kind == GRADIENTS) & found.live_at(moment)]
    rows = np.flatnonzero(old)
    rows = rows[np.argsort(found.address[rows], kind="stable")]
    sizes, counts = np.unique(gradients, return_counts=True)
    for size, number in zip(sizes.tolist(), counts.tolist(), strict=True):
        alike = rows[found.asked[rows] == size]
        same = (found.asked == size) & found.live_at(moment)
        weights = max(number - int((same & (kind == WEIGHTS)).sum()), 0)
        moments = max(2 * number - int((same & (kind == MOMENTS)).sum()), 0)
        kind[alike[:weights]] = WEIGHTS
        kind[alike[weights : weights + moments]] = MOMENTS
