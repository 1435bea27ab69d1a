"""Serves the dashboard on this machine while runs go on. Called by the verb, for --watch.

It has two answers, the page and its version, and reads no path from a request.
"""

import socket
import threading
from collections.abc import Callable
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from profiling.run_files import METRICS

WATCHED = (METRICS, "summary.json", "config.yaml")


class DashboardServer(ThreadingHTTPServer):
    """folders(): the run folders at present; make_page(version): the page as they are now."""

    daemon_threads = True

    def __init__(
        self,
        folders: Callable[[], list[Path]],
        make_page: Callable[[str], str],
        host: str,
        port: int,
    ):
        self.folders, self.make_page = folders, make_page
        self.made: tuple[str, bytes] = ("", b"")
        self.making = threading.Lock()
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), Answer)

    def version(self) -> str:
        """Changes when a run has gone on, has ended, or a new one is there."""
        paths = [folder / name for folder in self.folders() for name in WATCHED]
        states = [path.stat() for path in paths if path.exists()]
        return "-".join(f"{state.st_mtime_ns:x}.{state.st_size:x}" for state in states)

    def page(self) -> bytes:
        """Made anew only when the runs have changed. Raises ValueError as reading them does."""
        version = self.version()
        with self.making:
            if self.made[0] != version:
                self.made = (version, self.make_page(version).encode())
            return self.made[1]


class Answer(BaseHTTPRequestHandler):
    server: DashboardServer

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        try:
            if path == "/":
                self.answer(200, "text/html; charset=utf-8", self.server.page())
            elif path == "/version":
                self.answer(200, "text/plain", self.server.version().encode())
            else:
                self.answer(404, "text/plain", b"there is only the dashboard, at /\n")
        except ValueError as error:
            # it may be mended, so the browser asks again
            said = f'<meta http-equiv="refresh" content="5"><p>{escape(str(error))}</p>\n'
            self.answer(503, "text/html; charset=utf-8", said.encode())

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """A line for every poll would bury what matters."""


def serve(
    folders: Callable[[], list[Path]], make_page: Callable[[str], str], host: str, port: int
) -> int:
    """Serves until Ctrl-C; returns the exit code. Raises ValueError when it cannot start."""
    make_page("")  # what is wrong from the start is said here, not in a browser
    try:
        server = DashboardServer(folders, make_page, host, port)
    except (OSError, OverflowError) as error:
        raise ValueError(f"--host {host} --port {port}: cannot listen: {error}") from error
    with server:
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{server.server_port}/"
        try:
            print(f"{address} follows the runs; Ctrl-C ends it", flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0
