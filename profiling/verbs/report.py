"""`python -m profiling report CAPTURE`: what took the time, and what holds the step back."""

import io
import shlex
import sys
import webbrowser
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from cli import files
from cli.parser import Parser, names
from cli.plain import plain, without_controls
from profiling.analysis.capture import Capture, open_report
from profiling.analysis.report import Report
from profiling.records import to_json
from profiling.report.capture.document import report_document, verdict_line
from profiling.report.capture.kernel_sources import Links, source_links
from profiling.report.renderers import markdown, page, terminal
from profiling.timeline.trace import Trace

PURPOSE = "Says what took the time in a capture, and what holds the step back."
CAPTURE = """\
an nsys report (.sqlite, .sqlite.gz, .nsys-rep), a torch.profiler trace (.json, .json.gz), or a
run's folder: its newest capture"""
NOTES = """\
Without --json, --markdown and --html the report is printed.

examples
  python -m profiling report out-shakespeare-char
  python -m profiling report out-shakespeare-char --html report.html --open
  python -m profiling report nsys.sqlite --json - | jq .bottleneck
  python -m profiling report other.nsys-rep --step train_step --phases forward,backward

exit code: 0, or 2 for a mistake in the command line or a capture that cannot be read
"""

LARGE_BYTES = 20e6  # reading less takes no time that one would want to see pass


def main(argv: list[str]) -> int:
    """Runs it and returns the exit code. Raises ValueError for a mistake or a damaged capture."""
    flags = parse(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode gets ? for a bar
    with progress(flags.capture):
        choice = {"step": flags.step, "phases": flags.phases, "device": flags.device}
        capture = open_report(flags.capture, flags.manifest, **choice)
        report = capture.report  # made here, while the terminal shows that something goes on
    write(flags, report, capture)
    return 0


def parse(argv: list[str]) -> Namespace:
    parser = Parser("report", PURPOSE, NOTES)
    parser.add_argument("capture", type=Path, metavar="CAPTURE", help=CAPTURE)
    add = parser.add_argument_group("outputs; - is stdout").add_argument
    add("--json", metavar="FILE", help="all figures (docs/report-schema.md)")
    add("--markdown", metavar="FILE", help="for a pull request")
    add("--html", metavar="FILE", help="one page with charts, which needs no network")
    add("--open", action="store_true", help="show that page in the browser")
    add = parser.add_argument_group("what is found out otherwise").add_argument
    add("--step", metavar="NAME", help="the ranges that are a step, without their number")
    add("--phases", metavar="A,B", type=names, help="the ranges that are phases")
    busiest = "the GPU to report about, of several (the busiest otherwise)"
    add("--device", metavar="N", type=int, help=busiest)
    beside = "the window's manifest, where it does not lie beside the capture"
    add("--manifest", metavar="FILE", type=Path, help=beside)
    flags = parser.parse_args(argv)
    if len(set(outputs(flags))) < len(outputs(flags)):
        raise ValueError("--json, --markdown, --html: two of them have the same FILE")
    if flags.open and flags.html in (None, "-"):
        raise ValueError("--open: shows the page, so it needs --html FILE")
    return flags


def outputs(flags: Namespace) -> list[str]:
    return [output for output in (flags.json, flags.markdown, flags.html) if output]


@contextmanager
def progress(path: Path) -> Iterator[None]:
    """On a terminal, a sign that a large file is being read. On stderr: stdout is the report."""
    err = Console(stderr=True)
    large = path.is_dir() or (path.is_file() and path.stat().st_size > LARGE_BYTES)
    if not (err.is_terminal and large):
        yield
        return
    with err.status(f"reading {path.name}"):
        yield


def write(flags: Namespace, report: Report, capture: Capture) -> None:
    """Every output that was asked for, or the report in words."""
    step, sources = None, None
    if flags.html:
        step, sources = capture.median_step, sources_of(capture.trace, flags.html)
    document = report_document(report, step, sources)
    if flags.json:
        put(flags.json, to_json(report))
    if flags.markdown:
        put(flags.markdown, markdown.markdown(document))
    if flags.html:
        put(flags.html, page.page(document))
    if not outputs(flags):
        terminal.show(document, Console(highlight=False))
        print(next_steps(flags.capture, report))
    elif "-" not in outputs(flags):
        print(verdict_line(report))
        print("written:", without_controls(", ".join(outputs(flags))))
    if flags.open:
        webbrowser.open(Path(flags.html).resolve().as_uri())


def sources_of(trace: Trace, output: str) -> Links:
    """Where the page finds its kernels' sources; a page on stdout lies nowhere, so has no links."""
    if output == "-":
        return {}
    try:
        return source_links(trace.file, Path(output))
    except ValueError as error:
        print(plain(f"no links to kernels' sources: {error}"), file=sys.stderr)
        return {}


def put(output: str, content: str) -> None:
    if output == "-":
        sys.stdout.write(content)
    else:
        files.write_text(Path(output), content)


def next_steps(path: Path, report: Report) -> str:
    verb = "python -m profiling"
    capture = without_controls(shlex.quote(str(path)))
    commands = [
        (f"report {capture} --html report.html", "with charts and a timeline"),
        (f"compare {capture} OTHER", "what a change bought"),
        (f"export {capture} --perfetto trace.json.gz", "for ui.perfetto.dev"),
    ]
    if report.capture.personal and report.capture.kind == "nsys":
        commands.append(
            (f"scrub {capture}", "before it leaves this machine: who and where is in it")
        )
    lines = [f"  # {why}\n  {verb} {words}" for words, why in commands]
    return "\n".join(["", "What next", *lines])
