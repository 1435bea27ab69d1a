"""`python -m profiling compare BASELINE CANDIDATE`: two captures, or two run folders.

Called by profiling.__main__. `capture_report` is also what `ab` explains with.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from cli.files import write_text
from cli.parser import Parser
from profiling.analysis.capture import open_report
from profiling.analysis.difference.comparability import FEWEST_STEPS, factor
from profiling.analysis.difference.comparison import compare
from profiling.analysis.difference.sentence import sentence
from profiling.analysis.runs.run_folder import is_run_folder, report_of_run
from profiling.report.comparison_console import print_comparison
from profiling.report.comparison_markdown import comparison_markdown
from profiling.report.comparison_page import comparison_page
from profiling.report.comparison_tables import spell
from profiling.timeline.opening import newest

HELP = """\
Says what changed between two captures, or two run folders, and how sure that is.

usage: python -m profiling compare [FLAGS] BASELINE CANDIDATE

  BASELINE CANDIDATE   captures (.sqlite, .sqlite.gz, .nsys-rep, torch.profiler's .json, .json.gz),
                       or the folders of two runs (out_dir): then step times are those of the
                       unprofiled iterations, and the newest capture in the folder explains them

flags
  --force                       compare in spite of another GPU, batch, model, dtype, version
  --fail-on-regression PERCENT  exit code 1 when the candidate is slower by more than PERCENT
  --step NAME, --phases A,B     the ranges of steps and phases, in captures of other programs
  --json FILE                   the comparison as JSON; docs/report-schema.md has the fields
  --markdown FILE               as Markdown, for a pull request
  --html FILE                   as one self-contained page

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
    if {"-h", "--help"} & set(argv):
        print(HELP, end="")
        return 0
    request = parse(argv)
    comparison = compare(*both_sides(request), request.force)
    comparison["sentence"] = sentence(comparison)
    deliver(request, comparison)
    if comparison["verdict"] == "not_comparable":
        raise ValueError(refusal(comparison, request.force))
    print_comparison(comparison, Console(highlight=False))
    print_next(request, comparison)
    if regressed(comparison, request.fail_on_regression):
        print(f"\nregression: slower by more than {request.fail_on_regression:g} %")
        return 1
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("compare")
    parser.add_argument("baseline", type=Path)
    parser.add_argument("candidate", type=Path)
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--fail-on-regression", type=float)
    parser.add_argument("--step")
    parser.add_argument("--phases", type=lambda text: text.split(","))
    for flag in ("--json", "--markdown", "--html"):
        parser.add_argument(flag, type=Path)
    request = parser.parse_args(argv)
    if request.fail_on_regression is not None and not request.fail_on_regression >= 0:
        raise ValueError("--fail-on-regression: must be a percentage from 0 up")
    return request


def both_sides(request: argparse.Namespace) -> list[dict[str, Any]]:
    """The reports of baseline and candidate.

    Runs that logged too few rows without a profiler are compared by their captures, and that is
    said.
    """
    paths = (request.baseline, request.candidate)
    sides = [side_report(path, request) for path in paths]
    short = [
        path
        for path, side in zip(paths, sides, strict=True)
        if is_run_folder(path) and len(side["window"]["step_ms"]["values"]) < FEWEST_STEPS
    ]
    captures = [capture_in(path) if is_run_folder(path) else path for path in paths]
    if not short or None in captures:
        return sides
    print(
        f"{' and '.join(map(str, short))}: too few rows without a profiler for an interval; "
        "comparing the captured steps instead",
        file=sys.stderr,
    )
    return [capture_report(path, request.step, request.phases) for path in captures]


def side_report(path: Path, request: argparse.Namespace) -> dict[str, Any]:
    """The report of a run folder, or of a capture (of a folder the newest)."""
    if is_run_folder(path):
        return run_report(path)  # of this project: its ranges are known
    return capture_report(newest(path) if path.is_dir() else path, request.step, request.phases)


def run_report(folder: Path) -> dict[str, Any]:
    """Step times of the run's own record, the rest of its newest capture where there is one."""
    path = capture_in(folder)
    if path is None:
        why = f"no capture in {folder}/profile, so no families and kernels; train with profile=nsys"
        return report_of_run(folder, None, why)
    return report_of_run(folder, capture_report(path), "")


def capture_in(folder: Path) -> Path | None:
    """The newest capture of the run in this folder."""
    try:
        return newest(folder / "profile")
    except ValueError:
        return None


def capture_report(
    path: Path, step: str | None = None, phases: list[str] | None = None
) -> dict[str, Any]:
    """The report of a capture with its manifest. Raises ValueError with one line."""
    return msgspec.to_builtins(open_report(path, step=step, phases=phases).report)


def refusal(comparison: dict[str, Any], forced: bool) -> str:
    reasons = "; ".join(comparison["comparability"]["reasons"])
    cure = "" if forced else " (--force compares in spite of it)"
    files = f"{comparison['baseline']['file']} and {comparison['candidate']['file']}"
    return f"{files}: {reasons}{cure}"


def deliver(request: argparse.Namespace, comparison: dict[str, Any]) -> None:
    """The files that were asked for."""
    if request.json:
        write_text(request.json, json.dumps(comparison, indent=1, allow_nan=False) + "\n")
    if request.markdown:
        write_text(request.markdown, comparison_markdown(comparison))
    if request.html:
        write_text(request.html, comparison_page(comparison))


def print_next(request: argparse.Namespace, comparison: dict[str, Any]) -> None:
    pair = shlex.join([str(request.baseline), str(request.candidate)])
    print()
    for path in (request.json, request.markdown, request.html):
        if path:
            print(f"written {path}")
    if not request.html:
        print(f"next    python -m profiling compare {pair} --html comparison.html")
    if key := factor(comparison["differences"]):
        pair = comparison["differences"][key]
        values = ",".join(spell(pair[side]) for side in ("baseline", "candidate"))
        print(f"next    python -m profiling ab FILE {key}={values}   (would other starts agree?)")
    for path in (request.baseline, request.candidate):
        if path.is_file():
            print(f"next    python -m profiling report {shlex.quote(str(path))}")


def regressed(comparison: dict[str, Any], limit_percent: float | None) -> bool:
    """Surely slower, and by more than the limit."""
    if limit_percent is None:
        return False
    return (
        comparison["verdict"] == "slower"
        and comparison["step_ms"]["ratio"] > 1 + limit_percent / 100
    )
