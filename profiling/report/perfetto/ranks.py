"""The captures of several ranks as one Chrome trace, on one clock. Called by the verb export.

A file at a time is in memory. Processes are numbered anew, for two hosts may have the same, and
bear the number of their rank.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import numpy as np

from profiling.analysis.analysis import Analysis
from profiling.analysis.ranks.files import Progress
from profiling.analysis.ranks.reduce import ReducedRank
from profiling.analysis.ranks.summary import RanksAnalysis
from profiling.report.perfetto.chrome_trace import Event, events_of, write_events
from profiling.timeline import opening
from profiling.timeline.trace import Trace

PROCESS = re.compile(r"process (\d+)$")  # in the name of a track


def write(analysis: RanksAnalysis, file: TextIO, progress: Progress) -> int:
    """Returns the number of events."""
    return write_events(events(analysis, progress), file)


def events(analysis: RanksAnalysis, progress: Progress) -> Iterator[Event]:
    clocks = [rank.clock for rank in analysis.ranks]
    offset_ns = dict(zip(clocks, analysis.clocks.offset_ns.tolist(), strict=True))
    first_ns = min(rank.first_ns - offset_ns[rank.clock] for rank in analysis.ranks)
    numbers = Numbers()
    for count, path in enumerate(offset_ns):
        mine = [rank for rank in analysis.ranks if rank.clock == path]
        trace = opening.open_capture(Path(path))
        origin_ns = first_ns + offset_ns[path]
        for event in events_of(trace, owning_phases(trace, mine), origin_ns):
            yield numbers.placed(event, count, {rank.process: rank.rank for rank in mine})
        progress(count + 1)


def owning_phases(trace: Trace, ranks: list[ReducedRank]) -> np.ndarray | None:
    found: np.ndarray | None = None
    for rank in ranks:
        of = Analysis(trace, process=rank.process, device=rank.device).owning_phase
        found = of if found is None or of is None else np.maximum(found, of)
    return found


class Numbers:
    """Gives each process of each file a number that no other has, and each arrow."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[int, object], int] = {}

    def placed(self, event: Event, file: int, rank_of: dict[int | None, int]) -> Event:
        pid = self.numbers.setdefault((file, event["pid"]), len(self.numbers) + 1)
        made = event | {"pid": pid}
        if "id" in event:
            made["id"] = f"{file}.{event['id']}"
        match event:
            case {"name": "process_sort_index"}:
                made["args"] = {"sort_index": pid}
            case {"name": "process_name", "args": {"name": str(name)}}:
                process = PROCESS.search(name)
                rank = rank_of.get(int(process[1])) if process else None
                made["args"] = {"name": name if rank is None else f"rank {rank}, {name}"}
        return made
