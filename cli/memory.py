"""How a process that reads one long capture and ends treats its memory.

The system clears each page that it gives, and a report frees and asks again for gigabytes in
columns of some megabytes: about a tenth of its CPU time went with that. docs/benchmarks.md has the
figures.
"""

import ctypes
import gc
import sys

TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8  # of malloc.h


def keep_freed() -> None:
    """From here on nothing that is freed goes back to the system, and no cycles are looked for.

    For programs that end with what they were asked for: what they hold at once grows little. Of
    malloc's options alone where it is glibc's.
    """
    gc.disable()  # events and columns are none, and there are millions of them
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, -1)
        mallopt(MMAP_MAX, 0)  # else each column is a mapping of its own, and leaves with it
        mallopt(ARENA_MAX, 1)  # else what one thread freed the other does not get
