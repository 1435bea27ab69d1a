"""Reads the captures of several ranks in parallel. Called by the verbs.

Each file is reduced in the process that reads it (see reduce), so that no more whole captures are
in memory at once than there are processes.
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
from profiling.analysis.analysis import Analysis, last_complete
from profiling.analysis.gpu_work.families import family_of
from profiling.analysis.ranks.choice import FileRead, choose, list_numbers
from profiling.analysis.ranks.found import TooFewRanks, rank_in_name
from profiling.analysis.ranks.reduce import ReducedRank, reduce_rank
from profiling.analysis.ranks.summary import RanksAnalysis, analyse
from profiling.analysis.records import Finding
from profiling.analysis.runs.run_clocks import RunClocks, clocks_of_run
from profiling.analysis.steps.find import used_gpus
from profiling.analysis.summary import summarize as report_of
from profiling.analysis.verdict.health import free_step_range_ms
from profiling.timeline import opening
from profiling.timeline.trace import Trace

MOST_WORKERS = 16  # each holds a whole capture
READ_HERE_BYTES = 4 << 20  # total size below which reading is faster than starting a process
KILLED = (
    "a process that read one of the files was killed, perhaps for lack of memory; name fewer files"
)
Progress = Callable[[int], None]  # how many files have been read


@dataclass(frozen=True)
class StepNames:
    """Names of the ranges that are steps and phases; None: detect them. See Analysis."""

    step: str | None = None
    phases: list[str] | None = None


DETECT = StepNames()


def open_ranks(
    paths: Sequence[Path],
    progress: Progress = lambda count: None,
    step_names: StepNames = DETECT,
) -> RanksAnalysis:
    """Analyse the captures at `paths` as ranks of one training.

    A capture that cannot be read, or is of another run or window, becomes a finding, and the rest
    is analysed. `progress` is called with the number of files read so far. Raises ValueError with
    one line, which is TooFewRanks where fewer than two ranks are left.
    """
    clocks = clocks_of_run(paths)
    files = read_files(paths, progress, step_names, clocks)
    findings = [Finding("warning", f"left out: {file.error}") for file in files if file.error]
    ranks, left_out = choose(files)
    findings += left_out
    if files and all(file.error == without_gpu(file.path) for file in files):
        raise TooFewRanks(
            f"{files_text(paths)}: ranks are compared by their GPU work, and these captures "
            "contain none"
        )
    if len(ranks) < 2:
        reason = findings[0].what if findings else "the files contain one process on one GPU"
        raise TooFewRanks(f"{files_text(paths)}: fewer than two ranks to compare; {reason}")
    ranks = [replace(rank, gpu_clock=clocks.of_rank(rank.rank)) for rank in ranks]
    not_read = [Finding("note", clocks.problem)] if clocks.problem else []
    return analyse(ranks, findings + shared_notes(ranks) + not_read)


def shared_notes(ranks: Sequence[ReducedRank]) -> list[Finding]:
    """Findings from the captures' notes, each note once with all its ranks.

    The rank's own report has the details.
    """
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


def read_files(
    paths: Sequence[Path], progress: Progress, step_names: StepNames, clocks: RunClocks
) -> list[FileRead]:
    """Read all files, in the order of `paths`.

    Raises ValueError where a process that reads one is killed.
    """
    results = []
    work = partial(read_file, step_names=step_names, clocks=clocks)
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
        with suppress(OSError):  # reading the file reports the error
            size += path.stat().st_size
    return 1 if size < READ_HERE_BYTES else min(len(paths), os.cpu_count() or 1, MOST_WORKERS)


def read_file(path: Path, step_names: StepNames, clocks: RunClocks) -> FileRead:
    """Read and reduce all ranks of one file; the result has an error in place of unreadable ones.

    Raises nothing for a damaged, unsuitable or missing file.
    """
    try:
        trace = opening.open_capture(path)
        subjects = processes_of(trace)
        if not subjects:
            raise ValueError(without_gpu(path))
        if len(subjects) == 1:
            return FileRead(path, [rank_of_file(trace, path, step_names, clocks)])
        ranks = [
            rank_of_process(trace, number, process, device, step_names)
            for number, (process, device) in enumerate(subjects)
        ]
        return FileRead(path, ranks)
    except ValueError as error:
        return FileRead(path, [], str(error))
    except OSError as error:  # the file, or one beside it, was deleted meanwhile
        return FileRead(path, [], f"{path}: cannot be read: {error.strerror or error}")


def without_gpu(path: Path) -> str:
    return f"{path}: contains no GPU activity"


def processes_of(trace: Trace) -> list[tuple[int, int]]:
    """(process, its busiest GPU) of each process with GPU work, sorted by GPU.

    If some processes run collectives, only those.
    """
    gpus: dict[int, tuple[int, int]] = {}
    for process, device, ns in used_gpus(trace):
        gpus[process] = max(gpus.get(process, (-1, -1)), (ns, device))
    if trace.operations is not None and len(gpus) > 1:
        communicates = np.array([family_of(name) == "communication" for name in trace.names], bool)
        communicating = set(trace.operations.process[communicates[trace.operations.name]].tolist())
        gpus = {process: gpu for process, gpu in gpus.items() if process in communicating} or gpus
    rows = [(device, process) for process, (_, device) in gpus.items()]
    return [(process, device) for device, process in sorted(rows)]


def rank_of_file(trace: Trace, path: Path, step_names: StepNames, clocks: RunClocks) -> ReducedRank:
    """Reduce a file that holds one process.

    Raises ValueError where neither capture, manifest nor file name gives its rank.
    """
    manifest_file = opening.find_manifest(path, trace)
    manifest = manifest_file[1] if manifest_file else None
    step, phases = step_names.step, step_names.phases
    last = last_complete(manifest, step)
    analysis = Analysis(trace, step, phases, keep_first=True, last_iteration=last)
    report = report_of(analysis, manifest, manifest_file[0] if manifest_file else None, clocks)
    by = {
        "capture": trace.rank,
        "manifest": manifest.rank if manifest and manifest.world_size > 1 else None,
        "name": rank_in_name(path),
    }
    source = next((source for source, rank in by.items() if rank is not None), None)
    if source is None:
        raise ValueError(
            f"{path}: the file does not say which rank it is from; put rankN into its name"
        )
    reduced = reduce_rank(analysis, report, by[source] or 0, source, clock=str(path))
    if manifest is None:
        return reduced
    world_size = manifest.world_size if reduced.world_size is None else reduced.world_size
    return replace(reduced, world_size=world_size, free_step_range_ms=free_step_range_ms(manifest))


def rank_of_process(
    trace: Trace, number: int, process: int, device: int, step_names: StepNames
) -> ReducedRank:
    """Reduce one process of a file that holds several; `number` is its place by GPU."""
    analysis = Analysis(trace, step_names.step, step_names.phases, device, process, keep_first=True)
    return reduce_rank(analysis, report_of(analysis), number, "order", clock=str(trace.file))
