"""Serves the dashboard on this machine while runs go on. Called by the verb, for --watch.

It has three answers and reads no path from a request: the page, the page without plotly, and the
events that a page follows (HTML's server-sent events). `rows` has what runs have logged since, and
after `changed` the page asks for its words, tables and charts anew.
"""

import errno
import ipaddress
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from profiling.report.dashboard.following import Mark, current_mark, rows_since

MakePage = Callable[[str, bool], str]  # (mark, whether to leave plotly out) -> the page
BETWEEN_EVENTS_S = 1.0
BETWEEN_PAGES_S = 5.0  # at least; making them takes at most a tenth of the time
ALIVE_S = 10.0  # longest silence; sending something shows whether the browser has gone
TIMEOUT_S = 30.0  # for a browser that neither reads nor asks


class DashboardServer(ThreadingHTTPServer):
    """Serves the page of the run folders that `folders` returns; `make_page` makes it."""

    daemon_threads = True

    def __init__(
        self, folders: Callable[[], list[Path]], make_page: MakePage, host: str, port: int
    ):
        self.folders, self.make_page, self.host = folders, make_page, host
        self.made: dict[bool, tuple[str, bytes]] = {}
        self.making = threading.Lock()
        self.ending = threading.Event()
        self.took_s = 0.0  # to make the last page
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), Answer)

    def server_close(self) -> None:
        self.ending.set()
        super().server_close()

    def page(self, bare: bool) -> bytes:
        """The page, which is made anew only when the runs have changed.

        Raises ValueError where they cannot be read.
        """
        with self.making:
            mark = str(current_mark(self.folders()))
            if self.made.get(bare, ("", b""))[0] != mark:
                begin_s = time.monotonic()
                self.made[bare] = (mark, self.make_page(mark, bare).encode())
                self.took_s = time.monotonic() - begin_s
            return self.made[bare][1]

    def allows(self, host: str) -> bool:
        """Whether a request may name this host. A foreign name whose DNS points here may not."""
        name = urlsplit(f"//{host}").hostname or ""
        with suppress(ValueError):
            return bool(ipaddress.ip_address(name))
        return name in ("localhost", self.host.lower(), socket.gethostname().lower())


class Answer(BaseHTTPRequestHandler):
    server: DashboardServer
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        request = urlsplit("http://here" + self.path if self.path[:1] == "/" else self.path)
        try:
            if not self.server.allows(self.headers.get("Host", "")):
                self.answer(421, "text/plain", b"another host's name: ask for localhost\n")
            elif request.path in ("/", "/bare"):
                page = self.server.page(bare=request.path == "/bare")
                self.answer(200, "text/html; charset=utf-8", page)
            elif request.path == "/events":
                self.follow(Mark.parse(self.last_seen(request.query)))
            else:
                self.answer(404, "text/plain", b"there is only the dashboard, at /\n")
        except (ConnectionError, TimeoutError):
            self.close_connection = True  # the browser has gone
        except (ValueError, OSError) as error:  # OSError: a folder went while it was read
            # it may be mended, so the browser asks again
            trouble = f'<meta http-equiv="refresh" content="5"><p>{escape(str(error))}</p>\n'
            self.answer(503, "text/html; charset=utf-8", trouble.encode())

    do_HEAD = do_GET

    def last_seen(self, query: str) -> str:
        """The mark of the browser's last event, sent after a break, or else that of its page."""
        return self.headers.get("Last-Event-ID") or parse_qs(query).get("from", [""])[0]

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.begin(status, kind, str(len(body)))
        if self.command != "HEAD":
            self.wfile.write(body)

    def begin(self, status: int, kind: str, length: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length:
            self.send_header("Content-Length", length)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()

    def follow(self, mark: Mark) -> None:
        """Sends events until the browser or the server ends."""
        self.begin(200, "text/event-stream; charset=utf-8")
        if self.command == "HEAD":
            return
        sent_s = time.monotonic()
        for data in events(self.server, mark):
            if data or time.monotonic() - sent_s > ALIVE_S:
                self.wfile.write(data or b": still here\n\n")
                self.wfile.flush()
                sent_s = time.monotonic()

    def log_message(self, *_: object) -> None:
        """Logs nothing: a line for every request would bury what matters."""


def events(server: DashboardServer, mark: Mark) -> Iterator[bytes]:
    """Yield the bytes to send, once a second; empty ones where there is nothing to send."""
    changed_s, grown, troubled = time.monotonic(), False, False
    while not server.ending.is_set():
        try:
            news = rows_since(server.folders(), mark)
        except (ValueError, OSError) as error:  # OSError: a folder went while it was looked at
            troubled = True
            yield event("trouble", str(error), mark)
            server.ending.wait(BETWEEN_PAGES_S)
            continue
        if news is None:
            yield event("changed", "", mark)
            return  # the page asks again, from the mark of what it has got by then
        mark, rows = news
        if rows or troubled:  # an empty event tells the page that the trouble is over
            grown, troubled = grown or bool(rows), False
            yield event("rows", rows, mark)
        # words, tables and figures of whole runs are made anew only now and then
        if grown and time.monotonic() - changed_s > max(BETWEEN_PAGES_S, 10 * server.took_s):
            yield event("changed", "", mark)
            return
        yield b""
        server.ending.wait(BETWEEN_EVENTS_S)


def event(name: str, data: object, mark: Mark) -> bytes:
    return f"event: {name}\nid: {mark}\ndata: {json.dumps(data)}\n\n".encode()


def serve(folders: Callable[[], list[Path]], make_page: MakePage, host: str, port: int) -> int:
    """Serves until Ctrl-C; returns the exit code. Raises ValueError when it cannot start."""
    make_page("", True)  # an error that is there from the start is raised here, not in a browser
    try:
        server = DashboardServer(folders, make_page, host, port)
    except (OSError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        cure = "; --port 0 picks a free port" if taken else ""
        raise ValueError(
            f"--host {host} --port {port}: cannot listen on this address: {error}{cure}"
        ) from error
    with server:
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{server.server_port}/"
        try:
            print(f"{address} follows the runs; Ctrl-C ends it", flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0
