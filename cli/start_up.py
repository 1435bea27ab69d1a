"""First call of each program of this project, before it imports anything else: `begin`.

It has few imports, because a Ctrl-C that comes during them is still a traceback.
"""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

from cli.threads import spin_briefly

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHOW_CURSOR = "\x1b[?25h"  # a progress bar hides it

last_acts: list[Callable[[], object]] = []  # called by `leave`, such as the release of a lock


def begin() -> None:
    """Let Ctrl-C, SIGTERM and SIGHUP end the process at once; let threads wait as cli.threads says.

    Blocks of `cli.interrupts` handle the signals otherwise.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, leave)
    sys.unraisablehook = handle_unraisable
    spin_briefly()


def leave(number: int, frame: FrameType | None = None) -> None:
    """Signal handler: end the process without an exception, which somebody could catch or lose."""
    try:
        while last_acts:
            last_acts.pop()()
        if sys.stdout.isatty():
            sys.stdout.write(SHOW_CURSOR)
        sys.stdout.flush()
    except Exception:  # it is closed, or in the midst of a write
        pass
    os._exit(128 + number)


def handle_unraisable(lost: "sys.UnraisableHookArgs") -> None:
    """End the process if Python drops a Ctrl-C, as in a destructor or a callback of C."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        leave(signal.SIGINT)
    sys.__unraisablehook__(lost)
