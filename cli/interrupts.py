"""Ctrl-C, SIGTERM and SIGHUP outside of the training loop: quiet, with exit code 130, 143 or 129,
never lost.

While a program starts it leaves at once (cli.start_up): a KeyboardInterrupt inside of an import, or
inside of OmegaConf, becomes another error there, or vanishes. It is raised only where something is
to be tidied up (`unwinding`). The training loop has its own way (training.interrupt).
"""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from cli.start_up import SIGNALS, leave

IMPORTLIB = "<frozen importlib._bootstrap>"  # the file of its frames
STOPS = (KeyboardInterrupt, SystemExit)  # by Ctrl-C, by SIGTERM or SIGHUP
Handler = Callable[[int, FrameType | None], object] | signal.Handlers


def unwind(number: int, frame: FrameType | None = None) -> NoReturn:
    """Raises KeyboardInterrupt; but inside of an import, such as a verb's of torch, it leaves."""
    if importing(frame):
        leave(number)
    stop(number)


def stop(number: int) -> NoReturn:
    """Raises what a signal is where the stack unwinds: one of STOPS."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def exit_code(stopped: BaseException) -> int:
    """What the program ends with, once one of STOPS was caught."""
    if isinstance(stopped, SystemExit) and isinstance(stopped.code, int):
        return stopped.code
    return 128 + signal.SIGINT


def importing(frame: FrameType | None) -> bool:
    while frame:
        if frame.f_code.co_filename == IMPORTLIB:
            return True
        frame = frame.f_back
    return False


@contextmanager
def unwinding() -> Iterator[None]:
    """Within it a signal unwinds the stack, so that temporary files go; a loop's own way stays."""
    with answered(unwind, [n for n in SIGNALS if signal.getsignal(n) is leave]):
        yield


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Within it a signal raises nothing: for code that mishandles a KeyboardInterrupt."""
    with answered(leave, [n for n in SIGNALS if signal.getsignal(n) is unwind]):
        yield


@contextmanager
def answered(handler: Handler, numbers: Iterable[int] = SIGNALS) -> Iterator[None]:
    """Within it `handler` answers these signals; one that is ignored, as under nohup, stays so."""
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
