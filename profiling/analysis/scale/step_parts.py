"""Parts of one GPU's step in a capture: micro-steps, blocks, update.

Kernels do not carry the name of their block, and in CUDA graphs no range surrounds them. But one
attention kernel runs in each block, so the distance between two of these is the time of a block.
"""

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import distinct
from profiling.analysis.gpu_time.attribution import OwnedOperations
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.analysis.open_report import Capture
from profiling.analysis.scale.model_sizes import ModelSizes
from profiling.analysis.scale.scale_records import StepParts
from profiling.analysis.verdict.health import CAPTURE_AGAIN

ATTENTION, PRODUCT, EMBEDDING = map(FAMILIES.index, ("attention", "gemm", "embedding"))
SQUARES = "adamw_squares"  # part of the name of a kernel of kernels.optimizers.adamw_triton


def step_parts(capture: Capture, sizes: ModelSizes) -> StepParts:
    """Split the captured step into its parts.

    Where the manifest has the step's time without a profiler, all parts are scaled to it. Raises
    ValueError where the capture has no GPU activity, has lost too much, or has no forward and
    backward phases with kernels.
    """
    analysis, report = capture.analysis, capture.plain_report
    owned, file = analysis.owned, analysis.trace.file
    if owned is None or not len(owned.row):
        raise ValueError(
            f"{file}: the capture contains no GPU activity; capture a run on a GPU (profile=torch)"
        )
    if why := report.health.no_verdict:
        raise ValueError(f"{file}: {why}; {CAPTURE_AGAIN}")
    forward, backward = (phase_rows(analysis, owned, name) for name in ("forward", "backward"))
    if not forward or len(forward) != len(backward) or len(forward) % analysis.step_count:
        raise ValueError(
            f"{file}: its steps have no separate kernels for forward and backward; capture these "
            "as phases (profile=torch of this trainer)"
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
    rhythms = [
        attention_rhythm(analysis, owned, rows, sizes.blocks) for rows in (forward, backward)
    ]
    if any(rhythm is None for rhythm in rhythms):
        share = sizes.block_share / sizes.blocks
        in_order_ms = backward_ms - (embedding_ms or 0)
        blocks = forward_ms * share, in_order_ms * share
        head_ms = in_order_ms * (1 - sizes.block_share)
    else:
        (_, distance, _), (first, period, attention) = [rhythm for rhythm in rhythms if rhythm]
        blocks = distance * unit, period * unit
        after_ns = (period - attention) * sizes.behind_attention
        head_ms = max(0.0, first + attention + after_ns - period) * unit
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
    """Rows of `owned` for each phase called `name`, by start; empty phases are left out."""
    phases = analysis.steps.phase_mask(analysis.trace.names, (name,))
    mine = np.flatnonzero(owned.kernels_and_graphs & (owned.phase >= 0))
    mine = mine[phases[owned.phase[mine]]]
    mine = mine[np.argsort(owned.phase[mine], kind="stable")]  # they are by start
    return np.split(mine, np.flatnonzero(np.diff(owned.phase[mine])) + 1) if len(mine) else []


def attention_rhythm(
    analysis: Analysis, owned: OwnedOperations, phases: list[np.ndarray], blocks: int
) -> tuple[float, float, float] | None:
    """Medians in ns over `phases` that tell where blocks lie, from their attention kernels.

    (start of the first one after the phase's start, distance between two of them, time of one
    block's attention kernels), or None where not each block has such a kernel.
    """
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
    """Time in ns of the embedding's dense gradient at the end of backward; None if a pass has none.

    After the last matrix product, it begins with the first kernel of the embedding family, which
    looks up or sorts. The first `before` of these are skipped: learned positions have one.
    """
    spent = []
    for rows in backward:
        family = analysis.family[owned.name[rows]]
        products = np.flatnonzero(family == PRODUCT)
        after = rows[products[-1] + 1 :] if len(products) else rows[:0]
        lookups = after[analysis.family[owned.name[after]] == EMBEDDING]
        own = lookups[before:]
        if not len(own):
            return None
        spent.append(owned.end_ns[after].max() - owned.start_ns[own[0]])
    return float(np.median(spent))


def update_ns(analysis: Analysis, owned: OwnedOperations) -> float:
    """Time in ns of the optimizer's kernels in a step."""
    rows = phase_rows(analysis, owned, "optimizer")
    return sum(int(owned.duration_ns[phase].sum()) for phase in rows) / analysis.step_count


def squares_ns(analysis: Analysis, owned: OwnedOperations) -> float | None:
    """Time in ns of those of them that sum the gradients' squares; None: no kernel has the name."""
    known = [number for number, name in enumerate(analysis.trace.names) if SQUARES in name]
    phases = phase_rows(analysis, owned, "optimizer")
    rows = [phase[np.isin(owned.name[phase], known)] for phase in phases]
    if not any(map(len, rows)):
        return None
    return sum(int(owned.duration_ns[phase].sum()) for phase in rows) / analysis.step_count
