"""Shows where the time in a capture goes and what limits the step; for several ranks, which rank
the others wait for, and why.

{flags}

A memory snapshot of PyTorch is reported, too: the peak by kind and by line, leaks, and what would
have made room; with --fit also what would fit. Several captures, or a folder with the captures of
several ranks, are reported together, on one page. Without one of these outputs the report is
printed: one screen, or all of it with --full. The last line repeats the verdict.

examples
  python -m profiling report out-shakespeare-char
  python -m profiling report out-shakespeare-char --html report.html --open
  python -m profiling report nsys.sqlite --json - | jq .bottleneck
  python -m profiling report other.nsys-rep --step train_step --phases forward,backward
  python -m profiling report snapshot.pickle --html memory.html
  python -m profiling report out-run --fit --gpu-memory 80GiB
  python -m profiling report a.pickle b.pickle --fit --batch 8,16 --predict batch=48,fsdp=8
  python -m profiling report rank0.json.gz rank1.json.gz --html ranks.html

exit code: 0, or 2 for a mistake in the command line or a capture that cannot be read
"""

import io
import re
import shlex
import sys
from argparse import ArgumentTypeError, Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cli.parser import Parser, flag, names
from cli.plain import plain, without_controls
from cli.program import as_called
from profiling.analysis.open_report import Capture, open_report
from profiling.analysis.ranks.found import is_one_of_ranks, rank_captures
from profiling.analysis.records import Report
from profiling.analysis.verdict.health import OTHERS
from profiling.report.single.kernel_sources import Links, source_links
from profiling.report.single.verdict_line import verdict_line
from profiling.shared.json_records import to_json
from profiling.timeline.memory_snapshot import refuse_mixed, snapshots_at
from profiling.timeline.opening import REPORT, newest
from profiling.timeline.trace import Trace
from profiling.verbs.fit_flags import check_fit, fit_flags
from profiling.verbs.progress import reading_bar
from profiling.verbs.results import (
    FLAGS,
    STDOUT,
    check_outputs,
    output_flags,
    outputs,
    put,
    say_written,
    show,
    show_answer,
    write_outputs,
)

if TYPE_CHECKING:
    from profiling.analysis.ranks.summary import RanksAnalysis

CAPTURE = """\
an nsys report (.sqlite, .sqlite.gz, .nsys-rep), a torch.profiler trace (.json, .json.gz), or a
run's folder: its newest capture"""
CAPTURES = f"""\
{CAPTURE}, or the captures of all ranks if the folder has them;
several: the captures of several ranks, or one folder per host"""
REPORTED = f"{CAPTURES}; or memory snapshots of PyTorch (.pickle)"
RANKS = "read all processes of one file as ranks, for torchrun under nsys"
MORE = "--full prints the whole report; --html FILE writes it as a page with a timeline."


def main(argv: list[str]) -> int:
    """Report the capture; return the exit code. Raises ValueError for a mistake or a damaged
    capture."""
    report_on(argv)
    return 0


def report_on(argv: list[str]) -> Report | None:
    """Report the capture, and return what was reported; None for that of several ranks."""
    flags = parse(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode gets ? for a bar
    report = write_or_print(flags)
    if flags.open:
        import webbrowser

        webbrowser.open(flags.html.resolve().as_uri())
    return report


def write_or_print(flags: Namespace) -> Report | None:
    """Write every output that was asked for, or print the report; return it as report_on does."""
    if snapshots := snapshots_at(flags.capture):
        from profiling.verbs.memory import report_memory

        report_memory(flags, snapshots)
        return None
    refuse_mixed(flags.capture, [snapshots_at([path]) for path in flags.capture])
    if flags.fit:
        what = "is no memory snapshot" if flags.capture[0].exists() else "does not exist"
        raise ValueError(
            f"--fit: {flags.capture[0]} {what}; record a snapshot with profile=memory, or "
            "python -m profiling run --kind memory -- COMMAND"
        )
    opened = open_given(flags)
    if isinstance(opened, Capture):
        write(flags, opened)
        return opened.report
    from profiling.verbs.ranks import report_ranks

    report_ranks(flags, opened)
    return None


def open_given(flags: Namespace) -> "Capture | RanksAnalysis":
    """Open and analyse what was given: one capture, which flags.capture names then, or those of
    several ranks."""
    if paths := rank_captures(flags.capture, flags.ranks, flags.device, flags.process):
        check_outputs(flags, *paths)  # files in the folders that were given
        from profiling.analysis.ranks.files import StepNames
        from profiling.verbs.ranks import read_folder

        step_names = StepNames(flags.step, flags.phases)
        if analysis := read_folder(flags.capture, paths, step_names):
            if flags.manifest:
                raise ValueError(
                    f"--manifest {flags.manifest}: this manifest is for one capture, but these "
                    "captures are of several ranks; leave the flag out, and the manifest next to "
                    "each capture is read"
                )
            return analysis
        flags.capture = paths
    flags.capture = flags.capture[0]
    if flags.capture.is_dir():
        check_outputs(flags, newest(flags.capture))
    with reading_bar(flags.capture) as say:
        choice = {
            "step": flags.step,
            "phases": flags.phases,
            "device": flags.device,
            "process": flags.process,
        }
        capture = open_report(flags.capture, flags.manifest, **choice)
        say("analysing")
        _ = capture.report  # computed here, while the terminal shows progress
    return capture


def parse(argv: list[str]) -> Namespace:
    parser = Parser("report", __doc__)
    parser.add_argument("capture", type=Path, nargs="+", metavar="CAPTURE", help=REPORTED)
    group = parser.add_argument_group("outputs; - is stdout")
    output_flags(
        group,
        json="all figures (docs/report-schema.md)",
        markdown="as Markdown, for a pull request",
        html="one HTML page with charts, which needs no network",
    )
    flag(group, "--open", "open that page in the browser")
    flag(
        group,
        "--steps FIRST-LAST",
        "with --html: the steps that its timeline shows, if not all of them fit on the page",
        step_numbers,
    )
    flag(
        group,
        "--each",
        "with --html, for several ranks: also write a page for each rank, linked from the first",
    )
    flag(parser, "--full", "print the whole report, not just one screen")
    flag(parser, "--ranks", RANKS)
    add = partial(flag, parser.add_argument_group("detected automatically if not given"))
    add("--step NAME", "name of the ranges that are steps, without their number")
    add("--phases A,B", "names of the ranges that are phases", names)
    add("--device N", "the GPU to report on, if there are several (default: the busiest)", int)
    add("--process PID", "the process to report on, if there are several", int)
    beside = "the manifest of the window, if it is not next to the capture"
    add("--manifest FILE", beside, Path)
    fit_flags(parser.add_argument_group("for memory snapshots, one or two of different batches"))
    flags = parser.parse_args(argv)
    check_fit(flags)
    check_outputs(flags, *flags.capture, *filter(None, [flags.manifest]))
    check_choice(flags)
    if flags.each and flags.html in (None, STDOUT):
        raise ValueError(
            "--each: needs --html FILE, because it writes a page per rank next to that file"
        )
    if flags.steps and not flags.html:
        raise ValueError("--steps: needs --html FILE, the page whose timeline shows these steps")
    if flags.full and outputs(flags):
        raise ValueError(f"--full: prints the report, so it cannot be combined with {FLAGS}")
    if flags.open and flags.html in (None, STDOUT):
        raise ValueError("--open: needs --html FILE, the page to open")
    return flags


def step_numbers(word: str) -> tuple[int, int]:
    """The numbers of the first and last step in "40-59", or twice the one in "40".

    Raises ArgumentTypeError.
    """
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if first > last:
        raise ArgumentTypeError(f"{word}: give the first and the last step, such as 40-59")
    return first, last


def check_choice(flags: Namespace) -> None:
    """Raise ValueError for flags that choose one process, together with captures of several
    ranks."""
    of_one = {"--device": flags.device, "--process": flags.process, "--manifest": flags.manifest}
    given = [name for name, value in of_one.items() if value is not None]
    if given and (flags.ranks or len(flags.capture) > 1):
        raise ValueError(f"{given[0]}: selects one process, but this report is about several ranks")


def write(flags: Namespace, capture: Capture) -> None:
    """Write every output that was asked for, or print the report."""
    written = outputs(flags)
    if written == [flags.json]:  # the figures need nothing that draws
        put(flags.json, to_json(capture.report))
    else:
        render(flags, capture)
    health = capture.report.health
    lost = [] if health.no_verdict else [f"warning: {loss.what}" for loss in health.loss_findings]
    say_written("\n".join([verdict_line(capture.report), *lost]), written)


def render(flags: Namespace, capture: Capture) -> None:
    """Render the report into the files that were asked for, else on the terminal."""
    from profiling.report.single.document import report_document
    from profiling.report.single.lines import line_texts
    from profiling.report.single.screen import first_screen

    report, events, sources, texts = capture.report, None, None, None
    if flags.html:
        events = capture.events_of_steps(flags.steps)
        sources = sources_of(capture.trace, flags.html)
        texts = line_texts(report.lines, capture.trace.file)
    document = report_document(report, events, sources, texts)
    if not write_outputs(flags, to_json(report), document):
        show(document if flags.full else first_screen(report))
        steps = next_steps if flags.full else hint_at_more
        print(steps(flags.capture, report), end="\n\n")
        show_answer(document)


def show_newest(folder: Path) -> None:
    """Print one screen about the newest capture in a run's folder. Raises ValueError."""
    from profiling.report.single.document import report_document
    from profiling.report.single.screen import first_screen

    with reading_bar(path := newest(folder)) as say:
        capture = open_report(path)
        say("analysing")
        report = capture.report
    print()
    show(first_screen(report))
    print()
    show_answer(report_document(report))


def sources_of(trace: Trace, output: Path) -> Links:
    """Links from the page to its kernels' sources; none for a page on stdout, which has no
    place."""
    if output == STDOUT:
        return {}
    try:
        return source_links(trace.file, output)
    except ValueError as error:
        print(plain(f"kernels do not link to their sources: {error}"), file=sys.stderr)
        return {}


def hint_at_more(path: Path, report: Report) -> str:
    """The lines below one screen: how to get all of the report, and that of all ranks."""
    more = "\n".join([MORE, *other_programs(path)])
    if not (of_all := report_of_all(path, report)):
        return as_called(more)
    line = (
        f"This is one of several ranks: python -m profiling {of_all} shows which rank the others "
        "wait for."
    )
    return as_called(f"{more}\n{line}")


def other_programs(path: Path) -> list[str]:
    """A line for further programs that trained in the same command, if there are any."""
    folders = sorted(path.glob("process-*")) if path.is_dir() else []
    if not folders:
        return []
    count = "1 more program" if len(folders) == 1 else f"{len(folders)} more programs"
    first = without_controls(shlex.quote(str(folders[0])))
    return [f"{count} trained in this command: python -m profiling report {first}"]


def report_of_all(path: Path, report: Report) -> str | None:
    """Words of the command that reports all ranks, for a capture of one of several, or None.

    Other ranks may be in the same file or in files beside it. None also if this rank communicates
    with no other, so that none can wait for it.
    """
    if all(row.family != "communication" for row in report.kernels):
        return None
    if any(OTHERS in finding.what for finding in report.health.findings):
        return f"report {without_controls(shlex.quote(str(path)))} --ranks"
    if not is_one_of_ranks(path):  # asked last, because it reads files
        return None
    return f"report {without_controls(shlex.quote(str(path.parent)))}"


def next_steps(path: Path, report: Report) -> str:
    capture = without_controls(shlex.quote(str(path)))
    of_all = report_of_all(path, report)
    steps = {of_all: "all ranks: which one the others wait for"} if of_all else {}
    steps |= {
        f"report {capture} --html report.html": "with charts and a timeline",
        f"compare {capture} OTHER": "what a change gained",
        f"export {capture} --perfetto trace.json.gz": "for ui.perfetto.dev",
    }
    exported = report.capture.kind == "nsys" and path.suffix != REPORT
    if report.capture.personal and exported:
        steps[f"scrub {capture} -o passed-on.sqlite"] = (
            "before you share the capture: it contains user, host and folders"
        )
    lines = [f"  # {why}\n  python -m profiling {words}" for words, why in steps.items()]
    return as_called("\n".join(["", "What next", *lines]))
