"""Simulated trainings on several ranks (benchmarks.fleet), written to files and read again."""

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks.fleet.files import FileFacts, clocks_of_hosts, write_kineto
from benchmarks.fleet.simulation import Fleet, simulate
from profiling.analysis.ranks.files import open_ranks
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.analysis.ranks.summary import RanksAnalysis
from tests.helpers.fleet_nsys import write_nsys

TOOLS = ("kineto", "nsys")


def write_fleet(
    fleet: Fleet,
    folder: Path,
    tool: str = "kineto",
    ranks: Sequence[int] | None = None,
    facts: FileFacts | None = None,
    name: str = "rank{}",
) -> list[Path]:
    """Simulate a fleet and write one file for each rank, on a clock of its own by default."""
    simulation = simulate(fleet)
    facts = facts or FileFacts(clocks_of_hosts(fleet.ranks, 1))
    folder.mkdir(parents=True, exist_ok=True)
    chosen = range(fleet.ranks) if ranks is None else ranks
    if tool == "nsys":
        return [
            write_nsys(simulation, [rank], folder / f"{name.format(rank)}.sqlite", facts)
            for rank in chosen
        ]
    return [
        write_kineto(simulation, rank, folder / f"{name.format(rank)}.trace.json", facts)
        for rank in chosen
    ]


def analyse_files(paths: Sequence[Path]) -> RanksAnalysis:
    """Analysis of the ranks' files in this process, since others take a second to start."""
    with patch("profiling.analysis.ranks.files.os.cpu_count", return_value=1):
        return open_ranks(paths)


def report_of(paths: Sequence[Path]) -> RanksReport:
    return analyse_files(paths).report


def one_clock(ranks: int) -> FileFacts:
    return FileFacts(np.zeros(ranks))
