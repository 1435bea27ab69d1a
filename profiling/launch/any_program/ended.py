"""Folders of programs that `ab` starts: emptied before, and read for a reason behind a failure."""

import shutil
import signal
from pathlib import Path

from profiling.launch.any_program.seen import NEVER, NO_STEP, processes
from profiling.shared.run_files import METRICS, PROCESSES


def end_words(status: int) -> str:
    """A clause on how a program ended, from its exit code as a shell has it."""
    try:
        return f"was killed by {signal.Signals(status - 128).name}"
    except ValueError:
        return f"ended with exit code {status}"


def why_no_steps(folder: Path) -> str:
    """A clause on why the hook wrote no step times into the folder of a program that has ended."""
    started = processes(folder)
    if not started:
        return NEVER
    for row in started:
        if "error" in row:
            return f"the hook stopped: {row['error']}"
    if (folder / METRICS).is_file():
        return "the program ended by os._exit or was killed, so its step times were not written"
    return NO_STEP


def remove_hooked(folder: Path) -> None:
    """Remove the folder of an earlier program. Raises ValueError if the hook did not write it."""
    if folder.exists() and any(folder.iterdir()) and not (folder / PROCESSES).is_file():
        raise ValueError(f"{folder}: contains files of something else; name another folder")
    shutil.rmtree(folder, ignore_errors=True)
