"""Writes the captures of several ranks as one Chrome trace, on one clock. Called by export.

Only one file at a time is in memory. Processes get new numbers, as those of two hosts may be equal,
and the number of their rank in their name.
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

PROCESS = re.compile(r"process (\d+)$")  # end of a track's name


def write(analysis: RanksAnalysis, file: TextIO, progress: Progress) -> int:
    """Writes the trace and returns the number of events."""
    return write_events(events(analysis, progress), file)


def events(analysis: RanksAnalysis, progress: Progress) -> Iterator[Event]:
    clocks = [rank.clock for rank in analysis.ranks]
    offset_ns = dict(zip(clocks, analysis.clocks.offset_ns.tolist(), strict=True))
    first_ns = min(rank.first_ns - offset_ns[rank.clock] for rank in analysis.ranks)
    numbers = Numbers()
    for count, path in enumerate(offset_ns):
        in_file = [rank for rank in analysis.ranks if rank.clock == path]
        trace = opening.open_capture(Path(path))
        origin_ns = first_ns + offset_ns[path]
        for event in events_of(trace, owning_phases(trace, in_file), origin_ns):
            yield numbers.renumber(event, count, {rank.process: rank.rank for rank in in_file})
        progress(count + 1)


def owning_phases(trace: Trace, ranks: list[ReducedRank]) -> np.ndarray | None:
    phases: np.ndarray | None = None
    for rank in ranks:
        own = Analysis(
            trace, process=rank.process, device=rank.device, keep_first=True
        ).owning_phase
        phases = own if phases is None or own is None else np.maximum(phases, own)
    return phases


class Numbers:
    """Gives each process and each arrow of each file a number that no other one has."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[int, object], int] = {}

    def renumber(self, event: Event, file: int, rank_of: dict[int | None, int]) -> Event:
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
