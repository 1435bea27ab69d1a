"""Shows reports of the examples that come with this project.

The demo writes a report, a comparison, a report of two ranks and a dashboard. It needs no GPU, no
account and no network, and trains nothing. All examples were recorded on H200s.

{flags}

examples
  python -m profiling demo
  python -m profiling demo -o pages --no-open

exit code: 0, or 2 if the pages cannot be written
"""

import os
import shlex
import sys
import webbrowser
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cli.files import make_folder, short_path
from cli.parser import Parser, flag
from cli.plain import without_controls
from cli.program import as_called
from profiling.analysis.difference.compared import compared_capture
from profiling.analysis.difference.comparison import compare
from profiling.analysis.open_report import open_report
from profiling.analysis.ranks.files import open_ranks
from profiling.analysis.ranks.found import captures_in
from profiling.analysis.runs.folder import find_run_folders, read_runs
from profiling.report.comparison.document import comparison_document
from profiling.report.dashboard.document import dashboard_page
from profiling.report.ranks.document import ranks_document
from profiling.report.ranks.timeline import timeline_of
from profiling.report.renderers.page import page
from profiling.report.single.document import report_document
from profiling.shared.json_records import to_json
from profiling.verbs.results import check_new, put

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
REPORTED, MANIFEST = EXAMPLES / "flash_metrics.sqlite.gz", EXAMPLES / "flash_metrics.window-1.json"
COMPARED = EXAMPLES / "slow_compile.sqlite.gz", EXAMPLES / "flash_compile.sqlite.gz"
LATE_RANK = EXAMPLES / "late_rank"  # GPT-2 124M by ddp; rank 1 was given matrix products more
RUNS = EXAMPLES / "runs"
FOLDER = Path("profiling-demo")
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


@dataclass(frozen=True)
class Page:
    file: str
    shows: str
    make: Callable[[], str]  # the HTML text


def main(argv: list[str]) -> int:
    """Write the pages; return the exit code. Raises ValueError if they cannot be written."""
    flags = parse(argv)
    make_folder(flags.output)
    paths = [flags.output / made.file for made in PAGES]
    for path in paths:
        check_new(path, ".html")
    for path, made in zip(paths, PAGES, strict=True):
        put(path, made.make())
        print(without_controls(f"{path}  {made.shows}"), flush=True)
    opened = not flags.no_open and has_display() and webbrowser.open(paths[0].resolve().as_uri())
    print(next_steps(None if opened else paths[0]))
    return 0


def parse(argv: list[str]) -> Namespace:
    parser = Parser("demo", __doc__)
    flag(
        parser,
        "-o --output FOLDER",
        f"folder for the pages (default: {FOLDER})",
        Path,
        default=FOLDER,
    )
    flag(parser, "--no-open", "do not open the first page in the browser")
    return parser.parse_args(argv)


def report_page() -> str:
    capture = open_report(REPORTED, MANIFEST)
    document = report_document(capture.report, capture.step_events)
    return page(document, as_json=to_json(capture.report))


def compare_page() -> str:
    slow, flash = (compared_capture(open_report(path).plain_report, None) for path in COMPARED)
    comparison = compare(slow, flash)
    return page(comparison_document(comparison), as_json=to_json(comparison))


def ranks_page() -> str:
    analysis = open_ranks(captures_in(LATE_RANK))
    document = ranks_document(analysis.report, timeline_of(analysis))
    return page(document, as_json=to_json(analysis.report))


def runs_page() -> str:
    runs, notes = read_runs(find_run_folders([RUNS]))
    return dashboard_page(runs, notes=notes)


PAGES = (
    Page(
        "demo-report.html",
        "where the time of a training step on an H200 goes, and what limits the step",
        report_page,
    ),
    Page(
        "demo-compare.html",
        "slow and flash attention on that GPU: how much faster flash is, and why",
        compare_page,
    ),
    Page(
        "demo-ranks.html",
        "two GPUs train GPT-2 together: which one the other waits for, the cost, and the reason",
        ranks_page,
    ),
    Page(
        "demo-dashboard.html",
        "four configurations, two seeds each, on that GPU: loss, speed, and their uncertainty",
        runs_page,
    ),
)


def has_display() -> bool:
    """Whether there is a display; without one webbrowser may start a browser of the terminal, or
    none."""
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, DISPLAYS))


def next_steps(unopened: Path | None) -> str:
    """Text of the next steps. `unopened` is the first page, if no browser shows it."""
    report = shlex.join(["report", short_path(REPORTED), "--manifest", short_path(MANIFEST)])
    lines = [
        "What next",
        *([f"  open {unopened} in a browser"] if unopened else []),
        "  # the first page in the terminal",
        f"  python -m profiling {report}",
        "  # the third: two ranks",
        f"  python -m profiling {shlex.join(['report', short_path(LATE_RANK)])}",
        "  # a training script of your own, with no line changed",
        "  python -m profiling run -- python train_mine.py",
        "  # a run of this project's trainer, on any machine, and its report",
        "  python train.py config/shakespeare_char_cpu.yaml profile=torch max_iters=100",
        "  python -m profiling report out-shakespeare-char-cpu",
        "  # what can be profiled here",
        "  python -m profiling doctor",
    ]
    return as_called(without_controls("\n".join(["", *lines])))
