"""Ctrl-C, SIGTERM and SIGHUP outside of the training loop: quiet, with exit code 130, 143 or 129,
never lost.

A program that is starting ends at once (cli.process): a KeyboardInterrupt inside of an import, or
inside of OmegaConf, becomes another error there, or vanishes. It is raised only where something is
to be tidied up (`unwind_on_signal`). The training loop has its own handlers
(training.ranks.interrupt).
"""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from cli.process import SIGNALS, leave

IMPORTLIB = "<frozen importlib._bootstrap>"  # co_filename of the import system's frames
STOPS = (KeyboardInterrupt, SystemExit)  # raised by Ctrl-C, by SIGTERM or SIGHUP
Handler = Callable[[int, FrameType | None], object] | signal.Handlers


def unwind(number: int, frame: FrameType | None = None) -> NoReturn:
    """Signal handler: raise one of STOPS, so that the stack unwinds.

    Inside of an import, such as a verb's of torch, end the process at once instead.
    """
    if is_importing(frame):
        leave(number)
    stop(number)


def stop(number: int) -> NoReturn:
    """Raise the exception that stands for signal `number`: one of STOPS."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def exit_code(stopped: BaseException) -> int:
    """Exit code of a program that caught `stopped`, one of STOPS."""
    if isinstance(stopped, SystemExit) and isinstance(stopped.code, int):
        return stopped.code
    return 128 + signal.SIGINT


def is_importing(frame: FrameType | None) -> bool:
    while frame:
        if frame.f_code.co_filename == IMPORTLIB:
            return True
        frame = frame.f_back
    return False


@contextmanager
def unwind_on_signal() -> Iterator[None]:
    """Let a signal unwind the stack within the block, so that temporary files are deleted.

    Handlers that a loop has set itself stay.
    """
    with handle_signals(unwind, [n for n in SIGNALS if signal.getsignal(n) is leave]):
        yield


@contextmanager
def leave_on_signal() -> Iterator[None]:
    """Let a signal end the process at once within the block, undoing `unwind_on_signal`.

    It is for code that mishandles a KeyboardInterrupt.
    """
    with handle_signals(leave, [n for n in SIGNALS if signal.getsignal(n) is unwind]):
        yield


@contextmanager
def handle_signals(handler: Handler, numbers: Iterable[int] = SIGNALS) -> Iterator[None]:
    """Handle these signals by `handler` within the block; ignored ones, as under nohup, stay so."""
    if threading.current_thread() is not threading.main_thread():  # it alone may set handlers
        yield
        return
    numbers = [n for n in numbers if signal.getsignal(n) not in (signal.SIG_IGN, None)]
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
