"""Server of tests.helpers.forked: it has imported what programs need, and forks each of them.

`python fork_server.py MODULE ...` takes requests from the socket that is its stdin. A program ends
without freeing what was imported, which would take it a second.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import weakref
from types import ModuleType

from cli.process import INJECTED

STREAMS = (0, 1, 2)

exit_code: int | None = None  # of this process, once its program has ended


def serve(requests: socket.socket) -> dict | None:
    """Fork for each request; returns it in the new process, and None in the server at the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, fds, _, _ = socket.recv_fds(requests, 1, 4)
        if not message:
            return None
        if not os.fork():
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            *streams, status = fds
            if program := os.fork():
                report_end(program, streams, status)
            os.close(status)
            for stream, fd in zip(STREAMS, streams, strict=True):
                os.dup2(fd, stream)
                os.close(fd)
            with open(0, closefd=False, encoding="utf-8") as request:
                return json.load(request)
        for fd in fds:
            os.close(fd)


def report_end(program: int, streams: list[int], status: int) -> None:
    """Write the process id of the program and, when it has ended, its status; ends this process."""
    for stream in (*streams, *STREAMS):
        os.close(stream)  # only the program holds its pipes
    os.write(status, b"%d\n" % program)
    os.write(status, b"%d\n" % os.waitpid(program, 0)[1])
    os._exit(0)


def leave_without_freeing() -> None:
    """Exit handler that runs last, as in cli.process."""
    if exit_code is None or any(os.environ.get(name) for name in INJECTED):
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(exit_code)


def run_to_its_end(request: dict) -> None:
    """Run a program, note its exit code and raise what it raises: Python prints that."""
    global exit_code
    try:
        run(**request)
    except SystemExit as end:
        exit_code = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    except Exception:
        exit_code = 1
        raise
    exit_code = 0


def run(words: list[str], environ: dict[str, str], folder: str) -> None:
    """Run what `python WORDS` would, in the main module of this process."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(
            encoding=environ.get("PYTHONIOENCODING"),
            line_buffering=stream.isatty() or stream is sys.stderr,
            write_through="PYTHONUNBUFFERED" in environ,
        )
    sys.path[1:1] = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], folder
        sys.modules.pop(words[1], None)
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = ModuleType("__main__")
    if words[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *words[2:]], ""
        source, name = words[1].encode(), "<string>"
    else:
        sys.argv, sys.path[0] = words, os.path.dirname(os.path.abspath(words[0]))
        main.__file__ = name = words[0]
        with open(name, "rb") as file:
            source = file.read()
    exec(compile(source, name, "exec"), main.__dict__)


if __name__ == "__main__":
    atexit.register(leave_without_freeing)
    requests = socket.socket(fileno=os.dup(0))
    for module in sys.argv[1:]:
        importlib.import_module(module)
    for finalizer in list(weakref.finalize._registry):
        finalizer.atexit = False  # torch's own, half of the time that a short program takes
    gc.freeze()  # else a program's search for cycles copies all that was imported
    request = serve(requests)
    requests.close()
    if request:
        run_to_its_end(request)
