"""Serves pages on this machine that follow runs while they go on. Called by the verbs dashboard
and home, for --watch.

A path of a request is looked up in what the verb offers; none is a file's. A page that follows runs
has three answers: the page, the page without plotly, and the events that it follows (HTML's
server-sent events). `rows` has what runs have logged since, and after `changed` the page asks for
its words, tables and charts anew.
"""

import errno
import ipaddress
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from profiling.analysis.runs.folder import Numbers
from profiling.report.dashboard.following import Mark, current_mark, rows_since

MakePage = Callable[[str, bool], str]  # (mark, whether to leave plotly out) -> the page
Rows = dict[str, list[Numbers]]  # by the folder of the run
BETWEEN_EVENTS_S = 1.0
BETWEEN_PAGES_S = 5.0  # at least; making them takes at most a tenth of the time
ALIVE_S = 10.0  # longest silence; sending something shows whether the browser has gone
TIMEOUT_S = 30.0  # for a browser that neither reads nor asks


class LivePage:
    """A page that is made anew when its files have changed.

    mark: how far the files are read.
    news: (a newer mark, the rows since a mark), or None to have the page made anew. Both raise
    ValueError where the files cannot be read.
    """

    def __init__(
        self,
        mark: Callable[[], Mark],
        news: Callable[[Mark], tuple[Mark, Rows] | None],
        make_page: MakePage,
    ):
        self.mark, self.news, self.make_page = mark, news, make_page
        self.made: dict[bool, tuple[str, bytes]] = {}
        self.making = threading.Lock()
        self.took_s = 0.0  # to make the last page
        self.made_s = 0.0  # when that was, on the monotonic clock

    def page(self, bare: bool) -> bytes:
        """The page, with `bare` without plotly. Raises ValueError where it cannot be made."""
        with self.making:
            mark = str(self.mark())
            if self.made.get(bare, ("", b""))[0] != mark:
                begin_s = time.monotonic()
                self.made[bare] = (mark, self.make_page(mark, bare).encode())
                self.made_s = time.monotonic()
                self.took_s = self.made_s - begin_s
            return self.made[bare][1]


def dashboard_of(folders: Callable[[], list[Path]], make_page: MakePage) -> LivePage:
    """The dashboard of the run folders that `folders` returns; `make_page` makes it."""
    return LivePage(
        lambda: current_mark(folders()), lambda mark: rows_since(folders(), mark), make_page
    )


@dataclass(frozen=True)
class FixedPage:
    """A page that follows nothing. Its `policy` is added to the page's own, in a header."""

    content: bytes
    policy: str = ""
    status: int = 200


class PageServer(ThreadingHTTPServer):
    """Serves what `find` returns for a path; None: there is no such page."""

    daemon_threads = True

    def __init__(self, find: Callable[[str], LivePage | FixedPage | None], host: str, port: int):
        self.find, self.host = find, host
        self.ending = threading.Event()
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), Answer)

    def server_close(self) -> None:
        self.ending.set()
        super().server_close()

    def allows(self, host: str) -> bool:
        """Whether a request may name this host. A foreign name whose DNS points here may not."""
        name = urlsplit(f"//{host}").hostname or ""
        with suppress(ValueError):
            return bool(ipaddress.ip_address(name))
        return name in ("localhost", self.host.lower(), socket.gethostname().lower())


class Answer(BaseHTTPRequestHandler):
    server: PageServer
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        request = urlsplit("http://here" + self.path if self.path[:1] == "/" else self.path)
        folder, _, name = request.path.rpartition("/")
        try:
            if not self.server.allows(self.headers.get("Host", "")):
                return self.answer(421, "text/plain", b"another host's name: ask for localhost\n")
            page = self.server.find(f"{folder}/")
            if isinstance(page, LivePage) and name == "events":
                self.follow(page, Mark.parse(self.last_seen(request.query)))
            elif isinstance(page, LivePage) and name in ("", "bare"):
                self.answer(200, "text/html; charset=utf-8", page.page(bare=name == "bare"))
            elif isinstance(page, FixedPage) and not name:
                kind = "text/html; charset=utf-8"
                self.answer(page.status, kind, page.content, page.policy)
            else:
                self.answer(404, "text/plain", b"there is no such page; the first is at /\n")
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

    def answer(self, status: int, kind: str, body: bytes, policy: str = "") -> None:
        self.begin(status, kind, str(len(body)), policy)
        if self.command != "HEAD":
            self.wfile.write(body)

    def begin(self, status: int, kind: str, length: str = "", policy: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length:
            self.send_header("Content-Length", length)
        if policy:
            self.send_header("Content-Security-Policy", policy)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()

    def follow(self, page: LivePage, mark: Mark) -> None:
        """Sends events until the browser or the server ends."""
        self.begin(200, "text/event-stream; charset=utf-8")
        if self.command == "HEAD":
            return
        sent_s = time.monotonic()
        for data in events(page, mark, self.server.ending):
            if data or time.monotonic() - sent_s > ALIVE_S:
                self.wfile.write(data or b": still here\n\n")
                self.wfile.flush()
                sent_s = time.monotonic()

    def log_message(self, *_: object) -> None:
        """Logs nothing: a line for every request would bury what matters."""


def events(page: LivePage, mark: Mark, ending: threading.Event) -> Iterator[bytes]:
    """Yield the bytes to send, once a second; empty ones where there is nothing to send."""
    changed_s, grown, troubled = time.monotonic(), False, False
    while not ending.is_set():
        try:
            news = page.news(mark)
        except (ValueError, OSError) as error:  # OSError: a folder went while it was looked at
            troubled = True
            yield event("trouble", str(error), mark)
            ending.wait(BETWEEN_PAGES_S)
            continue
        if news is None:
            yield event("changed", "", mark)
            return  # the page asks again, from the mark of what it has got by then
        mark, rows = news
        if rows or troubled:  # an empty event tells the page that the trouble is over
            grown, troubled = grown or bool(rows), False
            yield event("rows", rows, mark)
        # words, tables and figures of whole runs are made anew only now and then
        if grown and time.monotonic() - changed_s > max(BETWEEN_PAGES_S, 10 * page.took_s):
            yield event("changed", "", mark)
            return
        yield b""
        ending.wait(BETWEEN_EVENTS_S)


def event(name: str, data: object, mark: Mark) -> bytes:
    return f"event: {name}\nid: {mark}\ndata: {json.dumps(data)}\n\n".encode()


def serve(find: Callable[[str], LivePage | FixedPage | None], host: str, port: int) -> int:
    """Serves until Ctrl-C; returns the exit code. Raises ValueError when it cannot start."""
    first = find("/")
    if isinstance(first, LivePage):
        first.page(bare=True)  # an error from the start is raised here, not in a browser
    try:
        server = PageServer(find, host, port)
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
