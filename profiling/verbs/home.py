"""Shows all runs, captures, memory snapshots and experiments under a folder on one page: date,
verdict, step time, loss, and links to their pages. Ticked rows lead to a report, a dashboard or a
comparison.

{flags}

examples
  python -m profiling home experiments/
  python -m profiling home . --watch
"""

import argparse
from pathlib import Path

from cli.parser import Parser, flag
from cli.plain import without_controls
from profiling.analysis.difference.comparison import compare
from profiling.analysis.memory.analysis import memory_report
from profiling.analysis.open_report import open_report
from profiling.analysis.runs.folder import read_runs
from profiling.analysis.runs.listing import list_entries
from profiling.report.comparison.document import comparison_document
from profiling.report.dashboard.document import dashboard_page
from profiling.report.dashboard.server import MakePage, serve
from profiling.report.home.document import home_page
from profiling.report.home.pages import HomePages, Makers
from profiling.report.memory.comparison import comparison_document as memory_comparison
from profiling.report.memory.document import memory_document
from profiling.report.renderers.page import page
from profiling.report.single.document import report_document
from profiling.shared.run_files import check_output
from profiling.shared.units import counted
from profiling.timeline.memory_snapshot import is_snapshot
from profiling.verbs import compare as compare_verb
from profiling.verbs.memory import compared_snapshots
from profiling.verbs.results import check_new, new_file, put

DEFAULT_FILE = Path("home.html")


def main(argv: list[str]) -> int:
    """Write the page, or serve it; return the exit code. Raises ValueError for a user's mistake."""
    flags = parse(argv)
    if flags.watch and flags.output:
        raise ValueError("-o: --watch serves the page and writes no file; give only one of the two")
    if flags.watch:
        return serve(pages_of(flags.folder).find, "127.0.0.1", flags.port)
    file = flags.output or DEFAULT_FILE
    check_new(file, ".html", ".htm")
    check_output(file, flags.folder)
    entries = list_entries(flags.folder)
    put(file, home_page(flags.folder, entries, links_from=file.absolute().parent))
    broken = sum(entry.problem is not None for entry in entries)
    said = f", {broken} of them cannot be read" if broken else ""
    print(f"{without_controls(str(file))}: {counted(len(entries), 'row')}{said}")
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("home", __doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a folder of runs and captures")
    flag(parser, "-o --output FILE", f"default: {DEFAULT_FILE}", new_file(".html", ".htm"))
    watch = (
        "serve the page to this machine and keep it up to date; it makes reports, dashboards and "
        "comparisons when they are opened; Ctrl-C ends the server"
    )
    flag(parser, "--watch", watch)
    flag(parser, "--port PORT", "default: %(default)s; 0: any free port", int, default=8051)
    return parser.parse_args(argv)


def pages_of(folder: Path) -> HomePages:
    return HomePages(folder, Makers(report_page, comparison_page, dashboard_maker))


def report_page(path: Path) -> str:
    if is_snapshot(path):
        return page(memory_document(memory_report([path]), path.name))
    capture = open_report(path)
    return page(report_document(capture.report, capture.step_events))


def comparison_page(one: Path, other: Path) -> str:
    """The page of a comparison; two that are not alike are compared, too, and the page says it."""
    if compared := compared_snapshots(compare_verb.parse([str(one), str(other)])):
        return page(memory_comparison(compared, (one.name, other.name)))
    flags = compare_verb.parse([str(one), str(other), "--force"])
    sides = compare_verb.both_sides(flags)
    return page(comparison_document(compare(*sides, flags.force, flags.equal_within)))


def dashboard_maker(folders: list[Path]) -> MakePage:
    def make_page(mark: str, bare: bool) -> str:
        runs, notes = read_runs(folders)
        return dashboard_page(runs, notes=notes, mark=mark, bare=bare)

    return make_page
