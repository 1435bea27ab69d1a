"""Starts a program of the user's with the hook in its Python processes.

The hook is profiling/attach/hook: its folder stands first on PYTHONPATH of the program, and its
settings are in a variable. Nothing else of the program's environment is changed.
"""

import json
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from profiling.shared.json_records import JsonObject

HOOK = Path(__file__).resolve().parent.parent / "attach" / "hook"
VARIABLE = "PROFILING_ATTACH"
PROCESSES = "processes.jsonl"  # a line for each Python process that the hook started in
NOT_FOUND = 127  # exit code of a shell


@dataclass(frozen=True)
class Settings:
    """The settings that the hook reads: the fields of _profiling_attach.settings."""

    folder: str  # of the run; absolute
    command: list[str]  # as typed
    kind: str  # of the window: torch | nsys | memory | none
    start: int | None = None  # first step of the window; None: as soon as step times are steady
    steps: int = 20  # in the window
    step: str | None = None  # kind of mark that ends a step; None: by the rule
    stop_after: int | None = None  # steps after which the process ends; None: at its own end


class CommandNotFound(ValueError):
    """Raised for a word that is no program; the exit code is NOT_FOUND."""


def check_command(word: str, environ: dict[str, str]) -> None:
    """Raise CommandNotFound unless the word names a program that can be executed."""
    if shutil.which(word, path=environ.get("PATH", os.defpath)):
        return
    cure = "; for a line of a shell, use sh -c 'LINE'" if " " in word else ""
    if os.path.isfile(word):
        cure = "; this file is not executable: put its interpreter before it, such as python"
    raise CommandNotFound(f"{word}: command not found{cure}")


def hooked_environment(environ: dict[str, str], settings: Settings) -> dict[str, str]:
    """The environment of a program whose Python processes read the hook."""
    path = os.pathsep.join([str(HOOK), *filter(None, [environ.get("PYTHONPATH")])])
    return environ | {"PYTHONPATH": path, VARIABLE: json.dumps(asdict(settings))}


def end_words(status: int) -> str:
    """A clause on how a program ended, from its exit code as a shell has it."""
    try:
        return f"was killed by {signal.Signals(status - 128).name}"
    except ValueError:
        return f"ended with exit code {status}"


def why_no_steps(folder: Path) -> str:
    """A clause on why the hook wrote no step times into the folder of a program that has ended."""
    lines = folder / PROCESSES
    if not lines.is_file():
        return (
            "no Python process of this command read the hook: it is no Python program, or python "
            "was started with -S, -I or -E; leave these out"
        )
    rows: Sequence[JsonObject] = [json.loads(line) for line in lines.read_text().splitlines()]
    for row in rows:
        if "error" in row:
            return f"the hook could not start: {row['error']}"
    if (folder / "metrics.jsonl").is_file():
        return "the program ended by os._exit or was killed, so its step times were not written"
    return "no step was seen: no process imported torch and trained or called a module"


def remove_hooked(folder: Path) -> None:
    """Remove the folder of an earlier program. Raises ValueError if the hook did not write it."""
    if folder.exists() and any(folder.iterdir()) and not (folder / PROCESSES).is_file():
        raise ValueError(f"{folder}: contains files of something else; name another folder")
    shutil.rmtree(folder, ignore_errors=True)
