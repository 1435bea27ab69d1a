"""Starts py-spy on a process of the program while that one's window is open, when the hook asks.

The hook's side is profiling/attach/hook/_profiling_attach/python_samples.py.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingMixIn, UnixStreamServer
from tempfile import TemporaryDirectory
from threading import Thread

import msgspec

from profiling.tools import py_spy
from profiling.tools.py_spy import PySpy, Wanted

RANKS = 128  # that may ask at once
BEGUN = b"."  # the hook waits for it
LOOK_S = 0.1  # between two looks whether to stop


@dataclass(frozen=True)
class Begin:
    """Message of the hook at the beginning of a window."""

    rate_hz: float


class Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    request_queue_size = RANKS

    def __init__(self, path: Path, program: str):
        self.program, self.folder = program, path.parent
        self.spies = list[PySpy]()
        super().__init__(str(path), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A process that was killed in its window takes its connection along."""


class Handler(StreamRequestHandler):
    """One window of one process."""

    server: Server

    def handle(self) -> None:
        credentials = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, _, _ = struct.unpack("3i", credentials)
        begin = msgspec.json.decode(self.rfile.readline(), type=Begin)
        spy = PySpy(self.server.program, pid, begin.rate_hz, self.server.folder)
        self.server.spies.append(spy)
        try:
            spy.wait_for_begin()  # before, Ctrl-C ends it without words
            self.wfile.write(BEGUN)
            message = self.rfile.readline()
        finally:
            spy.stop()
        if message:
            self.wfile.write(answer(spy, msgspec.json.decode(message, type=Wanted)))


def answer(spy: PySpy, wanted: Wanted) -> bytes:
    """A further member of the trace, or words on why there is none."""
    try:
        return msgspec.json.encode({"python_samples": spy.samples(wanted)})
    except ValueError as error:
        return str(error).encode()


@contextmanager
def sampling() -> Iterator[str | None]:
    """Serve the hook within the block; yields the socket, or None where py-spy is not installed."""
    program = py_spy.find()
    if program is None:
        yield None
        return
    with TemporaryDirectory(prefix="profiling-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "samples"
        try:
            server = Server(path, program)
        except OSError:  # a long TMPDIR; the hook gets and notes the same error
            yield str(path)
            return
        with server:
            Thread(target=server.serve_forever, args=[LOOK_S], daemon=True).start()
            try:
                yield str(path)
            finally:
                server.shutdown()
                for spy in server.spies:  # of a program that was killed
                    spy.process.kill()
