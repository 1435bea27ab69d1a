"""What a rank's row of a timeline shows: when it computed, phase by phase, and copied.

Kernels one right behind the other are one slice: a page has the steps of many ranks. Called by
reduce; the collectives are drawn from what waits knows of them.
"""

from dataclasses import dataclass

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import concatenate_columns, union
from profiling.analysis.gpu_time.breakdown import COMMUNICATION

NEAR = 5e-4  # of a step: between two kernels of one slice
NO_PHASE, COPIES = "kernels", "copies and memsets"


@dataclass(frozen=True)
class RankSlices:
    """Columns, sorted by start; `name` is an index in `names`."""

    names: list[str]
    parts: list[str]  # of causes.PARTS, of each of the names
    start_ns: np.ndarray
    end_ns: np.ndarray
    name: np.ndarray


def drawn(analysis: Analysis) -> RankSlices:
    owned = analysis.owned
    assert owned is not None  # or it has no steps on a GPU
    near_ns = int(NEAR * (analysis.end_ns - analysis.begin_ns) / analysis.step_count)
    copies = ~owned.kernels_and_graphs
    computes = ~copies & (analysis.family[owned.name] != COMMUNICATION)
    phase = np.where(owned.phase >= 0, np.append(owned.steps.phases.name, -1)[owned.phase], -1)
    chosen = [(n, computes & (phase == n)) for n in np.unique(phase[computes]).tolist()]
    names = [analysis.trace.names[n] if n >= 0 else NO_PHASE for n, _ in chosen]
    masks = [mask for _, mask in chosen]
    if copies.any():
        names, masks = [*names, COPIES], [*masks, copies]
    found = [merged(owned.start_ns[mask], owned.end_ns[mask], near_ns) for mask in masks]
    start_ns, end_ns = (concatenate_columns([part[i] for part in found]) for i in range(2))
    name = np.repeat(np.arange(len(names)), [len(start) for start, _ in found])
    order = np.argsort(start_ns, kind="stable")
    parts = ["copy" if each == COPIES else "compute" for each in names]
    return RankSlices(names, parts, start_ns[order], end_ns[order], name[order])


def merged(start_ns: np.ndarray, end_ns: np.ndarray, near_ns: int) -> tuple[np.ndarray, np.ndarray]:
    """The union of the intervals, over gaps of up to `near_ns` too."""
    whole = union(start_ns, end_ns + near_ns)
    return whole.start_ns, whole.end_ns - near_ns
