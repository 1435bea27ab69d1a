"""What the driver's samples of a run say of its GPUs' clocks.

Called by capture and ranks.gpu_clocks. Rank 0 writes them, of the GPUs of its machine, in the order
of their ranks.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profiling.analysis.runs.folder import is_run_folder, numbers_of, read_run
from profiling.gpu_clock import GpuClock, gpu_clock
from profiling.records import JsonObject, read_json


@dataclass(frozen=True)
class ClockMeans:
    """Over a run, by the names of its metrics."""

    means: dict[str, float]
    problem: str | None = None  # why they could not be read

    def of_rank(self, rank: int) -> GpuClock | None:
        return gpu_clock(self.means, rank)


def run_folder(capture: Path) -> Path | None:
    """Whose window it is: it lies in its profile/."""
    folder = capture.resolve().parent
    return folder.parent if folder.name == "profile" and is_run_folder(folder.parent) else None


def clock_means(folder: Path) -> ClockMeans:
    """By its summary, or where it has none, as while the run is under way, by its rows."""
    try:
        summary = folder / "summary.json"
        if summary.is_file():
            found = numbers_of(read_json(summary, JsonObject))
        else:
            columns = read_run(folder).columns
            found = {name: float(np.nanmean(series.value)) for name, series in columns.items()}
    except ValueError as error:
        return ClockMeans({}, f"the GPUs' clocks are not known: {error}")
    return ClockMeans({name: value for name, value in found.items() if name.startswith("gpu")})
