"""Clock of each rank's GPU over the run. Called by files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from profiling.analysis.ranks.reduce import ReducedRank
from profiling.analysis.report import Finding
from profiling.analysis.runs.run_clocks import run_clocks, run_folder


def with_gpu_clocks(
    ranks: Sequence[ReducedRank], captures: Sequence[Path]
) -> tuple[list[ReducedRank], list[Finding]]:
    """Add GPU clocks from the rows of the run: (ranks, findings on what could not be read).

    The ranks stay as they are where the captures do not lie in the folder of a single run.
    """
    folders = {run_folder(path) for path in captures}
    folder = folders.pop() if len(folders) == 1 else None
    if folder is None:
        return list(ranks), []
    clocks = run_clocks(folder)
    findings = [Finding("note", clocks.problem)] if clocks.problem else []
    return [replace(rank, gpu_clock=clocks.of_rank(rank.rank)) for rank in ranks], findings
