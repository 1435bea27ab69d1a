"""\
Writes a capture as a Chrome trace, which https://ui.perfetto.dev opens (in the browser: nothing is
sent anywhere). It holds names, times and sizes, no environment and no folders.

{flags}

examples
  python -m profiling export out-shakespeare-char --perfetto trace.json.gz
  python -m profiling export nsys.sqlite --perfetto trace.json

exit code: 0, or 2 for a mistake in the command line or a capture that cannot be read
"""

import gzip
import io
from pathlib import Path
from typing import BinaryIO

from cli import files
from cli.parser import Parser
from cli.plain import without_controls
from profiling.analysis.analysis import Analysis
from profiling.analysis.capture import open_report
from profiling.report.perfetto import chrome_trace
from profiling.run_files import check_output
from profiling.verbs.report import CAPTURE, progress
from profiling.verbs.results import new_file

COMPRESSION = 4  # gzip's: 9 takes five times as long for 5 % less


def main(argv: list[str]) -> int:
    """Runs it and returns the exit code. Raises ValueError for a mistake or a damaged capture."""
    parser = Parser("export", __doc__)
    parser.add_argument("capture", type=Path, metavar="CAPTURE", help=CAPTURE)
    packed = ".json, or .json.gz, a tenth of the size"
    trace = new_file(".json", ".json.gz")
    parser.add_argument("--perfetto", type=trace, required=True, metavar="FILE", help=packed)
    request = parser.parse_args(argv)
    check_output(request.perfetto, request.capture)
    with progress(request.capture):
        count = export(open_report(request.capture).analysis, request.perfetto)
    place = without_controls(str(request.perfetto))
    print(f"{place}: {count:,} events; open it at https://ui.perfetto.dev")
    return 0


def export(analysis: Analysis, path: Path) -> int:
    """Writes the file and returns the number of events. Raises ValueError where it cannot."""
    with files.replacing(path) as temporary, open(temporary, "wb") as plain:
        target: BinaryIO | gzip.GzipFile = plain
        if path.suffix == ".gz":  # without time and name: the same trace gives the same file
            target = gzip.GzipFile("", "wb", COMPRESSION, plain, mtime=0)
        with io.TextIOWrapper(target, encoding="utf-8") as file:
            return chrome_trace.write(analysis.trace, analysis.owning_phase, file)
