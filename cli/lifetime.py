"""Faster start and end of a process that imports half a million objects, as torch's compiler does.

While they are made, Python's garbage collector searches them for cycles again and again, and at the
end Python frees them one by one. docs/optimisation.md has the figures.
"""

import atexit
import gc
import os
import sys

# a profiler's library in this process writes what it has in an exit handler of C
INJECTED = ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")

succeeded = False


def begin_many_imports() -> None:
    """Turn the garbage collector off until `resume_garbage_collection`.

    Call it before anything registers an exit handler: the one registered first runs last.
    """
    gc.disable()
    atexit.register(leave_without_freeing)


def resume_garbage_collection() -> None:
    """Turn the garbage collector on again, with all present objects in the oldest generation.

    It searches new objects often and these rarely.
    """
    gc.freeze()
    gc.unfreeze()  # both together move every object to the oldest generation, without a search
    gc.enable()


def succeed() -> None:
    """Let the process end with exit code 0 and without freeing its objects; its work is done."""
    global succeeded
    succeeded = True


def leave_without_freeing() -> None:
    """Exit handler that runs last: end at once, so that the system takes the memory back whole.

    It does so only after `succeed`, and if no profiler is injected, whose library would lose data.
    """
    if not succeeded or any(os.environ.get(name) for name in INJECTED):
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream:
                stream.flush()
    except (OSError, ValueError):  # Python's own exit reports it
        return
    os._exit(0)
