"""Damaged files, given to the commands that read them: each is read, or refused in one line.

Damages nsys exports, Chrome traces, manifests beside a capture, run folders and pages of ncu at
random, one of each from a seed, and gives each to `report`, `compare`, `dashboard` or `ncu` in this
process, with all outputs:

- ok: exit code 0 or 1
- refused: exit code 2, and one line that names the file
- unclear: exit code 2 without such a line
- traceback: any other error, and any warning of numpy's
- hang: a command took longer than limit_s=
- raw: a control character in the terminal or in Markdown, a name's markup in Markdown or on a page

All but the first two are failures.
"""

import io
import random
import re
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path

from cli.errors import user_errors
from cli.plain import CONTROLS, plain
from profiling.report.renderers import page
from tests.soak.fuzzed_files import KINDS, Words
from tests.soak.trials import Trial

MEMORY_BYTES = 8 << 30  # an allocation beyond it is a MemoryError
ELEMENT = re.compile(r"(?<!\\)<zz")  # in damage.NAME, unescaped
ATTRIBUTE = re.compile(r'(?<!\\)" zz=')
CODE = re.compile(r"(?<!\\)`[^`\n]*`")  # in Markdown, where the name is harmless
OUTCOMES = ("ok", "refused", "unclear", "traceback", "hang", "raw")
Outcome = tuple[str, str]  # (one of OUTCOMES, what went wrong or "")


class Hang(BaseException):
    """A command took too long. No Exception, or a handler might take it for a damaged file."""


def trials(count: int, seed: int, limit_s: float) -> Iterator[Trial]:
    """Yield a trial of each kind of file for each seed."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGALRM, raise_hang)
    page.plotly_js = str  # 5 MB that are the same on each page
    for number in range(seed, seed + count):
        for kind in KINDS:
            outcome, what = worst_outcome(kind, number, limit_s)
            yield Trial(number, kind, outcome, f"{kind}: {what}" if what else None)


def raise_hang(*_: object) -> None:
    raise Hang


def worst_outcome(kind: str, seed: int, limit_s: float) -> Outcome:
    """Worst failure among the commands on a mutation, or what the first did where none failed.

    The commands run in a folder of their own.
    """
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, chdir(folder):
        commands = KINDS[kind](random.Random(f"{kind} {seed}"))
        outcomes = [outcome_of(words, limit_s) for words in commands]
    failed = [outcome for outcome in outcomes if outcome[1]]
    return max(failed or outcomes[:1], key=lambda outcome: OUTCOMES.index(outcome[0]))


def outcome_of(words: Words, limit_s: float) -> Outcome:
    """Outcome of the command `python -m profiling` with these words, run in this process."""
    for name in ("out.json", "out.markdown", "out.html"):
        Path(name).unlink(missing_ok=True)
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv[0] = f"profiling {words[0]}"
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        with redirect_stdout(out), redirect_stderr(err), all_warnings(), user_errors():
            code = import_module(f"profiling.verbs.{words[0]}").main(words[1:])
    except SystemExit as ended:
        code = int(str(ended.code))
    except Hang:
        return "hang", words[0]
    except Exception as error:
        return "traceback", f"{words[0]}: {describe_error(error)}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if raw := find_raw(out.getvalue() + err.getvalue()):
        return "raw", f"{words[0]}: {raw}"
    if code == 2:
        return refusal(words, err.getvalue().splitlines())
    return "ok", ""


@contextmanager
def all_warnings() -> Iterator[None]:
    """Turn warnings into errors within the block: a warning of numpy's means a wrong figure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def describe_error(error: Exception) -> str:
    """The error in a line, with the last file and line of this project that it passed through."""
    own = [at for at in traceback.extract_tb(error.__traceback__) if "profiling/" in at.filename]
    said = f"{type(error).__name__}: {plain(error)[:100]}"
    return f"{said} ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else said


def refusal(words: Words, lines: list[str]) -> Outcome:
    said = lines[-1] if lines else ""
    names = [plain(word) for word in words[1:] if Path(word).exists()]
    if ": error: " in said and any(name in said for name in names):
        return "refused", ""
    return "unclear", f"{words[0]}: {said[:200]}"


def find_raw(terminal: str) -> str | None:
    """Harm that a hostile name could do in the outputs of the last command, or None."""
    if control := CONTROLS.search(terminal):
        return f"{control[0]!r} in the terminal"
    if (markdown := Path("out.markdown")).exists():
        text = markdown.read_text("utf-8")
        if control := CONTROLS.search(text):
            return f"{control[0]!r} in Markdown"
        if ELEMENT.search(CODE.sub("", text)):
            return "markup in Markdown"
    if (html := Path("out.html")).exists():
        text = html.read_text("utf-8")
        if any(raw.search(text) for raw in (ELEMENT, ATTRIBUTE, CONTROLS)):
            return "markup or a control character on the page"
    return None
