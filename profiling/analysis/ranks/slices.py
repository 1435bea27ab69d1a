"""Slices of a rank's row in a timeline: when it computed, by phase, and when it copied.

Kernels that follow each other closely are one slice, since a page has the steps of many ranks.
Called by reduce. Collectives are not among the slices: they are drawn from ranks.waits.
"""

from dataclasses import dataclass

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.columns import concatenate_columns, union
from profiling.analysis.gpu_time.breakdown import COMMUNICATION

NEAR = 5e-4  # share of a step: the largest gap between two kernels of one slice
NO_PHASE, COPIES = "kernels", "copies and memsets"


@dataclass(frozen=True)
class RankSlices:
    """Columns, sorted by start; `name` is an index in `names`."""

    names: list[str]
    parts: list[str]  # one of causes.PARTS for each of the names
    start_ns: np.ndarray
    end_ns: np.ndarray
    name: np.ndarray


def rank_slices(analysis: Analysis) -> RankSlices:
    owned = analysis.owned
    assert owned is not None  # reduce_rank refuses captures without GPU activity
    near_ns = int(NEAR * (analysis.end_ns - analysis.begin_ns) / analysis.step_count)
    copies = ~owned.kernels_and_graphs
    computes = ~copies & (analysis.family[owned.name] != COMMUNICATION)
    phase = np.where(owned.phase >= 0, np.append(owned.steps.phases.name, -1)[owned.phase], -1)
    chosen = [(n, computes & (phase == n)) for n in np.unique(phase[computes]).tolist()]
    names = [analysis.trace.names[n] if n >= 0 else NO_PHASE for n, _ in chosen]
    masks = [mask for _, mask in chosen]
    if copies.any():
        names, masks = [*names, COPIES], [*masks, copies]
    merged = [merge_near(owned.start_ns[mask], owned.end_ns[mask], near_ns) for mask in masks]
    start_ns, end_ns = (concatenate_columns([part[i] for part in merged]) for i in range(2))
    name = np.repeat(np.arange(len(names)), [len(start) for start, _ in merged])
    order = np.argsort(start_ns, kind="stable")
    parts = ["copy" if label == COPIES else "compute" for label in names]
    return RankSlices(names, parts, start_ns[order], end_ns[order], name[order])


def merge_near(
    start_ns: np.ndarray, end_ns: np.ndarray, near_ns: int
) -> tuple[np.ndarray, np.ndarray]:
    """Union of the intervals, joined over gaps of up to `near_ns`: (starts, ends) in ns."""
    whole = union(start_ns, end_ns + near_ns)
    return whole.start_ns, whole.end_ns - near_ns
