"""`python -m profiling report CAPTURE`: what took the time, and what holds the step back."""

import argparse
import json
import shlex
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from cli import files
from profiling.analysis.capture import Capture, open_report
from profiling.report import console, wording
from profiling.report.kernel_sources import Links, source_links
from profiling.report.markdown import markdown
from profiling.timeline.trace import Trace

HELP = """\
Says what took the time in a capture, and what holds the step back.

usage: python -m profiling report CAPTURE [FLAGS]

  CAPTURE             an nsys report (.sqlite, .sqlite.gz, .nsys-rep), a torch.profiler trace
                      (.json, .json.gz), or a run's folder: its newest capture

flags: without an output the report is printed
  --json FILE         all figures (docs/report-schema.md); - is stdout, here and below
  --markdown FILE     for a pull request
  --html FILE         one page with charts, which needs no network
  --open              show that page in the browser

  --step NAME         the ranges that are a step, without their number (found out otherwise)
  --phases A,B        the ranges that are phases (found out otherwise)
  --device N          the GPU to report about, of several (the busiest otherwise)
  --manifest FILE     the window's manifest, where it does not lie beside the capture

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
    def choice(self) -> dict[str, Any]:
        """The keywords of open_report."""
        return {"step": self.step, "phases": self.phases, "device": self.device}


def main(argv: list[str]) -> int:
    """Runs it and returns the exit code. Raises ValueError for a mistake or a damaged capture."""
    if {"-h", "--help"} & set(argv):
        print(HELP, end="")
        return 0
    request = parse(argv)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode gets ? for a bar
    with progress(request.capture):
        capture = open_report(request.capture, request.manifest, **request.choice)
        report = msgspec.to_builtins(capture.report)
    write(request, report, capture)
    return 0


def parse(argv: list[str]) -> Request:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = refuse
    parser.add_argument("capture", type=Path)
    for output in ("--json", "--markdown", "--html"):
        parser.add_argument(output)
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--step")
    parser.add_argument("--phases", type=names)
    parser.add_argument("--device", type=int)
    parser.add_argument("--manifest", type=Path)
    request = Request(**vars(parser.parse_args(argv)))
    outputs = [output for output in (request.json, request.markdown, request.html) if output]
    if len(set(outputs)) < len(outputs):
        raise ValueError("--json, --markdown, --html: two of them have the same FILE")
    if request.open and request.html in (None, "-"):
        raise ValueError("--open: shows the page, so it needs --html FILE")
    return request


def refuse(message: str) -> None:
    raise ValueError(f"{message}; see --help")


def names(words: str) -> list[str]:
    return [word.strip() for word in words.split(",") if word.strip()]


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


def write(request: Request, report: dict[str, Any], capture: Capture) -> None:
    """Every output that was asked for, or the report in words."""
    if request.json:
        put(request.json, json.dumps(report, indent=2, allow_nan=False) + "\n")
    if request.markdown:
        put(request.markdown, markdown(report))
    if request.html:
        from profiling.report.page import page  # here: plotly takes long to import

        sources = sources_of(capture.trace, request.html)
        put(request.html, page(report, capture.median_step, sources))
    outputs = (request.json, request.markdown, request.html)
    if not any(outputs):
        console.show(report)
        print(next_steps(request.capture, report))
    elif "-" not in outputs:
        print(wording.headline(report))
        print("written:", ", ".join(output for output in outputs if output))
    if request.open:
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


def next_steps(path: Path, report: dict[str, Any]) -> str:
    verb = "python -m profiling"
    capture = shlex.quote(str(path))
    commands = [
        (f"report {capture} --html report.html", "with charts and a timeline"),
        (f"compare {capture} OTHER", "what a change bought"),
        (f"export {capture} --perfetto trace.json.gz", "for ui.perfetto.dev"),
    ]
    if report["capture"]["personal"] and report["capture"]["kind"] == "nsys":
        commands.append(
            (f"scrub {capture}", "before it leaves this machine: who and where is in it")
        )
    lines = [f"  # {why}\n  {verb} {words}" for words, why in commands]
    return "\n".join(["", "What next", *lines])
