"""How high the clock of each rank's GPU was over the run. Called by files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from profiling.analysis.ranks.reduce import ReducedRank
from profiling.analysis.report import Finding
from profiling.analysis.runs.run_clocks import run_clocks, run_folder


def with_gpu_clocks(
    ranks: Sequence[ReducedRank], captures: Sequence[Path]
) -> tuple[list[ReducedRank], list[Finding]]:
    """(the ranks, what could not be read). As they are where the captures are no run's own."""
    folders = {run_folder(path) for path in captures}
    folder = folders.pop() if len(folders) == 1 else None
    if folder is None:
        return list(ranks), []
    clocks = run_clocks(folder)
    findings = [Finding("note", clocks.problem)] if clocks.problem else []
    return [replace(rank, gpu_clock=clocks.of_rank(rank.rank)) for rank in ranks], findings
