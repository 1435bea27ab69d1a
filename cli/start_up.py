"""What each program of this project calls first, before it imports anything else: `begin`.

So few imports here, because a Ctrl-C that comes during them still is a traceback.
"""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

from cli.threads import spin_briefly

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHOW_CURSOR = "\x1b[?25h"  # a progress bar hides it

last_acts: list[Callable[[], object]] = []  # what `leave` still does: the lock of a folder goes


def begin() -> None:
    """From here on Ctrl-C, SIGTERM and SIGHUP end the process at once, until `cli.interrupts` is
    told otherwise; and threads wait as `cli.threads` says."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, leave)
    sys.unraisablehook = unraisable
    spin_briefly()


def leave(number: int, frame: FrameType | None = None) -> None:
    """Ends the process without unwinding: no exception, which somebody could catch or lose."""
    try:
        while last_acts:
            last_acts.pop()()
        if sys.stdout.isatty():
            sys.stdout.write(SHOW_CURSOR)
        sys.stdout.flush()
    except Exception:  # it is closed, or in the midst of a write
        pass
    os._exit(128 + number)


def unraisable(lost: "sys.UnraisableHookArgs") -> None:
    """Python drops what is raised in a destructor or a callback of C; a Ctrl-C is not lost so."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        leave(signal.SIGINT)
    sys.__unraisablehook__(lost)
