"""`python -m profiling report CAPTURE`: what took the time, and what holds the step back."""

import io
import shlex
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from cli import files, parser
from cli.parser import Parser
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


@dataclass(frozen=True)
class Request:
    """What the user typed."""

    capture: Path
    json: str | None
    markdown: str | None
    html: str | None
    open: bool
    step: str | None
    phases: list[str] | None
    device: int | None
    manifest: Path | None

    @property
    def outputs(self) -> list[str]:
        return [output for output in (self.json, self.markdown, self.html) if output]


def main(argv: list[str]) -> int:
    """Runs it and returns the exit code. Raises ValueError for a mistake or a damaged capture."""
    request = parse(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode gets ? for a bar
    with progress(request.capture):
        capture = open_report(
            request.capture,
            request.manifest,
            step=request.step,
            phases=request.phases,
            device=request.device,
        )
        report = capture.report  # made here, while the terminal shows that something goes on
    write(request, report, capture)
    return 0


def parse(argv: list[str]) -> Request:
    flags = Parser("report", PURPOSE, NOTES)
    flags.add_argument("capture", type=Path, metavar="CAPTURE", help=CAPTURE)
    outputs = flags.add_argument_group("outputs")
    outputs.add_argument(
        "--json", metavar="FILE", help="all figures (docs/report-schema.md); - is stdout in each"
    )
    outputs.add_argument("--markdown", metavar="FILE", help="for a pull request")
    outputs.add_argument(
        "--html", metavar="FILE", help="one page with charts, which needs no network"
    )
    outputs.add_argument("--open", action="store_true", help="show that page in the browser")
    chosen = flags.add_argument_group("what is found out otherwise")
    chosen.add_argument("--step", metavar="NAME", help="the ranges that are a step, without number")
    chosen.add_argument(
        "--phases", metavar="A,B", type=parser.names, help="the ranges that are phases"
    )
    chosen.add_argument(
        "--device", metavar="N", type=int, help="the GPU to report about, of several: the busiest"
    )
    chosen.add_argument(
        "--manifest",
        metavar="FILE",
        type=Path,
        help="the window's manifest, where it does not lie beside the capture",
    )
    request = Request(**vars(flags.parse_args(argv)))
    if len(set(request.outputs)) < len(request.outputs):
        raise ValueError("--json, --markdown, --html: two of them have the same FILE")
    if request.open and request.html in (None, "-"):
        raise ValueError("--open: shows the page, so it needs --html FILE")
    return request


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


def write(request: Request, report: Report, capture: Capture) -> None:
    """Every output that was asked for, or the report in words."""
    step, sources = None, None
    if request.html:
        step, sources = capture.median_step, sources_of(capture.trace, request.html)
    document = report_document(report, step, sources)
    if request.json:
        put(request.json, to_json(report))
    if request.markdown:
        put(request.markdown, markdown.markdown(document))
    if request.html:
        put(request.html, page.page(document))
    if not request.outputs:
        terminal.show(document, Console(highlight=False))
        print(next_steps(request.capture, report))
    elif "-" not in request.outputs:
        print(verdict_line(report))
        print("written:", ", ".join(request.outputs))
    if request.open and request.html:
        webbrowser.open(Path(request.html).resolve().as_uri())


def sources_of(trace: Trace, output: str) -> Links:
    """Where the page finds its kernels' sources; a page on stdout lies nowhere, so has no links."""
    if output == "-":
        return {}
    try:
        return source_links(trace.file, Path(output))
    except ValueError as error:
        print(f"no links to kernels' sources: {error}", file=sys.stderr)
        return {}


def put(output: str, content: str) -> None:
    if output == "-":
        sys.stdout.write(content)
    else:
        files.write_text(Path(output), content)


def next_steps(path: Path, report: Report) -> str:
    verb = "python -m profiling"
    capture = shlex.quote(str(path))
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
