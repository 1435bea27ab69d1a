"""Memory of a process that reads one long capture and ends.

The system clears each page that it gives out, and a report frees and requests gigabytes in columns
of some megabytes: about a tenth of its CPU time went into that. docs/benchmarks.md has the figures.
"""

import ctypes
import gc
import sys

TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8  # of malloc.h


def keep_freed_memory() -> None:
    """Return no freed memory to the system from here on, and turn the garbage collector off.

    It is for programs that end once they have their result: their peak memory grows little.
    malloc's options are set only if it is glibc's.
    """
    gc.disable()  # millions of events and columns, and no cycle among them
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, -1)
        mallopt(MMAP_MAX, 0)  # else each column is a mapping of its own, unmapped when freed
        mallopt(ARENA_MAX, 1)  # else no thread can reuse what another one freed
