"""How high the clock of each rank's GPU was, by the rows of the run that lie beside the captures.

Called by files. Rank 0 writes what the driver tells of the GPUs of its machine, in their order.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from profiling.analysis.ranks.reduce import ReducedRank
from profiling.analysis.report import Finding
from profiling.analysis.runs.folder import is_run_folder, read_run
from profiling.gpu_clock import gpu_clock


def with_gpu_clocks(
    ranks: Sequence[ReducedRank], captures: Sequence[Path]
) -> tuple[list[ReducedRank], list[Finding]]:
    """(the ranks, what could not be read). As they are where the captures are no run's own."""
    folders = {run_folder(path) for path in captures}
    folder = folders.pop() if len(folders) == 1 else None
    if folder is None:
        return list(ranks), []
    try:
        columns = read_run(folder).columns
    except ValueError as error:
        return list(ranks), [Finding("note", f"the GPUs' clocks are not known: {error}")]
    means = {
        name: float(np.nanmean(series.value))
        for name, series in columns.items()
        if name.startswith("gpu")
    }
    return [replace(rank, gpu_clock=gpu_clock(means, rank.rank)) for rank in ranks], []


def run_folder(capture: Path) -> Path | None:
    """Whose window it is: it lies in its profile/."""
    folder = capture.resolve().parent
    return folder.parent if folder.name == "profile" and is_run_folder(folder.parent) else None
