"""Reports memory snapshots, for the verbs report and compare."""

import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from cli.plain import plain, without_controls
from cli.program import as_called
from profiling.analysis.memory import difference
from profiling.analysis.memory.analysis import memory_report, report_of_highest
from profiling.analysis.memory.device_memory import read_memory
from profiling.analysis.memory.fit import fit_of
from profiling.analysis.memory.memory_records import MemoryComparison, MemoryReport
from profiling.analysis.runs.folder import is_run_folder
from profiling.report.memory.comparison import comparison_document
from profiling.report.memory.document import answer, memory_document
from profiling.shared.json_records import to_json
from profiling.timeline.memory_snapshot import in_folder, may_be_snapshot, snapshots_alone
from profiling.verbs.gate import CANNOT_TELL, REGRESSION
from profiling.verbs.progress import reading_bar
from profiling.verbs.results import check_outputs, show_answer, show_or_write

MORE = (
    "--html FILE writes it as a page with a timeline; python -m profiling compare A B shows what "
    "two snapshots differ in."
)
# flags of report and compare
OF_CAPTURES = ["step", "phases", "process", "manifest", "steps", "each", "ranks", "force", "wandb"]


def read_report(paths: list[Path], device: int | None = None) -> MemoryReport:
    """The report on the snapshots, with a bar on a terminal. Raises ValueError."""
    with reading_bar(paths[0]):
        return memory_report(paths, device)


def read_fit(paths: list[Path], flags: Namespace) -> MemoryReport:
    """The report with what would fit, with a bar on a terminal. Raises ValueError."""
    with reading_bar(paths[0]):
        memories = [memory for path in paths for memory in read_memory(path)]
        report = report_of_highest(memories, flags.device)
        own = [memory for memory in memories if memory.history.device == report.device]
        fit = fit_of(report, own, flags.batch, flags.context, flags.gpu_memory, flags.predict)
    return replace(report, fit=fit)


def report_memory(flags: Namespace, paths: list[Path]) -> None:
    """Report the snapshots: write what was asked for, or print it."""
    check_outputs(flags, *paths)
    refuse_flags(flags)
    for path in paths if any(place.is_dir() for place in flags.capture) else []:
        print(f"reading {plain(path)}", file=sys.stderr)
    report = read_fit(paths, flags) if flags.fit else read_report(paths, flags.device)
    document = memory_document(report, flags.capture[0].absolute().name)
    if not show_or_write(flags, to_json(report), document, without_controls(answer(report))):
        print(as_called(f"\n{MORE}\n"))
        show_answer(document)


def compare_memory(flags: Namespace) -> int | None:
    """Compare two sides that are snapshots, or folders of runs that have nothing else.

    Returns the exit code, or None if they are not. Raises ValueError if only one is a snapshot.
    """
    compared = compared_snapshots(flags)
    if compared is None:
        return None
    names = (flags.baseline.absolute().name, flags.candidate.absolute().name)
    document = comparison_document(compared, names)
    line = without_controls(compared.sentence)
    if not show_or_write(flags, to_json(compared), document, line):
        print()
        show_answer(document)
    return gate_memory(compared, flags.fail_on_regression)


def compared_snapshots(flags: Namespace) -> MemoryComparison | None:
    """The difference of two sides that hold snapshots and nothing else, or None if neither does.

    Raises ValueError if only one does; of two folders only if neither is a run's, which has rows.
    """
    sides = [flags.baseline, flags.candidate]
    snapshots = [snapshots_alone(side) for side in sides]
    if not all(snapshots):
        has_rows = any(map(is_run_folder, sides)) and not any(map(may_be_snapshot, sides))
        if has_rows or not any(snapshots):
            return None
        path = sides[snapshots.index([])]
        other = sides[1 - snapshots.index([])]
        if not path.exists():
            raise ValueError(f"{path}: no such file or folder")
        has = "has nothing else" if other.is_dir() else "is one"
        raise ValueError(f"{path}: {describe_side(path)}, but {other} {has}")
    refuse_flags(flags)
    one, other = map(read_report, snapshots)
    return difference.compare_memory(one, other, flags.equal_within)


def describe_side(side: Path) -> str:
    """Words for a side that is not compared with memory snapshots."""
    if not side.is_dir():
        return "is no memory snapshot"
    return "has captures beside its snapshots" if in_folder(side) else "has no snapshot of a run"


def gate_memory(compared: MemoryComparison, limit_percent: float | None) -> int:
    """The exit code: REGRESSION if the peak is higher by more than the limit."""
    if limit_percent is None:
        return 0
    if compared.verdict == "cannot_tell":
        return CANNOT_TELL
    higher = compared.ratio is not None and 100 * (compared.ratio - 1) > limit_percent
    return REGRESSION if compared.verdict == "more" and higher else 0


def refuse_flags(flags: Namespace) -> None:
    """Raise ValueError for a flag that is about times, or about what a snapshot does not have."""
    for name in OF_CAPTURES:
        if getattr(flags, name, None):
            raise ValueError(f"--{name}: has no meaning for a memory snapshot; leave it out")
