"""Finds where a run of several ranks hangs: which collective does not finish, which ranks have
entered it, which have not, and what those ranks did last. It reads the dumps of the ranks' flight
recorders.

{flags}

examples
  python -m profiling hang out-owt
  python -m profiling hang out-owt --now
  python -m profiling hang /tmp/nccl_trace_rank_0 /tmp/nccl_trace_rank_1
  python -m profiling hang node-a/profile node-b/profile --json hang.json

A run under torchrun records its last 2000 collectives. When one times out (after 10 minutes on
GPUs, 30 on CPUs: torch's own limits), each rank writes them to OUT_DIR/profile/flight-rankN. --now
asks the ranks to write them earlier; they check for requests every 2 seconds. If the hosts share no
file system, copy the files into one folder. Dumps of other programs can be read too. torch's own
dumps are pickles, from which only data is read.

exit code: 0; 1 if something hangs or an error ended a rank; 2 for bad flags, or if no dump can be
read
"""

import os
import time
from argparse import Namespace
from pathlib import Path

from cli.files import write_text
from cli.lock import InUse, check_free
from cli.parser import Parser, flag
from cli.plain import without_controls
from profiling.analysis.hang.analysis import read_hang
from profiling.analysis.hang.hang_records import Hang
from profiling.shared.json_records import to_json
from profiling.shared.run_files import DUMP, REQUEST
from profiling.timeline import flight_dump
from profiling.verbs.results import check_outputs, output_flags, show_or_write

PATIENCE_S = 30.0  # longest wait for the ranks' dumps; a rank takes some 2 s to write one
LOOK_S = 0.5


def main(argv: list[str]) -> int:
    """Read the dumps, print and write; return the exit code.

    Raises ValueError for a mistake, or if no dump can be read.
    """
    flags = parse(argv)
    places: list[Path] = flags.places
    hang = read_hang(request_dumps(places[0]) if flags.now else places)
    write(flags, hang)
    return int(hang.answer in ("hang", "error"))


def parse(argv: list[str]) -> Namespace:
    parser = Parser("hang", __doc__)
    what = "out_dir of a run, a folder of dumps, or dumps"
    parser.add_argument("places", nargs="+", type=Path, metavar="OUT_DIR", help=what)
    flag(parser, "--now", "first ask the ranks of a running training for their dumps")
    output_flags(parser, json="all data (docs/report-schema.md)", markdown="for an issue")
    flags = parser.parse_args(argv)
    if flags.now and len(flags.places) > 1:
        raise ValueError("--now: works on one run; give only its OUT_DIR")
    check_outputs(flags, *(place for place in flags.places if place.exists()))
    return flags


def request_dumps(folder: Path) -> list[Path]:
    """Ask the ranks of the run in `folder` for dumps, and return these.

    Raises ValueError if no run is under way there, or none of its ranks answers.
    """
    try:
        check_free(folder, str(folder))
    except InUse:
        pass
    else:
        raise ValueError(
            f"{folder}: no run is in progress in this folder; --now needs a running one"
        )
    request = folder / "profile" / REQUEST
    write_text(request, "")
    asked_ns = request.stat().st_mtime_ns
    try:
        dumps = wait_for_dumps(folder / "profile", asked_ns)
    finally:
        request.unlink(missing_ok=True)
    if not dumps:
        raise ValueError(
            f"{folder}: no rank answered in {PATIENCE_S:.0f} s; a run of one process waits for "
            "no other rank, so use py-spy dump --pid PID to see what it does"
        )
    return dumps


def wait_for_dumps(folder: Path, asked_ns: int) -> list[Path]:
    """Wait until all ranks have left a dump in `folder` since `asked_ns`, or PATIENCE_S is over.

    The number of ranks is read from the first dump.
    """
    end = time.monotonic() + PATIENCE_S
    world, dumps = None, []
    while time.monotonic() < end and (world is None or len(dumps) < world):
        time.sleep(LOOK_S)
        dumps = [
            path
            for path in folder.glob(f"{DUMP}*")
            if flight_dump.NAME.fullmatch(path.name) and os.stat(path).st_mtime_ns >= asked_ns
        ]
        if dumps and world is None:
            note = flight_dump.read(dumps[0], 0).note
            world = note.world_size if note else None
    return dumps


def write(flags: Namespace, hang: Hang) -> None:
    from profiling.report.hang import hang_document, headline

    document = hang_document(hang, without_controls(str(flags.places[0])))
    show_or_write(flags, to_json(hang), document, without_controls(headline(hang)))
