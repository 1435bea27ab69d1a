"""Shows kept baselines over the commits: every sitting of `baseline save`, as a table, as CSV for
tools that find change points, and as a page with a chart.

{flags}

examples
  python -m profiling history
  python -m profiling history --name main --csv history.csv --html history.html
  python -m profiling history ci-cache/baselines --json - | jq '.[-1].value'

Columns of the CSV: time (of the commit, else of the measurement), commit, baseline, value (ms per
step), low_ms, high_ms, processes, noise_percent, measured, dirty, gpu, cpu, cores, torch, cuda,
command.

exit code: 0, or 2 for a mistake in the command line or a file that is damaged
"""

from argparse import Namespace
from functools import partial
from pathlib import Path

from cli.parser import Parser, flag, names
from profiling.launch.experiment.baselines import FOLDER, read_sittings
from profiling.report.history import headline, history_csv, history_document, points_of
from profiling.shared.json_records import to_json
from profiling.verbs.results import (
    check_outputs,
    new_file,
    output_flags,
    put,
    say_written,
    show,
    write_outputs,
)


def main(argv: list[str]) -> int:
    """Show and write; return the exit code. Raises ValueError for a user's mistake."""
    flags = parse(argv)
    points = points_of(read_sittings(flags.folder, flags.name))
    document = history_document(points)
    written = write_outputs(flags, to_json(points, indent=1), document)
    if flags.csv:
        put(flags.csv, history_csv(points))
        written.append(flags.csv)
    if not written:
        show(document)
    say_written(headline(points), written)
    return 0


def parse(argv: list[str]) -> Namespace:
    parser = Parser("history", __doc__)
    help = f"folder of the baselines (default {FOLDER})"
    parser.add_argument("folder", type=Path, metavar="DIR", nargs="?", default=FOLDER, help=help)
    add = partial(flag, parser)
    add("--name NAME,NAME", "these baselines alone", names, default=[])
    add("--csv FILE", "a row for each sitting", new_file(".csv", stdout=True))
    output_flags(parser, json="the rows as JSON", markdown="as Markdown", html="as an HTML page")
    flags = parser.parse_args(argv)
    check_outputs(flags, *flags.folder.glob("*/*.json"))
    return flags
