"""What the driver's samples of a run say of its GPUs' clocks.

Called by capture and ranks.gpu_clocks. Rank 0 writes them, of the GPUs of its machine, in the order
of their ranks.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profiling.analysis.runs.folder import is_run_folder, read_run
from profiling.gpu_clock import GpuClock, gpu_clock


@dataclass(frozen=True)
class RunClocks:
    """The median of a run's rows, by the names of its metrics."""

    rows: dict[str, float]
    problem: str | None = None  # why they could not be read

    def of_rank(self, rank: int) -> GpuClock | None:
        return gpu_clock(self.rows, rank)


def run_folder(capture: Path) -> Path | None:
    """Whose window it is: it lies in its profile/."""
    folder = capture.resolve().parent
    return folder.parent if folder.name == "profile" and is_run_folder(folder.parent) else None


def run_clocks(folder: Path) -> RunClocks:
    """The median row: the first of a short run, and those of its captures, have other clocks."""
    try:
        columns = read_run(folder).columns
        found = {name: float(np.nanmedian(series.value)) for name, series in columns.items()}
    except ValueError as error:
        return RunClocks({}, f"the GPUs' clocks are not known: {error}")
    return RunClocks({name: value for name, value in found.items() if name.startswith("gpu")})
