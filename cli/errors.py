"""Reports of a user's mistake: one line that names it, and the nearest right word.

Called by the command lines (configs.command_line, sample.py) and by everything that checks names.
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

from cli.pipes import exit_quietly_when_cut
from cli.plain import plain
from cli.program import PREFIX, as_called

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
# in folders of others even the question whether there is a file has no answer; files vanish
OUT_OF_REACH = (
    *(errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EIO, errno.ELOOP),
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ESTALE),
)
LONG_NUMBER = re.compile(r"(\d{20})\d{80,}")  # a message shows only its first digits
# As a rule each rank of torchrun makes the same mistake: the first one reports it, and torchrun
# ends the others, which wait for that. A rank that nobody ends met it alone, and reports it then.
OTHER_RANKS_WAIT_S = 3.0


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn a ValueError into one line on stderr and exit code 2, Ctrl-C into exit code 130.

    If nobody reads the output any more, the program ends as cli.pipes says. A disk that is full or
    read-only is reported like a mistake, wherever it was met, and so is a file or a folder that
    this user cannot reach. Every other exception is a bug and passes.

    `python -X dev` lets these pass too, to see where they were raised.
    """
    with exit_quietly_when_cut():
        try:
            with flush_output():
                yield
        except ValueError as error:
            if sys.flags.dev_mode:
                raise
            raise error_exit(one_line(error)) from None
        except OSError as error:
            if sys.flags.dev_mode:
                raise
            raise error_exit(one_line(file_message(error))) from None
        except KeyboardInterrupt:  # before the loop, which has its own way to stop
            raise SystemExit(130) from None


def file_message(error: OSError) -> str:
    """Message about the disk or a file out of reach. Any other error is a bug and raised again."""
    if error.errno in NO_ROOM:
        return f"{error.filename or 'the output'}: cannot be written: {error.strerror}"
    if error.errno in OUT_OF_REACH and error.filename:
        return f"{error.filename}: cannot be read or written: {error.strerror}"
    raise error


@contextmanager
def flush_output() -> Iterator[None]:
    """Flush stdout at the end of the block, where an error can still be reported.

    Once stdout has refused a line it takes no more: it then leads nowhere, since Python's own flush
    at exit would complain.
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


def error_exit(line: str) -> SystemExit:
    """Report `line` on stderr and to torchrun; the exception to raise, which exits with code 2."""
    tell_torchrun(line)
    if os.environ.get("LOCAL_RANK", "0") != "0":
        time.sleep(OTHER_RANKS_WAIT_S)
    print(f"{Path(sys.argv[0]).name}: error: {line}", file=sys.stderr)
    return SystemExit(2)


def note_once(line: str) -> None:
    """Print a line on stderr; with several ranks only the first prints it."""
    if os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr)


def tell_torchrun(line: str) -> None:
    """Give torchrun the line for its own account of the failure.

    Torchrun prints a traceback of its own code whatever a rank does, and has no switch against
    that. This way its last lines are at least the reason.
    """
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        known = {"py_callstack": line, "timestamp": str(int(time.time()))}
        with suppress(OSError):
            Path(path).write_text(json.dumps({"message": {"message": line, "extraInfo": known}}))


def one_line(error: Exception | str) -> str:
    """Message of `error` on one line, without control characters and with long numbers cut.

    A message may quote names of files that anyone may have made. Commands in it are spelled as the
    user types them.
    """
    return LONG_NUMBER.sub(shorten, as_called(plain(error)))


def shorten(number: re.Match[str]) -> str:
    return f"{number[1]}... ({len(number[0]):,} digits)"


def suggestion(word: str, words: Iterable[str]) -> str:
    """Hint '; did you mean WORD?' with the nearest of `words`, or '' if none is near.

    A key that lacks its section counts as near: mode means wandb.mode.
    """
    words = list(words)
    near = [w for w in words if w.endswith(f".{word}")] or get_close_matches(word, words, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def ending(word: str = "", words: Iterable[str] = (), program: str | None = None) -> str:
    """End of each message about a command line: the nearest of `words`, else a pointer to --help.

    `program` is the command to show; None: this process's own.
    """
    return suggestion(word, words) or f"; see {program or program_command()} --help"


def program_command() -> str:
    """Command that started this program: python train.py, python -m profiling report."""
    name = Path(sys.argv[0]).name
    spec = sys.modules["__main__"].__spec__  # set under python -m
    if spec and " " not in name:  # a blank: a table of verbs has put "profiling VERB" there
        name = spec.name.removeprefix(PREFIX).removesuffix("__main__").strip(".") or "profiling"
    return f"python {'-m ' if spec else ''}{name}"
