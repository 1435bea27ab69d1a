"""Waits for the program to import torch. In a process that never does, nothing else happens."""

import json
import os
import sys
import threading
from importlib.abc import MetaPathFinder
from importlib.util import find_spec

from _profiling_attach.settings import read_settings

PROCESSES = "processes.jsonl"  # a line for each process that the hook started in


def start():
    settings = read_settings()
    if settings is None:
        return
    from _profiling_attach import own_marks  # noqa: F401  `from profiling import attach` finds it

    append_line(settings.folder, {"pid": os.getpid(), "ppid": os.getppid()})
    if "torch" in sys.modules:  # imported by a .pth file
        attach(settings)
    else:
        sys.meta_path.insert(0, TorchWatcher(settings))


def append_line(folder, row):
    """Appends a line to PROCESSES in one write, so that lines of several processes do not mix."""
    line = (json.dumps(row) + "\n").encode()
    file = os.open(os.path.join(folder, PROCESSES), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def attach(settings):
    try:
        from _profiling_attach import patches

        patches.attach(settings)
    except Exception as error:  # the program must not notice; the launcher reads this
        append_line(settings.folder, {"pid": os.getpid(), "error": repr(error)})


class TorchWatcher(MetaPathFinder):
    """Finds torch as it would be found without us, and attaches once torch has run.

    It stays until then: transformers and others ask find_spec("torch") long before they import it.
    """

    def __init__(self, settings):
        self.settings, self.local = settings, threading.local()

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or getattr(self.local, "searching", False):
            return None
        self.local.searching = True
        try:
            spec = find_spec("torch")
        finally:
            self.local.searching = False
        loader = getattr(spec, "loader", None)
        if loader is not None and hasattr(loader, "exec_module"):
            self.attach_behind(loader)
        return spec

    def attach_behind(self, loader):
        execute = loader.exec_module

        def exec_module(module):
            loader.__dict__.pop("exec_module", None)  # the loader is as it was
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                attach(self.settings)

        loader.exec_module = exec_module
