"""Captures of several ranks, for the verbs that take them: reading them, and their report."""

import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from cli.plain import plain, without_controls
from cli.program import as_called
from profiling.analysis.open_report import open_report
from profiling.analysis.ranks.files import DETECT, Progress, StepNames, open_ranks
from profiling.analysis.ranks.found import TooFewRanks, left_out_finding
from profiling.analysis.ranks.summary import RanksAnalysis
from profiling.report.ranks.document import (
    first_screen,
    late_rows,
    ranks_document,
    verdict_line,
)
from profiling.report.ranks.timeline import timeline_of
from profiling.report.renderers.page import page
from profiling.report.single.document import report_document
from profiling.shared.json_records import to_json
from profiling.verbs.results import outputs, put, say_written, show, show_answer, write_outputs


def report_ranks(flags: Namespace, analysis: RanksAnalysis) -> None:
    """Write the outputs that were asked for, or print the report. Raises ValueError."""
    if not outputs(flags):
        show_ranks(analysis, flags.capture, flags.full)
        return
    timeline = timeline_of(analysis, flags.steps) if flags.html else None
    names = StepNames(flags.step, flags.phases)
    pages = write_pages(flags.html, analysis, names, flags.steps) if flags.each else {}
    document = ranks_document(analysis.report, timeline, pages)
    written = write_outputs(flags, to_json(analysis.report), document)
    say_written(verdict_line(analysis.report), written)


def write_pages(
    html: Path, analysis: RanksAnalysis, names: StepNames, steps: tuple[int, int] | None
) -> dict[int, str]:
    """Write each rank's own report beside the page of all; return rank -> the file's name.

    `steps` are the first and last that the timelines show; None: as many as there is room for.
    """
    file_names = {rank.rank: f"{html.stem}-rank{rank.rank}.html" for rank in analysis.ranks}
    with captures_bar(len(file_names), "drawn") as progress:
        for count, rank in enumerate(analysis.ranks):
            capture = open_report(
                Path(rank.clock),
                step=names.step,
                phases=names.phases,
                process=rank.process,
                device=rank.device,
            )
            document = report_document(capture.report, capture.events_of_steps(steps))
            html_text = page(document, as_json=to_json(capture.report))
            put(html.with_name(file_names[rank.rank]), html_text)
            progress(count + 1)
    return file_names


def show_ranks(analysis: RanksAnalysis, given: Sequence[Path], full: bool = False) -> None:
    """Print one screen of the report, or all of it if `full`.

    `given` are the paths that name the captures on a command line.
    """
    document = ranks_document(analysis.report)
    show(document if full else first_screen(document))
    print(next_steps(analysis, given), end="\n\n")
    show_answer(document)


def next_steps(analysis: RanksAnalysis, given: Sequence[Path]) -> str:
    all_of_it = ["--ranks"] if len(given) == 1 and given[0].is_file() else []
    captures = shlex.join([*map(str, given), *all_of_it])
    steps = {
        f"report {captures} --html ranks.html": "with a timeline of all ranks",
        f"export {captures} --perfetto ranks.json.gz": "all on one clock, for ui.perfetto.dev",
    }
    if rows := late_rows(analysis.report):
        late = next(rank for rank in analysis.ranks if rank.rank == rows[0].rank)
        alone = sum(rank.clock == late.clock for rank in analysis.ranks) == 1
        process = "" if alone else f" --process {late.process}"
        step = f"report {shlex.quote(late.clock)}{process}"
        steps = {step: f"what delays rank {late.rank}"} | steps
    lines = [f"  # {why}\n  python -m profiling {words}" for words, why in steps.items()]
    return as_called(without_controls("\n".join(["", "What next", *lines])))


def read_ranks(paths: Sequence[Path], step_names: StepNames = DETECT) -> RanksAnalysis:
    """Read the captures of several ranks, with a progress bar. Raises ValueError."""
    with captures_bar(len(paths), "read") as progress:
        return open_ranks(paths, progress, step_names)


def read_folder(
    given: Sequence[Path], paths: Sequence[Path], step_names: StepNames = DETECT
) -> RanksAnalysis | None:
    """Read the captures of several ranks that lie in the places `given`.

    None if one folder was given and its captures are of one rank, with a note on stderr. Raises
    ValueError.
    """
    try:
        analysis = read_ranks(paths, step_names)
    except TooFewRanks as error:
        if len(given) > 1 or not given[0].is_dir():
            raise
        print(plain(f"{error}; using only {paths[0].name}"), file=sys.stderr)
        return None
    other = left_out_finding(paths, given) if all(place.is_dir() for place in given) else None
    if other is None:
        return analysis
    findings = [*analysis.report.findings, other]
    return replace(analysis, report=replace(analysis.report, findings=findings))


@contextmanager
def captures_bar(files: int, what: str) -> Iterator[Progress]:
    """Show a bar of captures within the block; it gives a function to call with how many are done.

    `what` is done with them: read, drawn or written. The bar is on stderr, since stdout is for the
    answer, and shows on a terminal alone.
    """
    console = Console(stderr=True)
    words = TextColumn(f"captures {what}")
    columns = BarColumn(), MofNCompleteColumn(), words, TimeRemainingColumn()
    shown = console.is_terminal and files > 1
    with Bar(*columns, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task("", total=files)
        yield lambda count: bar.update(task, completed=count)
