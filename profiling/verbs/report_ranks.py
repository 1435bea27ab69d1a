"""The report of several ranks. Called by the verbs report and run."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cli.plain import without_controls
from profiling.analysis.ranks.files import open_ranks
from profiling.analysis.ranks.summary import RanksAnalysis
from profiling.records import to_json
from profiling.report.ranks.document import ranks_document, verdict_line
from profiling.report.ranks.timeline import timeline_of
from profiling.verbs.results import STDOUT, outputs, show, show_answer, write_outputs


def report_ranks(flags: Namespace, paths: Sequence[Path]) -> int:
    """Reads the captures, and writes what was asked for or prints it. Raises ValueError."""
    analysis = read(paths)
    report = analysis.report
    document = ranks_document(report, timeline_of(analysis) if flags.html else None)
    written = write_outputs(flags, to_json(report), document)
    if not written:
        show(document)
        show_answer(document)
    elif STDOUT not in written:
        print(verdict_line(report))
        print("written:", without_controls(", ".join(map(str, written))))
    if flags.open and flags.html in outputs(flags):
        import webbrowser

        webbrowser.open(flags.html.resolve().as_uri())
    return 0


def read(paths: Sequence[Path]) -> RanksAnalysis:
    """With a bar on stderr: stdout is the report."""
    console = Console(stderr=True)
    columns = BarColumn(), MofNCompleteColumn(), TextColumn("captures"), TimeRemainingColumn()
    shown = console.is_terminal and len(paths) > 1
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task("reading", total=len(paths))
        return open_ranks(paths, lambda count: progress.update(task, completed=count))
