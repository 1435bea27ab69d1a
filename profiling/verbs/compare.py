"""`python -m profiling compare BASELINE CANDIDATE`: two captures, or two run folders."""

import shlex
import sys
from argparse import Namespace
from pathlib import Path

from rich.console import Console

from cli.files import write_text
from cli.keys import spell
from cli.parser import Parser, names, new_file, within
from cli.plain import plain, without_controls
from profiling.analysis.capture import open_report
from profiling.analysis.difference.comparability import FEWEST_STEPS
from profiling.analysis.difference.compared import (
    Compared,
    compared_capture,
    compared_run,
)
from profiling.analysis.difference.comparison import compare
from profiling.analysis.difference.records import Comparison
from profiling.analysis.runs.configuration import factor
from profiling.analysis.runs.folder import RunFolder, is_run_folder, newest_capture, read_run
from profiling.records import to_json
from profiling.report.comparison.document import comparison_document
from profiling.report.document import Document
from profiling.report.renderers import markdown, page, terminal
from profiling.timeline.opening import newest

PURPOSE = "Says what changed between two captures, or two run folders, and how sure that is."
NOTES = """\
Captures are .sqlite, .sqlite.gz, .nsys-rep and torch.profiler's .json, .json.gz; of a folder with
several the newest counts. Of two runs (their out_dir) step times are those of the unprofiled
iterations, and the newest capture in the folder explains them.

examples
  python -m profiling compare slow.sqlite flash.sqlite
  python -m profiling compare out-slow out-flash --html comparison.html
  python -m profiling compare main.sqlite branch.sqlite --fail-on-regression 5

ratio: candidate / baseline, of median step times; below 1 the candidate is faster. The 95 %
interval is a bootstrap over blocks of steps. It knows these two runs alone, and two starts of one
program can differ by a per cent: so an interval has to clear 1 by that to be called a difference.
`python -m profiling ab` measures what starts differ by.

exit code: 0; 1 a regression: the verdict is "slower" and the ratio above 1 + PERCENT / 100;
2 a file that cannot be read, or two that do not compare (without --force)
"""


def main(argv: list[str]) -> int:
    """Compares, prints, writes; returns the exit code. Raises ValueError for bad input."""
    flags = parse(argv)
    comparison = compare(*both_sides(flags), flags.force)
    document = deliver(flags, comparison)
    if comparison.verdict == "not_comparable":
        raise ValueError(refusal(comparison, flags.force))
    terminal.show(document, Console(highlight=False))
    print_next(flags, comparison)
    if regressed(comparison, flags.fail_on_regression):
        print(f"\nregression: slower by more than {flags.fail_on_regression:g} %")
        return 1
    return 0


def parse(argv: list[str]) -> Namespace:
    parser = Parser("compare", PURPOSE, NOTES)
    add = parser.add_argument
    add("baseline", type=Path, help="a capture, a folder of captures, or the folder of a run")
    add("candidate", type=Path, help="likewise")
    force = "compare in spite of another GPU, batch, model, dtype, version"
    add("--force", action="store_true", help=force)
    limit = "exit code 1 when the candidate is slower by more than PERCENT"
    add("--fail-on-regression", type=within(float, 0), metavar="PERCENT", help=limit)
    add("--step", metavar="NAME", help="the range of a step, in captures of other programs")
    add("--phases", type=names, metavar="A,B", help="the ranges of its phases, likewise")
    for name, what in (
        ("json", "the comparison as JSON; docs/report-schema.md has the fields"),
        ("markdown", "as Markdown, for a pull request"),
        ("html", "as one self-contained page"),
    ):
        add(f"--{name}", type=new_file, metavar="FILE", help=what)
    return parser.parse_args(argv)


def both_sides(flags: Namespace) -> tuple[Compared, Compared]:
    """Runs by their unprofiled steps, captures by theirs.

    Runs that logged too few rows without a profiler are compared by their captures, and that is
    said.
    """
    paths = flags.baseline, flags.candidate
    runs = [read_run(path) if is_run_folder(path) else None for path in paths]
    captures = [capture_of(path) for path in paths]
    short = [str(run.folder) for run in runs if run and len(run.step_ms) < FEWEST_STEPS]
    if short and None not in captures:
        print(
            f"{plain(' and '.join(short))}: too few rows without a profiler for an interval; "
            "comparing the captured steps instead",
            file=sys.stderr,
        )
        runs = [None, None]
    one, other = (side(*pair, flags) for pair in zip(runs, captures, strict=True))
    return one, other


def capture_of(path: Path) -> Path | None:
    """The newest of a folder; None: the run in it has none."""
    if is_run_folder(path):
        return newest_capture(path)
    return newest(path) if path.is_dir() else path


def side(run: RunFolder | None, capture: Path | None, flags: Namespace) -> Compared:
    if run is None:
        assert capture, "what is no run is a capture"
        return compared_capture(open_report(capture, step=flags.step, phases=flags.phases).report)
    if capture is None:
        profile = run.folder / "profile"
        why = f"no capture in {profile}, so no families and kernels; train with profile=nsys"
        return compared_run(run, None, why)
    return compared_run(run, open_report(capture).report)  # of this project: its ranges are known


def refusal(comparison: Comparison, forced: bool) -> str:
    reasons = "; ".join(comparison.comparability.reasons)
    cure = "" if forced else " (--force compares in spite of it)"
    return f"{comparison.baseline.file} and {comparison.candidate.file}: {reasons}{cure}"


def deliver(flags: Namespace, comparison: Comparison) -> Document:
    """Writes the files that were asked for; returns what they say."""
    document = comparison_document(comparison)
    if flags.json:
        write_text(flags.json, to_json(comparison, indent=1))
    if flags.markdown:
        write_text(flags.markdown, markdown.markdown(document))
    if flags.html:
        write_text(flags.html, page.page(document))
    return document


def print_next(flags: Namespace, comparison: Comparison) -> None:
    print()
    for path in (flags.json, flags.markdown, flags.html):
        if path:
            print(without_controls(f"written {path}"))
    if not flags.html:
        pair = without_controls(shlex.join([str(flags.baseline), str(flags.candidate)]))
        print(f"next    python -m profiling compare {pair} --html comparison.html")
    if comparison.differences and (key := factor(comparison.differences)):
        values = comparison.differences[key]
        swept = without_controls(f"{key}={spell(values.baseline)},{spell(values.candidate)}")
        print(f"next    python -m profiling ab FILE {swept}   (would other starts agree?)")
    for path in (flags.baseline, flags.candidate):
        if path.is_file():
            print(without_controls(f"next    python -m profiling report {shlex.quote(str(path))}"))


def regressed(comparison: Comparison, limit_percent: float | None) -> bool:
    """Surely slower, and by more than the limit."""
    if limit_percent is None or comparison.verdict != "slower":
        return False
    return comparison.step_ms.ratio > 1 + limit_percent / 100
