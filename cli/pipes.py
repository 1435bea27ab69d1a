"""Quiet end of a program whose output nobody reads any more, such as `... | head`.

A training outlives a terminal that was closed, until it has saved: training.ranks.interrupt.
"""

import errno
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

CUT = 128 + 13  # exit status that a shell reports of a program that SIGPIPE ended
NOBODY_READS = (errno.EPIPE, errno.EIO)  # from a pipe, from a terminal


@contextmanager
def exit_quietly_when_cut() -> Iterator[None]:
    """End with exit code 141 and without a message if the reader of stdout or stderr is gone.

    SIGPIPE itself stays ignored, as Python has it: it would also end a training whose connection to
    another machine breaks. A BrokenPipeError of such another pipe passes.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in NOBODY_READS or not drop_unread():
            raise
        raise SystemExit(CUT) from None
    except SystemExit as ended:
        # rich catches the BrokenPipeError itself, and exits with code 1
        if ended.code == 1 and isinstance(ended.__context__, BrokenPipeError):
            raise SystemExit(CUT) from None
        raise


def drop_unread() -> bool:
    """Send stdout and stderr to /dev/null from here on, each only if nobody reads it any more.

    Returns whether there was one. What Python still has in its buffer goes there too, at exit.
    """
    gone = [stream for stream in (sys.stdout, sys.stderr) if has_no_reader(stream)]
    for stream in gone:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    return bool(gone)


def has_no_reader(stream: TextIO | None) -> bool:
    """Whether `stream` is a pipe, a socket or a terminal whose other end is closed."""
    try:
        poll = select.poll()
        poll.register(stream.fileno() if stream else -1, 0)  # 0: errors are always reported
    except (OSError, ValueError):  # the stream has no file descriptor
        return False
    return bool(poll.poll(0))
