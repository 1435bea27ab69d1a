"""Opens a capture window in a running training, or in a program that `run` started, which goes on.
The run checks for requests when it logs its next row, and the window of profile.steps iterations
starts with the iteration after that. torch.profiler first warms up for profile.warmup iterations. A
window that would contain an evaluation starts after it.

The memory's history begins with the window: what was allocated before has no line.

{flags}

examples
  python -m profiling trigger out-shakespeare-char
  python -m profiling trigger out-shakespeare-char --kind memory --steps 5
  python -m profiling trigger out-run --kind stack
"""

import shlex
import time
from pathlib import Path

from cli.files import not_a_folder, write_text
from cli.lock import InUse, check_free
from cli.parser import Parser, flag, within
from cli.program import as_called
from profiling.analysis.runs.folder import read_config
from profiling.shared.json_records import to_json
from profiling.shared.run_files import KINDS, TRIGGER, Trigger

LOOK_S = 0.2  # between two looks whether the run has taken the request


def main(argv: list[str]) -> int:
    """Ask the run for a window; return the exit code. Raises ValueError for a user's mistake."""
    parser = Parser("trigger", __doc__)
    parser.add_argument("folder", type=Path, metavar="OUT_DIR", help="out_dir of the run")
    parser.add_argument(
        "--kind",
        choices=KINDS,
        default="torch",
        help="torch (the default), stack: torch.profiler with the lines of your code, memory: the "
        "allocator's history, nsys: only for a run that was started under nsys",
    )
    flag(
        parser,
        "--steps N",
        "iterations to record; default: profile.steps of the run",
        within(int, 1),
    )
    flags = parser.parse_args(argv)
    folder, path = flags.folder, flags.folder / TRIGGER
    check_alive(folder)
    check_kind(folder, flags.kind)
    if path.exists():
        raise ValueError(
            f"{path}: a window has already been requested; the run has not read the request yet"
        )
    try:
        write_text(path, to_json(Trigger(flags.kind, flags.steps)))
        print(f"{folder}: requested a {flags.kind} window; waiting for the next row of the run")
        wait_until_taken(folder, path)
    finally:
        path.unlink(missing_ok=True)
    print(f"{folder}: the run has accepted the request; its files come into {folder / 'profile'}")
    named = shlex.quote(str(folder))
    print(as_called(f"once the files exist, run: python -m profiling report {named}"))
    return 0


def check_alive(folder: Path) -> None:
    """Raise ValueError if no run holds the folder's lock."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: {not_a_folder(folder)}; give the out_dir of a run")
    try:
        check_free(folder, str(folder))
    except InUse:
        return
    raise ValueError(
        f"{folder}: no run is in progress in this folder; to capture a new run, start it with "
        "profile=torch"
    )


def check_kind(folder: Path, kind: str) -> None:
    """Raise ValueError if the run has no steps yet, or its device not this kind of capture."""
    if not (folder / "config.yaml").exists():
        raise ValueError(f"{folder}: the program has made no step yet; ask again once it has")
    in_force = read_config(folder).get("in_force")
    device = in_force.get("device") if isinstance(in_force, dict) else None
    if kind in ("memory", "nsys") and device in ("cpu", "mps"):
        raise ValueError(
            f"--kind {kind}: needs a CUDA GPU, but this run is on {device}; use --kind torch"
        )


def wait_until_taken(folder: Path, path: Path) -> None:
    """Wait until the run has taken the request. Raises ValueError if it ends before that."""
    while path.exists():
        check_alive(folder)
        time.sleep(LOOK_S)
