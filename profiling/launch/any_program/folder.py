"""The folder that `run -- COMMAND` writes to: one owner, and an earlier run moved aside."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from cli.files import write_text
from cli.lock import Lock
from profiling.shared.run_files import BEGINNINGS, FACTS, HOOK_FILES, RUN_FILES, is_run

# what the hook writes beside the files of every run
OF_HOOK = re.compile(rf"{HOOK_FILES}|{FACTS}|process-\d+")


@contextmanager
def own_folder(folder: Path) -> Iterator[Path | None]:
    """Own the folder within the block, which gets the place of an earlier run, or None.

    If the block records nothing, the earlier run is back in its place at the end. Raises ValueError
    if another process owns the folder, or if it has files with the names of a run's that no run of
    ours has written.
    """
    with Lock(folder, f"--out {folder}"):
        previous = move_aside(folder)
        yield previous
        if not is_run(folder):
            remove_leftovers(folder)
            if previous and not any(is_of_run(path.name) for path in folder.iterdir()):
                move_back(previous)


def move_aside(folder: Path) -> Path | None:
    """Move an earlier run to previous-N; return that folder, or None without a run."""
    files = [path for path in folder.iterdir() if is_of_run(path.name)]
    if not is_run(folder):
        if others := [path.name for path in files if not OF_HOOK.fullmatch(path.name)]:
            raise ValueError(
                f"--out {folder}: contains {others[0]}, which no run has written; give another "
                "folder"
            )
        remove_leftovers(folder)
        return None
    target = next(path for n in count(1) if not (path := folder / f"previous-{n}").exists())
    target.mkdir()
    for path in files:
        os.rename(path, target / path.name)
    return target


def move_back(previous: Path) -> None:
    """Move a run out of previous-N into the folder where it was, and remove previous-N."""
    for path in list(previous.iterdir()):
        os.rename(path, previous.parent / path.name)
    previous.rmdir()


def is_of_run(name: str) -> bool:
    return name in RUN_FILES or OF_HOOK.fullmatch(name) is not None


def remove_leftovers(folder: Path) -> None:
    """Remove what the hook leaves of a program in which it saw no step."""
    for path in list(folder.iterdir()):
        if OF_HOOK.fullmatch(path.name) and path.is_file():
            path.unlink()


def describe_command(folder: Path, command: list[str]) -> None:
    """Write config.yaml for a capture of a program in which no hook has written it."""
    if not (folder / "config.yaml").exists():
        keys = {"command": command, "out_dir": str(folder.absolute())}
        begin = BEGINNINGS["config.yaml"].decode()
        text = f"{begin}: the command of a program\n{json.dumps(keys, indent=2)}\n"
        write_text(folder / "config.yaml", text)


def keep_verdict(folder: Path, verdict: str) -> None:
    """Add the verdict on the run's capture to its summary, which the start page reads."""
    file = folder / "summary.json"
    if file.is_file():
        write_text(file, json.dumps(json.loads(file.read_text()) | {"verdict": verdict}, indent=2))


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free
