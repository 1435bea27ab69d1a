"""Starts any command with the hook in its Python processes, on our own terminal."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from cli.files import write_text
from cli.interrupts import handle_signals
from profiling.launch.process import Ended

HOOK = Path(__file__).resolve().parents[2] / "attach" / "hook"  # first on the program's PYTHONPATH
VARIABLE = "PROFILING_ATTACH"  # holds HookSettings as JSON
KINDS = ("nsys", "torch", "memory", "none")
STEP_MARKS = ("optimizer", "zero_grad", "backward", "forward", "data", "replay")
STDERR = 2
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # exit codes, as a shell has them


@dataclass(frozen=True)
class HookSettings:
    """The settings that _profiling_attach.settings reads."""

    folder: str  # of the run; absolute
    command: list[str]  # as config.yaml has it: without secrets
    kind: str  # of KINDS
    start: int | None = None  # first step of the window; None: as soon as step times are steady
    steps: int = 20  # in the window
    step: str | None = None  # of STEP_MARKS; None: by the rule
    stop_after: int | None = None  # steps after which the process ends; None: at its own end
    stack: bool = False  # torch.profiler also records Python's functions
    every_step: bool = False  # all steps are timed, however short they are
    samples: str | None = None  # socket of any_program.sampling


def with_hook(environ: dict[str, str], settings: HookSettings) -> dict[str, str]:
    """The environment with the hook, which every Python process below inherits."""
    paths = [str(HOOK), *filter(None, [environ.get("PYTHONPATH")])]
    variables = {"PYTHONPATH": os.pathsep.join(paths), VARIABLE: json.dumps(asdict(settings))}
    return environ | variables


def refusal(word: str, environ: Mapping[str, str] = os.environ) -> tuple[int, str] | None:
    """(exit code, message) for the first word of a command that cannot be started, else None."""
    path = Path(word)
    if os.sep not in word:
        if shutil.which(word, path=environ.get("PATH", os.defpath)):
            return None
        hint = f"; python {word} starts the file of that name" if path.is_file() else ""
        if " " in word:
            hint = "; for a line of a shell, use sh -c 'LINE'"
        elif "=" in word:
            hint = f"; env {word} COMMAND sets a variable"
        return NOT_FOUND, f"{word}: command not found{hint}"
    if not path.exists():
        return NOT_FOUND, f"{word}: no such file"
    if path.is_dir():
        return NOT_EXECUTABLE, f"{word}: is a folder"
    if not os.access(path, os.X_OK):
        return NOT_EXECUTABLE, f"{word}: is not executable; name the program that runs it"
    return None


def with_our_stdout(words: list[str]) -> list[str]:
    """The command behind a shell that opens our stdout for it, whatever the stdout of nsys is.

    Unchanged where the system cannot open it: where it is a socket or closed.
    """
    ours = f"/proc/{os.getpid()}/fd/1"
    try:
        os.close(os.open(ours, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY))
    except OSError:
        return words
    return ["sh", "-c", 'exec "$@" >>"$0"', ours, *words]


def run_to_end(words: list[str], environ: dict[str, str], under_nsys: bool, request: Path) -> Ended:
    """Run the command with our own stdin, stdout and stderr; its output is not known here.

    What nsys itself prints goes to stderr.

    Ctrl-C reaches it from the terminal, as it reaches us, and we stay for the report. Other
    signals are passed on: nsys gets SIGINT for each, at which it ends the program and writes its
    report. SIGUSR1 asks for a window, by the file `request`, and does not reach the program. Raises
    OSError if the command cannot be started.
    """
    of_terminal = {signal.SIGINT, signal.SIGHUP} if has_terminal() else set()
    caught: list[int] = []
    processes: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: FrameType | None = None) -> None:
        caught.append(number)
        for process in processes:
            if number not in of_terminal:
                process.send_signal(signal.SIGINT if under_nsys else number)

    def ask_for_window(number: int, frame: FrameType | None = None) -> None:
        with suppress(ValueError):  # a full disk
            write_text(request, "{}")

    with handle_signals(pass_on), handle_signals(ask_for_window, [signal.SIGUSR1]):
        stdout = STDERR if under_nsys else None
        processes.append(subprocess.Popen(words, env=environ, stdout=stdout))
        status = processes[0].wait()
    request.unlink(missing_ok=True)  # of a program that made no further step
    return Ended(status if status >= 0 else 128 - status, "", caught[0] if caught else None)


def has_terminal() -> bool:
    """Whether this process has a terminal whose Ctrl-C reaches all processes in front."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
