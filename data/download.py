"""Downloads, always within a time limit, for `data.prepare` and `data.tokenizers`."""

import hashlib
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, wait
from http.client import HTTPException
from textwrap import shorten
from typing import TypeVar
from urllib.parse import urlsplit

LIMIT_S = 30.0  # for a whole download: look-up, connection, every byte and all tries
SILENCE_S = 10.0  # limit for a connection, and for the next byte
PAUSE_S = 0.5  # before the second try; twice that before the third and last
LARGEST_BYTES = 1 << 24
LONGEST_REASON = 150
OPENWEBTEXT = "Skylion007/openwebtext"  # on Hugging Face: 8 million documents in Parquet, 24 GB

Result = TypeVar("Result")


def finish_within(limit_s: float, work: Callable[[], Result]) -> Result:
    """Call `work()` and return or raise what it does; TimeoutError after `limit_s` seconds.

    It runs in a thread, which is abandoned after a time-out. There is no other way to bound a name
    look-up, or a server that sends one byte at a time: no socket time-out covers either.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # raised for the caller below
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()  # an executor's thread would hold up the exit
    if not wait([outcome], limit_s).done:
        raise TimeoutError(f"no answer within {limit_s:g} s")
    return outcome.result()


def download(url: str, sha256: str) -> bytes:
    """Download the bytes at `url` and check their SHA-256.

    Raises OSError with the reason after the last try, ValueError for an address that is not https.
    """
    parts = urlsplit(url)
    if parts.scheme != "https" and (parts.scheme, parts.hostname) != ("http", "127.0.0.1"):
        raise ValueError(f"{url}: only https addresses are downloaded")
    return finish_within(LIMIT_S, lambda: fetch_in_three_tries(url, sha256))


def fetch_in_three_tries(url: str, sha256: str) -> bytes:
    for pause_s in (PAUSE_S, 2 * PAUSE_S):
        try:
            return fetch(url, sha256)
        except OSError as error:
            # A network that did not answer will not answer the second time: do not try again.
            # (urllib hides the time-out of a connection inside a URLError.)
            if isinstance(getattr(error, "reason", error), TimeoutError):
                raise
            time.sleep(pause_s)
    return fetch(url, sha256)


def fetch(url: str, sha256: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=SILENCE_S) as response:
            content: bytes = response.read(LARGEST_BYTES)
    except HTTPException as error:  # a broken answer, which is no OSError
        raise OSError(f"broken response ({type(error).__name__}: {error})") from error
    actual = hashlib.sha256(content).hexdigest()
    if actual != sha256:
        raise OSError(
            f"wrong content: {len(content)} bytes with SHA-256 {actual[:8]}..., not {sha256[:8]}..."
        )
    return content


def download_openwebtext() -> str:
    """Download what Hugging Face's cache lacks of OpenWebText; the folder in the cache.

    The first download takes hours. Raises ValueError if there is neither a network nor a copy.
    """
    try:
        from huggingface_hub import snapshot_download

        return snapshot_download(OPENWEBTEXT, repo_type="dataset", allow_patterns="*.parquet")
    except ImportError as error:
        raise ValueError(
            "openwebtext: needs two packages; run pip install huggingface_hub pyarrow"
        ) from error
    except Exception as error:  # three libraries below may raise their own
        raise ValueError(
            f"openwebtext: could not be downloaded ({reason_of(error)}); give a copy in Parquet "
            "with source=FOLDER"
        ) from error


def reason_of(error: BaseException) -> str:
    """Reason of a failure in one line: the innermost OSError in its chain, else `error` itself."""
    reason, below = error, error.__cause__ or error.__context__
    while below:
        reason = below if isinstance(below, OSError) else reason
        below = below.__cause__ or below.__context__
    return shorten(f"{type(reason).__name__}: {reason}", LONGEST_REASON, placeholder=" ...")
