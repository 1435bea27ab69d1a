"""Reaching the network, always within a time limit, for `data.prepare` and `data.tokenizers`."""

import hashlib
import threading
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import TypeVar
from urllib.parse import urlsplit

LIMIT_S = 30.0  # for a whole download: look-up, connection, every byte and all tries
SILENCE_S = 10.0  # for a connection, and for the next byte
TRIES = 3
PAUSE_S = 0.5  # before the second try; twice that before the third
LARGEST_BYTES = 1 << 24

Result = TypeVar("Result")


def within(limit_s: float, work: Callable[[], Result]) -> Result:
    """What `work()` returns or raises; TimeoutError once `limit_s` seconds have passed.

    A thread that is left behind is the only way to bound a name look-up or a server that sends one
    byte at a time: no socket time-out covers either.
    """
    outcome: dict[str, object] = {}

    def run() -> None:
        try:
            outcome["result"] = work()
        except BaseException as error:  # handed to the caller below
            outcome["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        raise TimeoutError(f"no answer within {limit_s:g} s")
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]


def download(url: str, sha256: str) -> bytes:
    """The bytes at `url`, whose SHA-256 is checked; OSError with the reason after the last try."""
    parts = urlsplit(url)
    if parts.scheme != "https" and (parts.scheme, parts.hostname) != ("http", "127.0.0.1"):
        raise ValueError(f"{url}: only https addresses are downloaded")
    return within(LIMIT_S, lambda: _tries(url, sha256))


def _tries(url: str, sha256: str) -> bytes:
    for attempt in range(1, TRIES + 1):
        try:
            return _fetch(url, sha256)
        except OSError as error:
            # A silent network stays silent: it is not waited for twice. (urllib hides the time-out
            # of a connection inside a URLError.)
            if attempt == TRIES or isinstance(getattr(error, "reason", error), TimeoutError):
                raise
            time.sleep(PAUSE_S * attempt)
    raise AssertionError("not reached")


def _fetch(url: str, sha256: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=SILENCE_S) as response:
            content = response.read(LARGEST_BYTES)
    except HTTPException as error:  # a broken answer; not an OSError by itself
        raise OSError(f"broken answer ({type(error).__name__}: {error})") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise OSError(
            f"wrong content: {len(content)} bytes with SHA-256 {found[:8]}... "
            f"instead of {sha256[:8]}..."
        )
    return content
