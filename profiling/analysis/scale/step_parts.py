"""Where the time of one GPU's step lies: micro-steps, blocks, update. Read off a capture.

A block's kernels bear no name of their block, and in CUDA graphs no range is around them. Its
attention does: one kernel of it runs in each block, so that the distance of two is a block's time.
"""

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.capture import Capture
from profiling.analysis.columns import distinct
from profiling.analysis.gpu_time.attribution import OwnedOperations
from profiling.analysis.kernels.families import FAMILIES
from profiling.analysis.scale.model_sizes import ModelSizes
from profiling.analysis.scale.records import StepParts
from profiling.analysis.verdict.health import CAPTURE_AGAIN

ATTENTION, PRODUCT, EMBEDDING = map(FAMILIES.index, ("attention", "gemm", "embedding"))
# of a block's matrices the one behind attention in backward, q, k and v's: 3 of 12 C**2 weights
BEHIND_ATTENTION = 3 / 12
SQUARES = "adamw_squares"  # in the name of a kernel of kernels.adamw_triton


def step_parts(capture: Capture, sizes: ModelSizes) -> StepParts:
    """As without a profiler, where the manifest tells the step's time. Raises ValueError."""
    analysis, report = capture.analysis, capture.report
    owned, file = analysis.owned, analysis.trace.file
    if owned is None or not len(owned.row):
        raise ValueError(f"{file}: no GPU activity in it; capture a run on a GPU (profile=torch)")
    if why := report.health.no_verdict:
        raise ValueError(f"{file}: {why}; {CAPTURE_AGAIN}")
    forward, backward = (phase_rows(analysis, owned, name) for name in ("forward", "backward"))
    if not forward or len(forward) != len(backward) or len(forward) % analysis.step_count:
        raise ValueError(
            f"{file}: its steps have no forward and backward with kernels of their own; capture "
            "them as phases (profile=torch of this trainer)"
        )
    begins = np.array([owned.start_ns[rows[0]] for rows in forward])
    turns = np.array([owned.start_ns[rows[0]] for rows in backward])
    ends = np.array([owned.end_ns[rows].max() for rows in backward])
    free, captured = report.health.free_step_ms, report.window.step_ms.median
    unit = (free or captured) / captured / 1e6  # ns -> ms without a profiler
    of_embedding_ns = embedding_ns(analysis, owned, backward, len(sizes.positions))
    embedding_ms = None if of_embedding_ns is None else of_embedding_ns * unit
    forward_ms, backward_ms = (
        float(np.median(length)) * unit for length in (turns - begins, ends - turns)
    )
    of_squares_ns = squares_ns(analysis, owned)
    rhythms = [rhythm(analysis, owned, rows, sizes.blocks) for rows in (forward, backward)]
    if any(found is None for found in rhythms):
        share = sizes.block_share / sizes.blocks
        in_order_ms = backward_ms - (embedding_ms or 0)
        blocks = forward_ms * share, in_order_ms * share
        head_ms = in_order_ms * (1 - sizes.block_share)
    else:
        (_, each, _), (first, period, attention) = [found for found in rhythms if found]
        blocks = each * unit, period * unit
        behind = (period - attention) * BEHIND_ATTENTION
        head_ms = max(0.0, first + attention + behind - period) * unit
        head_ms = min(head_ms, backward_ms)
    return StepParts(
        step_ms=free or captured,
        micro_steps=len(forward) // analysis.step_count,
        forward_ms=forward_ms,
        backward_ms=backward_ms,
        block_forward_ms=min(blocks[0], forward_ms / sizes.blocks),
        block_backward_ms=min(blocks[1], (backward_ms - head_ms) / sizes.blocks),
        head_backward_ms=head_ms,
        update_ms=update_ns(analysis, owned) * unit,
        blocks_from="arithmetic" if None in rhythms else "kernels",
        embedding_backward_ms=embedding_ms,
        squares_ms=None if of_squares_ns is None else of_squares_ns * unit,
    )


def phase_rows(analysis: Analysis, owned: OwnedOperations, name: str) -> list[np.ndarray]:
    """What ran for each phase of that name, by start; phases without anything are left out."""
    phases = analysis.steps.phase_mask(analysis.trace.names, (name,))
    mine = np.flatnonzero(owned.kernels_and_graphs & (owned.phase >= 0))
    mine = mine[phases[owned.phase[mine]]]
    mine = mine[np.argsort(owned.phase[mine], kind="stable")]  # they are by start
    return np.split(mine, np.flatnonzero(np.diff(owned.phase[mine])) + 1) if len(mine) else []


def rhythm(
    analysis: Analysis, owned: OwnedOperations, phases: list[np.ndarray], blocks: int
) -> tuple[float, float, float] | None:
    """Of attention in each phase, ns: the first one's begin behind the phase's, the distance of
    two, what one block's kernels take. None where not each block has the kernel."""
    starts, spent = [], []
    rows = np.concatenate(phases)
    rows = rows[analysis.family[owned.name[rows]] == ATTENTION]
    if blocks < 2 or not len(rows):
        return None
    names = distinct(np.sort(owned.name[rows]))
    totals = [owned.duration_ns[rows[owned.name[rows] == name]].sum() for name in names]
    longest = names[int(np.argmax(totals))]
    for phase in phases:
        of_blocks = phase[owned.name[phase] == longest]
        if len(of_blocks) != blocks:
            return None
        starts.append(owned.start_ns[of_blocks] - owned.start_ns[phase[0]])
        family = analysis.family[owned.name[phase]] == ATTENTION
        spent.append(owned.duration_ns[phase[family]].sum() / blocks)
    place = np.array(starts)
    return (
        float(np.median(place[:, 0])),
        float(np.median(np.diff(place, axis=1))),
        float(np.median(spent)),
    )


def embedding_ns(
    analysis: Analysis, owned: OwnedOperations, backward: list[np.ndarray], before: int
) -> float | None:
    """Of a backward pass, behind its last product: from the first kernel that looks up or sorts
    but those `before` it, as positions that are learned have one. None: a pass has none."""
    spent = []
    for rows in backward:
        family = analysis.family[owned.name[rows]]
        products = np.flatnonzero(family == PRODUCT)
        behind = rows[products[-1] + 1 :] if len(products) else rows[:0]
        found = behind[analysis.family[owned.name[behind]] == EMBEDDING]
        its = found[before:]
        if not len(its):
            return None
        spent.append(owned.end_ns[behind].max() - owned.start_ns[its[0]])
    return float(np.median(spent))


def update_ns(analysis: Analysis, owned: OwnedOperations) -> float:
    """Kernels of the optimizer, a step."""
    rows = phase_rows(analysis, owned, "optimizer")
    return sum(int(owned.duration_ns[each].sum()) for each in rows) / analysis.step_count


def squares_ns(analysis: Analysis, owned: OwnedOperations) -> float | None:
    """Of these the sum of all gradients' squares; None: no kernel has its name."""
    known = [number for number, name in enumerate(analysis.trace.names) if SQUARES in name]
    phases = phase_rows(analysis, owned, "optimizer")
    rows = [each[np.isin(owned.name[each], known)] for each in phases]
    if not any(map(len, rows)):
        return None
    return sum(int(owned.duration_ns[each].sum()) for each in rows) / analysis.step_count
