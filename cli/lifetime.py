"""The two ends of a process that imports half a million objects, as torch with its compiler does.

While they are made Python looks for cycles among them again and again, and when all is done it
frees one after the other. docs/optimisation.md has the figures.
"""

import atexit
import gc
import os
import sys

# a profiler's library in this process writes what it has in an exit handler of C
INJECTED = ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")

succeeded = False


def begin_many_imports() -> None:
    """No search for cycles until `settle`. To be called before anything registers an exit handler:
    the first one runs last."""
    gc.disable()
    atexit.register(leave_without_freeing)


def settle() -> None:
    """From here on cycles are looked for again: among new objects often, among these rarely."""
    gc.freeze()
    gc.unfreeze()  # both together make all that is there old, without a search
    gc.enable()


def succeed() -> None:
    """All is done and said: the process ends with exit code 0, by the shorter way."""
    global succeeded
    succeeded = True


def leave_without_freeing() -> None:
    """Behind all other exit handlers of Python; the system takes the memory back as one."""
    if not succeeded or any(os.environ.get(name) for name in INJECTED):
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream:
                stream.flush()
    except (OSError, ValueError):  # Python has its own way to tell
        return
    os._exit(0)
