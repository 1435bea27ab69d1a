"""Serves the dashboard on this machine while runs go on. Called by the verb, for --watch.

It has three answers and reads no path from a request: the page, the same without plotly, and the
events that a page follows (HTML's server-sent events): `rows`, what runs have logged since, and
`changed`, after which the page asks for its words, tables and charts anew.
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

from profiling.report.dashboard.following import Mark, mark_of, rows_since

MakePage = Callable[[str, bool], str]  # of the mark; whether it is to be without plotly
BETWEEN_EVENTS_S = 1.0
BETWEEN_PAGES_S = 5.0  # at least, and not more than a tenth of the time goes into making them
ALIVE_S = 10.0  # after so long something is sent: a browser that is gone is noticed
TIMEOUT_S = 30.0  # of a browser that takes nothing, or asks for nothing


class DashboardServer(ThreadingHTTPServer):
    """folders(): the run folders at present; make_page: the page as they are now."""

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
        """Made anew only when the runs have changed. Raises ValueError as reading them does."""
        with self.making:
            mark = str(mark_of(self.folders()))
            if self.made.get(bare, ("", b""))[0] != mark:
                begin_s = time.monotonic()
                self.made[bare] = (mark, self.make_page(mark, bare).encode())
                self.took_s = time.monotonic() - begin_s
            return self.made[bare][1]

    def allows(self, host: str) -> bool:
        """Whether a request may name this host: not one that somebody's DNS points here."""
        name = urlsplit(f"//{host}").hostname or ""
        with suppress(ValueError):
            return bool(ipaddress.ip_address(name))
        return name in ("localhost", self.host.lower(), socket.gethostname().lower())


class Answer(BaseHTTPRequestHandler):
    server: DashboardServer
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        asked = urlsplit("http://here" + self.path if self.path[:1] == "/" else self.path)
        try:
            if not self.server.allows(self.headers.get("Host", "")):
                self.answer(421, "text/plain", b"another host's name: ask for localhost\n")
            elif asked.path in ("/", "/bare"):
                page = self.server.page(bare=asked.path == "/bare")
                self.answer(200, "text/html; charset=utf-8", page)
            elif asked.path == "/events":
                self.follow(Mark.of(self.last_seen(asked.query)))
            else:
                self.answer(404, "text/plain", b"there is only the dashboard, at /\n")
        except (ConnectionError, TimeoutError):
            self.close_connection = True  # the browser has gone
        except (ValueError, OSError) as error:  # OSError: a folder went while it was read
            # it may be mended, so the browser asks again
            said = f'<meta http-equiv="refresh" content="5"><p>{escape(str(error))}</p>\n'
            self.answer(503, "text/html; charset=utf-8", said.encode())

    do_HEAD = do_GET

    def last_seen(self, query: str) -> str:
        """The mark of a browser's last event, which it sends after a break; else its page's."""
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
        """Until the browser or the server ends."""
        self.begin(200, "text/event-stream; charset=utf-8")
        if self.command == "HEAD":
            return
        sent_s = time.monotonic()
        for said in events(self.server, mark):
            if said or time.monotonic() - sent_s > ALIVE_S:
                self.wfile.write(said or b": still here\n\n")
                self.wfile.flush()
                sent_s = time.monotonic()

    def log_message(self, *_: object) -> None:
        """A line for every request would bury what matters."""


def events(server: DashboardServer, mark: Mark) -> Iterator[bytes]:
    """What is to be sent in each second, empty where there is nothing."""
    changed_s, grown, troubled = time.monotonic(), False, False
    while not server.ending.is_set():
        try:
            found = rows_since(server.folders(), mark)
        except (ValueError, OSError) as error:  # OSError: a folder went while it was looked at
            troubled = True
            yield event("trouble", str(error), mark)
            server.ending.wait(BETWEEN_PAGES_S)
            continue
        if found is None:
            yield event("changed", "", mark)
            return  # the page asks again, from the mark of what it has got by then
        mark, rows = found
        if rows or troubled:  # none, too: the trouble is over
            grown, troubled = grown or bool(rows), False
            yield event("rows", rows, mark)
        # words, tables and what is computed of whole runs follow the rows at some distance
        if grown and time.monotonic() - changed_s > max(BETWEEN_PAGES_S, 10 * server.took_s):
            yield event("changed", "", mark)
            return
        yield b""
        server.ending.wait(BETWEEN_EVENTS_S)


def event(name: str, data: object, mark: Mark) -> bytes:
    return f"event: {name}\nid: {mark}\ndata: {json.dumps(data)}\n\n".encode()


def serve(folders: Callable[[], list[Path]], make_page: MakePage, host: str, port: int) -> int:
    """Serves until Ctrl-C; returns the exit code. Raises ValueError when it cannot start."""
    make_page("", True)  # what is wrong from the start is said here, not in a browser
    try:
        server = DashboardServer(folders, make_page, host, port)
    except (OSError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        cure = "; --port 0 takes a free one" if taken else ""
        raise ValueError(f"--host {host} --port {port}: cannot listen: {error}{cure}") from error
    with server:
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{server.server_port}/"
        try:
            print(f"{address} follows the runs; Ctrl-C ends it", flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0
