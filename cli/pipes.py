"""Output that nobody reads any more, such as that of `... | head`: the program ends, quietly.

A training outlives a terminal that was closed, until it has saved: training.interrupt.
"""

import errno
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

CUT = 128 + 13  # the status of a program that SIGPIPE ended, as a shell tells it
NOBODY_READS = (errno.EPIPE, errno.EIO)  # of a pipe, of a terminal


@contextmanager
def quiet_when_cut() -> Iterator[None]:
    """Exit code 141 where the reader of stdout or stderr is gone, without a word.

    SIGPIPE itself stays ignored, as Python has it: it would end a training whose connection to
    another machine breaks, too. A BrokenPipeError of such another pipe passes.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in NOBODY_READS or not drop_unread():
            raise
        raise SystemExit(CUT) from None
    except SystemExit as ended:
        # rich's way to end, which has done all that
        if ended.code == 1 and isinstance(ended.__context__, BrokenPipeError):
            raise SystemExit(CUT) from None
        raise


def drop_unread() -> bool:
    """Lets stdout and stderr lead nowhere from here on, each where nobody reads it any more.

    Returns whether there was one. What Python has not written of it yet goes there too, at exit.
    """
    gone = [stream for stream in (sys.stdout, sys.stderr) if unread(stream)]
    for stream in gone:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    return bool(gone)


def unread(stream: TextIO | None) -> bool:
    """Whether it is a pipe, a socket or a terminal whose other end is closed."""
    try:
        poll = select.poll()
        poll.register(stream.fileno() if stream else -1, 0)  # errors are told unasked
    except (OSError, ValueError):  # there is no file beneath it
        return False
    return bool(poll.poll(0))
