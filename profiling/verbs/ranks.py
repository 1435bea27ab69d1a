"""What verbs share that take the captures of several ranks: reading, and their report."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from cli.plain import without_controls
from profiling.analysis.ranks.files import Progress, open_ranks
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
    """Raises ValueError."""
    with counting(len(paths), "read") as progress:
        return open_ranks(paths, progress)


@contextmanager
def counting(files: int, what: str) -> Iterator[Progress]:
    """A bar on stderr, since stdout is the answer: how many captures have been read, or written."""
    console = Console(stderr=True)
    words = TextColumn(f"captures {what}")
    columns = BarColumn(), MofNCompleteColumn(), words, TimeRemainingColumn()
    shown = console.is_terminal and files > 1
    with Bar(*columns, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task("", total=files)
        yield lambda count: bar.update(task, completed=count)
