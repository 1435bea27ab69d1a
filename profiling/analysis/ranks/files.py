"""Reads the captures of several ranks side by side.

Called by the verbs. A file is reduced in the process that reads it (reduce), so that as many are in
memory as there are processes.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from cli.plain import plain
from cli.side_by_side import Killed, side_by_side
from profiling.analysis.analysis import Analysis
from profiling.analysis.kernels.families import family_of
from profiling.analysis.ranks.choice import FileRead, choose, list_numbers
from profiling.analysis.ranks.found import TooFewRanks, rank_in_name
from profiling.analysis.ranks.gpu_clocks import with_gpu_clocks
from profiling.analysis.ranks.reduce import ReducedRank, reduce_rank
from profiling.analysis.ranks.summary import RanksAnalysis, analyse
from profiling.analysis.report import Finding
from profiling.analysis.steps.find import used_gpus
from profiling.analysis.summary import summarize as report_of
from profiling.timeline import opening
from profiling.timeline.trace import Trace

MOST_WORKERS = 16  # each holds a whole capture
READ_HERE_BYTES = 4 << 20  # of all: are read sooner than another process has started
KILLED = (
    "a process that read one of them was killed, it may be for want of memory; name fewer files"
)
Progress = Callable[[int], None]  # how many files have been read


@dataclass(frozen=True)
class StepNames:
    """The ranges that are steps and phases, where they are not to be found out: see Analysis."""

    step: str | None = None
    phases: list[str] | None = None


DETECT = StepNames()


def open_ranks(
    paths: Sequence[Path],
    progress: Progress = lambda count: None,
    step_names: StepNames = DETECT,
) -> RanksAnalysis:
    """What these captures come to. Raises ValueError with one line, TooFewRanks where they are one.

    What cannot be read, or is of another run or window, is a finding, and the rest is reported.
    `progress` is told how many files have been read.
    """
    files = read_files(paths, progress, step_names)
    findings = [Finding("warning", f"left out: {file.error}") for file in files if file.error]
    ranks, left_out = choose(files)
    findings += left_out
    if files and all(file.error == without_gpu(file.path) for file in files):
        raise TooFewRanks(
            f"{files_text(paths)}: ranks are compared by their GPUs, and none took part"
        )
    if len(ranks) < 2:
        reason = findings[0].what if findings else "the files hold one process on one GPU"
        raise TooFewRanks(f"{files_text(paths)}: fewer than two ranks to compare; {reason}")
    ranks, not_read = with_gpu_clocks(ranks, paths)
    return analyse(ranks, findings + shared_notes(ranks) + not_read)


def shared_notes(ranks: Sequence[ReducedRank]) -> list[Finding]:
    """What is said of several captures is said once; more of each is in its own report."""
    ranks_of_note: dict[str, list[int]] = {}
    for rank in ranks:
        for note in rank.notes:
            ranks_of_note.setdefault(note, []).append(rank.rank)
    return [
        Finding(
            "warning", f"{'ranks' if len(numbers) > 1 else 'rank'} {list_numbers(numbers)}: {note}"
        )
        for note, numbers in ranks_of_note.items()
    ]


def files_text(paths: Sequence[Path]) -> str:
    return plain(paths[0]) if len(paths) == 1 else f"{plain(paths[0])} and {len(paths) - 1} more"


def read_files(paths: Sequence[Path], progress: Progress, step_names: StepNames) -> list[FileRead]:
    """In the order of `paths`. Raises ValueError where a process that reads is killed."""
    results = []
    work = partial(read_file, step_names=step_names)
    try:
        with side_by_side(work, paths, workers_for(paths), ahead=len(paths)) as files:
            for file in files:
                results.append(file)
                progress(len(results))
    except Killed as error:
        raise ValueError(f"{files_text(paths)}: {KILLED}") from error
    return results


def workers_for(paths: Sequence[Path]) -> int:
    size = 0
    for path in paths:
        with suppress(OSError):  # who reads it says so
            size += path.stat().st_size
    return 1 if size < READ_HERE_BYTES else min(len(paths), os.cpu_count() or 1, MOST_WORKERS)


def read_file(path: Path, step_names: StepNames) -> FileRead:
    """Its error in place of its ranks, where it cannot be read."""
    try:
        trace = opening.open_capture(path)
        subjects = processes_of(trace)
        if not subjects:
            raise ValueError(without_gpu(path))
        if len(subjects) == 1:
            return FileRead(path, [rank_of_file(trace, path, step_names)])
        ranks = [
            rank_of_process(trace, number, process, device, step_names)
            for number, (process, device) in enumerate(subjects)
        ]
        return FileRead(path, ranks)
    except ValueError as error:
        return FileRead(path, [], str(error))
    except OSError as error:  # it, or what lies beside it, went meanwhile
        return FileRead(path, [], f"{path}: cannot be read: {error.strerror or error}")


def without_gpu(path: Path) -> str:
    return f"{path}: holds no GPU activity"


def processes_of(trace: Trace) -> list[tuple[int, int]]:
    """(process, its busiest GPU), by GPU: those that run collectives, if any does."""
    gpus: dict[int, tuple[int, int]] = {}
    for process, device, ns in used_gpus(trace):
        gpus[process] = max(gpus.get(process, (-1, -1)), (ns, device))
    if trace.operations is not None and len(gpus) > 1:
        talks = np.array([family_of(name) == "communication" for name in trace.names], bool)
        talking = set(trace.operations.process[talks[trace.operations.name]].tolist())
        gpus = {process: gpu for process, gpu in gpus.items() if process in talking} or gpus
    rows = [(device, process) for process, (_, device) in gpus.items()]
    return [(process, device) for device, process in sorted(rows)]


def rank_of_file(trace: Trace, path: Path, step_names: StepNames) -> ReducedRank:
    """Of a file that holds one process."""
    manifest_file = opening.find_manifest(path, trace)
    manifest = manifest_file[1] if manifest_file else None
    analysis = Analysis(trace, step_names.step, step_names.phases)
    report = report_of(analysis, manifest, manifest_file[0] if manifest_file else None)
    by = {
        "capture": trace.rank,
        "manifest": manifest.rank if manifest and manifest.world_size > 1 else None,
        "name": rank_in_name(path),
    }
    source = next((source for source, rank in by.items() if rank is not None), None)
    if source is None:
        raise ValueError(f"{path}: says not which rank it is; put rankN into its name")
    reduced = reduce_rank(analysis, report, by[source] or 0, source, clock=str(path))
    if reduced.world_size is None and manifest:
        return replace(reduced, world_size=manifest.world_size)
    return reduced


def rank_of_process(
    trace: Trace, number: int, process: int, device: int, step_names: StepNames
) -> ReducedRank:
    """One process of a file that holds several, which are numbered by their GPUs."""
    analysis = Analysis(trace, step_names.step, step_names.phases, device, process)
    return reduce_rank(analysis, report_of(analysis), number, "order", clock=str(trace.file))
