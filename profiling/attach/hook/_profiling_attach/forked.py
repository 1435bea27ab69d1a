"""Forked processes: what they are, what they must not free, and how they end."""

import ctypes
import sys


def is_loader_worker():
    """Whether this process makes samples for a DataLoader. It may call modules, but trains none."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def skip_destructors():
    """Let this forked process end without those of C++: Kineto's waits for a thread that only the
    parent has."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # called in reverse order, with the exit code
        libc.on_exit(libc._exit, None)
        libc.on_exit(libc.fcloseall, None)


def never_free(what):
    """Keep an object for as long as the process lives, and through Python's own end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(what))
