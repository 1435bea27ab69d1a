"""How a user's mistake is told: one line that names it, and the nearest right word.

Called by the command lines (configs.command_line, sample.py) and by all that checks names.
"""

import errno
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path

from cli.pipes import quiet_when_cut
from cli.plain import plain
from cli.program import as_called

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
# in folders of others even the question whether there is a file has no answer; files vanish
OUT_OF_REACH = (
    *(errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EIO, errno.ELOOP),
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ESTALE),
)
LONG_NUMBER = re.compile(r"(\d{20})\d{80,}")  # of which a message shows the beginning
# as a rule each rank of torchrun makes the same mistake: the first one tells it, and torchrun ends
# the others, which wait for that; what this rank alone has met is told then
OTHER_RANKS_WAIT_S = 3.0


@contextmanager
def user_errors() -> Iterator[None]:
    """Turns a ValueError into one line on stderr and exit code 2, Ctrl-C into exit code 130.

    Where nobody reads the output any more it ends as cli.pipes says. A disk that is full or
    read-only is told as a mistake is, wherever it was met, and so is a file or a folder that this
    user cannot reach. All else is a bug and passes.

    `python -X dev` lets these pass too, to see where they were raised.
    """
    with quiet_when_cut():
        try:
            with flushed_output():
                yield
        except ValueError as error:
            if sys.flags.dev_mode:
                raise
            raise refused(one_line(error)) from None
        except OSError as error:
            if sys.flags.dev_mode:
                raise
            raise refused(one_line(no_file(error))) from None
        except KeyboardInterrupt:  # before the loop, which has its own way to stop
            raise SystemExit(130) from None


def no_file(error: OSError) -> str:
    """What it says of the disk, or of a file's place. Raises it again where it is a bug."""
    if error.errno in NO_ROOM:
        return f"{error.filename or 'the output'}: cannot be written: {error.strerror}"
    if error.errno in OUT_OF_REACH and error.filename:
        return f"{error.filename}: cannot be read or written: {error.strerror}"
    raise error


@contextmanager
def flushed_output() -> Iterator[None]:
    """Nothing waits in stdout's buffer on leaving, where an error can still be told.

    Once stdout has refused a line it takes no more: Python's own flush at exit would complain.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout:
                sys.stdout.flush()
    except OSError as error:
        if error.errno in NO_ROOM and not error.filename:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def refused(line: str) -> SystemExit:
    """What ends the program with exit code 2, once the line is told."""
    tell_torchrun(line)
    if os.environ.get("LOCAL_RANK", "0") != "0":
        time.sleep(OTHER_RANKS_WAIT_S)
    print(f"{Path(sys.argv[0]).name}: error: {line}", file=sys.stderr)
    return SystemExit(2)


def tell_torchrun(line: str) -> None:
    """Gives torchrun the line for its own account of the failure.

    It prints a traceback of its own code whatever a rank does, and has no switch against that. Then
    its last lines are at least the reason.
    """
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        known = {"py_callstack": line, "timestamp": str(int(time.time()))}
        with suppress(OSError):
            Path(path).write_text(json.dumps({"message": {"message": line, "extraInfo": known}}))


def one_line(error: Exception | str) -> str:
    """Names in it are of files that anyone may have made; commands are the reader's own."""
    return LONG_NUMBER.sub(shortened, as_called(plain(error)))


def shortened(number: re.Match[str]) -> str:
    return f"{number[1]}... ({len(number[0]):,} digits)"


def suggestion(word: str, words: Iterable[str]) -> str:
    """'; did you mean WORD?' with the nearest of `words`, or nothing when none is near.

    A key that lacks its section counts as near: mode means wandb.mode.
    """
    words = list(words)
    near = [w for w in words if w.endswith(f".{word}")] or get_close_matches(word, words, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def ending(word: str = "", words: Iterable[str] = (), program: str | None = None) -> str:
    """How each mistake in a command line ends: the nearest of `words`, else where all are told."""
    return suggestion(word, words) or f"; see {program or called()} --help"


def called() -> str:
    """This program as a shell calls it: python train.py, python -m profiling report."""
    name = Path(sys.argv[0]).name
    spec = sys.modules["__main__"].__spec__  # of python -m
    if spec and " " not in name:  # a table of verbs names its verb there
        name = spec.name.removesuffix(".__main__")
    return f"python {'-m ' if spec else ''}{name}"
