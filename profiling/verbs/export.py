"""`python -m profiling export CAPTURE --perfetto FILE`: a capture for ui.perfetto.dev."""

import argparse
import gzip
import io
from contextlib import ExitStack
from pathlib import Path

from cli import files
from profiling.analysis.analysis import Analysis
from profiling.analysis.capture import open_report
from profiling.report import perfetto
from profiling.verbs.report import progress, refuse

HELP = """\
Writes a capture as a Chrome trace, which https://ui.perfetto.dev opens (in the browser: nothing is
sent anywhere). It holds names, times and sizes, no environment and no folders.

usage: python -m profiling export CAPTURE --perfetto FILE

  CAPTURE             as for report: an nsys report, a torch.profiler trace, or a run's folder
  --perfetto FILE     .json, or .json.gz, a tenth of the size

examples
  python -m profiling export out-shakespeare-char --perfetto trace.json.gz
  python -m profiling export nsys.sqlite --perfetto trace.json

exit code: 0, or 2 for a mistake in the command line or a capture that cannot be read
"""

COMPRESSION = 4  # gzip's: 9 takes five times as long for 5 % less


def main(argv: list[str]) -> int:
    """Runs it and returns the exit code. Raises ValueError for a mistake or a damaged capture."""
    if {"-h", "--help"} & set(argv):
        print(HELP, end="")
        return 0
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = refuse
    parser.add_argument("capture", type=Path)
    parser.add_argument("--perfetto", type=Path, required=True)
    request = parser.parse_args(argv)
    if not request.perfetto.name.endswith((".json", ".json.gz")):
        raise ValueError(f"--perfetto {request.perfetto}: the name must end in .json or .json.gz")
    with progress(request.capture):
        count = export(open_report(request.capture).analysis, request.perfetto)
    print(f"{request.perfetto}: {count:,} events; open it at https://ui.perfetto.dev")
    return 0


def export(analysis: Analysis, path: Path) -> int:
    """Writes the file and returns the number of events. Raises ValueError where it cannot."""
    with files.replacing(path) as temporary, ExitStack() as stack:
        if path.suffix == ".gz":
            packed = stack.enter_context(
                gzip.GzipFile(temporary, "wb", compresslevel=COMPRESSION, mtime=0)
            )
            file = stack.enter_context(io.TextIOWrapper(packed, encoding="utf-8"))
        else:
            file = stack.enter_context(open(temporary, "w", encoding="utf-8"))
        return perfetto.write(analysis.trace, analysis.owning_phase, file)
