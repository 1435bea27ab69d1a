"""\
Writes a capture as a Chrome trace that https://ui.perfetto.dev opens (in the browser; nothing is
uploaded). The trace contains names, times and sizes, but no environment and no folders. Captures of
several ranks become one trace on one clock.

{flags}

examples
  python -m profiling export out-shakespeare-char --perfetto trace.json.gz
  python -m profiling export nsys.sqlite --perfetto trace.json
  python -m profiling export rank0.json.gz rank1.json.gz --perfetto ranks.json.gz

exit code: 0, or 2 for a mistake in the command line or a capture that cannot be read
"""

import gzip
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from cli import files
from cli.parser import Parser, flag
from cli.plain import plain, without_controls
from profiling.analysis.analysis import Analysis
from profiling.analysis.open_report import open_report
from profiling.analysis.ranks.found import rank_captures
from profiling.analysis.ranks.summary import RanksAnalysis
from profiling.report.perfetto import chrome_trace, ranks
from profiling.shared.run_files import check_output
from profiling.timeline.opening import newest
from profiling.verbs.progress import reading_bar
from profiling.verbs.ranks import captures_bar, read_folder
from profiling.verbs.report import CAPTURES, RANKS
from profiling.verbs.results import new_file

COMPRESSION = 4  # gzip's: 9 takes five times as long for 5 % less


def main(argv: list[str]) -> int:
    """Export the capture; return the exit code. Raises ValueError for a mistake or a damaged
    capture."""
    parser = Parser("export", __doc__)
    parser.add_argument("capture", type=Path, nargs="+", metavar="CAPTURE", help=CAPTURES)
    packed = ".json, or .json.gz at a tenth of the size"
    trace = new_file(".json", ".json.gz")
    parser.add_argument("--perfetto", type=trace, required=True, metavar="FILE", help=packed)
    flag(parser, "--ranks", RANKS)
    request = parser.parse_args(argv)
    check_output(request.perfetto, *request.capture)
    paths = rank_captures(request.capture, request.ranks)
    check_output(request.perfetto, *paths)
    if paths and (analysis := read_folder(request.capture, paths)):
        for finding in analysis.report.findings:
            if finding.level == "warning":
                print(plain(f"warning: {finding.what}"), file=sys.stderr)
        count = export_ranks(analysis, request.perfetto)
    else:
        path = (paths or request.capture)[0]
        if path.is_dir():
            check_output(request.perfetto, newest(path))
        with reading_bar(path) as say:
            capture = open_report(path)
            say(f"writing {request.perfetto.name}")
            count = export(capture.analysis, request.perfetto)
    place = without_controls(str(request.perfetto))
    print(f"{place}: {count:,} events; open it at https://ui.perfetto.dev")
    return 0


def export(analysis: Analysis, path: Path) -> int:
    """Write the trace of one capture; return its number of events. Raises ValueError if it
    cannot."""
    with open_output(path) as file:
        return chrome_trace.write(analysis.trace, analysis.owning_phase, file)


def export_ranks(analysis: RanksAnalysis, path: Path) -> int:
    """Write one trace of several ranks; return its number of events."""
    captures = len({rank.clock for rank in analysis.ranks})
    with open_output(path) as file, captures_bar(captures, "written") as progress:
        return ranks.write(analysis, file, progress)


@contextmanager
def open_output(path: Path) -> Iterator[TextIO]:
    """Open a text file to write, gzipped if its name says so; it replaces `path` when complete."""
    with files.replacement_for(files.resolve_link(path)) as temporary, open(temporary, "wb") as raw:
        target: BinaryIO | gzip.GzipFile = raw
        if path.suffix == ".gz":  # without time and name: the same trace gives the same file
            target = gzip.GzipFile("", "wb", COMPRESSION, raw, mtime=0)
        with io.TextIOWrapper(target, encoding="utf-8") as file:
            yield file
