"""The text that is trained on: a file of the user's, tiny Shakespeare, or its stand-in.

Called by `data.prepare`, and by sample.py for a prompt in a file.
"""

import hashlib
import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path

from cli.files import is_pipe, replacement_for
from configs.data import DataConfig
from data.dataset import STAND_IN
from data.download import download
from data.standin import stand_in_text

log = logging.getLogger(__name__)

TINY_SHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
URL_VARIABLE = "TINY_SHAKESPEARE_URL"  # environment variable with the address of a mirror
TINY_SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


@dataclass(frozen=True)
class Text:
    """A text to be prepared, and its source."""

    content: str
    source: str  # as in Dataset
    suffix: str  # end of the folder's name, so that no text is mistaken for another
    sha256: str


def read_text(config: DataConfig, data_dir: Path) -> Text:
    if config.data_source is not None:
        return read_source(config.data_source)
    try:
        content = read_tiny_shakespeare(data_dir)
        return Text(content, "tiny_shakespeare", "", TINY_SHAKESPEARE_SHA256)
    except ConnectionError as error:
        if not config.offline_fallback:
            raise ValueError(
                f"offline_fallback=false: tiny Shakespeare could not be downloaded ({error}); "
                "give your own text with data_source=FILE"
            ) from error
        log.warning(
            "THIS IS NOT SHAKESPEARE: the text could not be downloaded (%s). A substitute of "
            "random words in the form of a play is used instead: its losses are NOT comparable "
            "with any figure for tiny Shakespeare. To train on your own text, give "
            "data_source=FILE.",
            error,
        )
        content = stand_in_text()
        return Text(content, STAND_IN, "-standin", sha256_of(content))


def read_source(data_source: str) -> Text:
    content = read_utf8(data_source, f"data_source={data_source}")
    if not content:
        raise ValueError(f"data_source={data_source}: empty; give a text to train on")
    path, sha256 = Path(data_source), sha256_of(content)
    stem = re.sub(r"[^\w.-]+", "_", path.stem)[:40]
    return Text(content, path.name, f"-{stem}-{sha256[:8]}", sha256)


def read_utf8(path: str, key: str) -> str:
    """Text of a user's file, without byte-order mark and with line ends made \\n.

    Raises ValueError whose message begins with `key`.
    """
    try:
        file = Path(path).expanduser()
        if is_pipe(file):
            raise ValueError(f"{key}: is a device or a pipe; give a UTF-8 text file")
        return file.read_text(encoding="utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{key}: not UTF-8 (byte {error.start} is 0x{error.object[error.start]:02x}); "
            "convert it first, for example with iconv"
        ) from error
    except OSError as error:
        raise ValueError(f"{key}: {error.strerror}; give a UTF-8 text file") from error


def read_tiny_shakespeare(data_dir: Path) -> str:
    """Read tiny Shakespeare from data/tinyshakespeare/input.txt, or download it to that file.

    Users may put a copy there by hand. ConnectionError says why it could not be downloaded.
    """
    path = tiny_shakespeare_in(data_dir)
    if path.is_file():
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() == TINY_SHAKESPEARE_SHA256:
            return content.decode("utf-8")
        log.warning("%s: not tiny Shakespeare (wrong SHA-256); downloading it again", path)
    url = os.environ.get(URL_VARIABLE, TINY_SHAKESPEARE_URL)
    try:
        content = download(url, TINY_SHAKESPEARE_SHA256)
    except OSError as error:
        raise ConnectionError(f"{url}: {error}") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacement_for(path) as unfinished:
        unfinished.write_bytes(content)
    return content.decode("utf-8")


def tiny_shakespeare_in(data_dir: Path) -> Path:
    return data_dir / "tinyshakespeare" / "input.txt"


def sha256_of(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()
