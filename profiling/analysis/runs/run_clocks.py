"""Read the clocks of a run's GPUs from the driver's samples.

Called by open_report and ranks.files. Rank 0 writes the samples, for the GPUs of its machine, in
the order of their ranks.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profiling.analysis.runs.folder import is_run_folder, read_run
from profiling.shared.gpu_clock import GpuClock, gpu_clock


@dataclass(frozen=True)
class RunClocks:
    """Medians over a run's rows, by the names of the metrics."""

    rows: dict[str, float]
    problem: str | None = None  # the reason why they could not be read

    def of_rank(self, rank: int) -> GpuClock | None:
        return gpu_clock(self.rows, rank)


def run_folder(capture: Path) -> Path | None:
    """The folder of the run in whose profile/ the capture lies, or None."""
    folder = Path(os.path.realpath(capture)).parent  # a loop of links raises nothing here
    return folder.parent if folder.name == "profile" and is_run_folder(folder.parent) else None


def run_clocks(folder: Path) -> RunClocks:
    """Medians of the run's GPU metrics.

    Medians, because the first row of a short run and the captured rows have other clocks.
    """
    try:
        columns = read_run(folder).columns
        medians = {name: float(np.nanmedian(series.value)) for name, series in columns.items()}
    except ValueError as error:
        return RunClocks({}, f"the clocks of the GPUs are not known: {error}")
    return RunClocks({name: value for name, value in medians.items() if name.startswith("gpu")})


def clocks_of_run(captures: Sequence[Path]) -> RunClocks:
    """Clocks of the run in whose profile/ all `captures` lie; none where there is no such run."""
    folders = {run_folder(path) for path in captures}
    folder = folders.pop() if len(folders) == 1 else None
    return run_clocks(folder) if folder else RunClocks({})
