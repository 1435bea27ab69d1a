"""Compares the work of two commands, A and B, by what is seen of it from outside.

Called by experiment. Equal facts do not prove equal work, so nothing here says that it is the same.
"""

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import TypeVar

from profiling.analysis.difference.comparison_records import SeenDifferences, SeenWork

Value = TypeVar("Value")
# share by which losses of equal work differ at most: two decimals of 16 bits, over a few steps
LOSS_SHARE = 0.01
MOST_SHAPES = 3  # that are named


def seen_differences(one: Sequence[SeenWork], other: Sequence[SeenWork]) -> SeenDifferences:
    """The differences between the processes of A (`one`) and those of B (`other`).

    A fact on which the processes of one side do not agree, such as the loss of a program without a
    seed, tells nothing and is left out.
    """
    return SeenDifferences([*work_differences(one, other)], [*other_differences(one, other)])


def work_differences(one: Sequence[SeenWork], other: Sequence[SeenWork]) -> Iterator[str]:
    if pair := differing(one, other, lambda seen: seen.world_size):
        yield f"A trains on {ranks(pair[0])}, B on {ranks(pair[1])}"
    if pair := differing(one, other, lambda seen: seen.parameters):
        yield f"A optimizes {pair[0]:,} parameters, B {pair[1]:,}"
    if shapes := differing(one, other, lambda seen: tuple(seen.shapes)):
        a, b = (spell_shapes(shapes[i], shapes[1 - i]) for i in (0, 1))
        yield f"the inputs of A are {a}, those of B {b}"
    if counts := differing(one, other, backwards):
        yield f"A goes backward {counts[0]:g} times per step, B {counts[1]:g} times"


def other_differences(one: Sequence[SeenWork], other: Sequence[SeenWork]) -> Iterator[str]:
    """Differences in how a step is found, in the number of steps, and in the loss."""
    if rules := differing(one, other, lambda seen: seen.rule.partition("; per step")[0]):
        yield f"in A {rules[0]}, in B {rules[1]}"
    if pair := differing(one, other, lambda seen: seen.steps):
        yield f"A makes {pair[0]:,} steps, B {pair[1]:,}"
    yield from loss_difference(one, other)


def differing(
    one: Sequence[SeenWork], other: Sequence[SeenWork], fact: Callable[[SeenWork], Value]
) -> tuple[Value, Value] | None:
    """The fact of A and of B where they differ; None also if a side does not agree on its own."""
    sides = [list(map(fact, side)) for side in (one, other)]
    if any(value != side[0] for side in sides for value in side):
        return None
    a, b = sides[0][0], sides[1][0]
    return None if a == b or a is None or b is None else (a, b)


def loss_difference(one: Sequence[SeenWork], other: Sequence[SeenWork]) -> Iterator[str]:
    """A line on the loss of the latest step that all processes have it of, if it differs."""
    common = set.intersection(*(set(seen.losses) for seen in (*one, *other)))
    if not common:
        return
    step = max(common, key=int)
    sides = [[seen.losses[step] for seen in side] for side in (one, other)]
    a, b = map(median, sides)
    least = LOSS_SHARE * max(abs(a), abs(b))
    if abs(a - b) > least and all(max(side) - min(side) <= least for side in sides):
        yield f"the loss of step {step} is {a:.4g} in A and {b:.4g} in B"


def backwards(seen: SeenWork) -> float | None:
    count = seen.backwards_per_step
    return None if count is None else round(count, 1)


def ranks(count: int) -> str:
    return f"{count} rank{'s' * (count != 1)}"


def spell_shapes(shapes: Sequence[str], others: Sequence[str]) -> str:
    """The shapes that the other side does not have, or all if it has every one."""
    own = [shape for shape in shapes if shape not in others] or list(shapes)
    return ", ".join(own[:MOST_SHAPES]) + " ..." * (len(own) > MOST_SHAPES) or "not known"
