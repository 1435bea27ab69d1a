"""The end of a process: who is called at it, and that nothing cuts this short."""

import atexit
import signal
import sys
import threading
from contextlib import contextmanager


def write_at_end_of_process(end):
    atexit.register(end)
    if "multiprocessing.process" in sys.modules:
        from multiprocessing import process, util

        if process.parent_process() is not None:  # such a child ends without atexit
            util.Finalize(None, end, exitpriority=100)


@contextmanager
def ctrl_c_ignored():
    """Ignore SIGINT in the block; not in another thread, where Python does not allow it."""
    before = signal.getsignal(signal.SIGINT)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
