"""Whether damaged files are read, or refused in one line, by the commands that people give them to.

    python -m benchmarks fuzz [KEY=VALUE ...]

Damages nsys exports, Chrome traces, manifests beside a capture, run folders and pages of ncu at
random, and gives each to `report`, `compare`, `dashboard` or `ncu` in this process, with all
outputs. Prints a table of what came of them:

- ok: exit code 0 or 1
- refused: exit code 2, and one line that names the file
- unclear: exit code 2 without such a line
- traceback: any other error, and any warning of numpy's
- hang: a command took longer than limit_s=
- raw: a control character in the terminal or in Markdown, a name's markup in Markdown or on a page

and of each failure the seed that repeats it: `python -m benchmarks fuzz kinds=KIND seed=SEED
mutations=1`.
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
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from benchmarks.damaged_files import KINDS, Words
from benchmarks.measuring import Keys, key
from cli.errors import user_errors
from cli.plain import CONTROLS, plain
from profiling.report.renderers import page

MEMORY_BYTES = 8 << 30  # who asks for more gets a MemoryError
ELEMENT = re.compile(r"(?<!\\)<zz")  # of damage.NAME, where nothing escapes it
ATTRIBUTE = re.compile(r'(?<!\\)" zz=')
CODE = re.compile(r"(?<!\\)`[^`\n]*`")  # in Markdown, where it is none
OUTCOMES = ("ok", "refused", "unclear", "traceback", "hang", "raw")
Outcome = tuple[str, str]  # one of OUTCOMES, what went wrong


class Hang(BaseException):
    """No Exception: nothing on the way is to take it for an error of the file's."""


@dataclass
class FuzzConfig(Keys):
    seed: int = key(1, "of the first mutation; each next has one more")
    mutations: int = key(200, "of each kind", least=1)
    kinds: str = key(",".join(KINDS), "of file")
    limit_s: int = key(20, "that a command may take", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind in self.kinds.split(","):
            if kind not in KINDS:
                raise ValueError(f"kinds={kind}: there are {', '.join(KINDS)}")


def main(config: FuzzConfig) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGALRM, stop)
    page.plotly_js = str  # 5 MB that are the same on each page
    failures: dict[str, list[int]] = {}
    print(f"| kind | mutations | {' | '.join(OUTCOMES)} |")
    print(f"|---|{'---:|' * (len(OUTCOMES) + 1)}")
    for kind in config.kinds.split(","):
        counts = Counter[str]()
        for seed in range(config.seed, config.seed + config.mutations):
            outcome, what = worst(kind, seed, config.limit_s)
            counts[outcome] += 1
            if what:
                failures.setdefault(f"{kind}: {outcome}: {what}", []).append(seed)
        row = " | ".join(str(counts[outcome]) for outcome in OUTCOMES)
        print(f"| {kind} | {config.mutations} | {row} |", flush=True)
    for what, seeds in failures.items():
        print(f"seed={seeds[0]} and {len(seeds) - 1} more: {what}")


def stop(*_: object) -> None:
    raise Hang


def worst(kind: str, seed: int, limit_s: int) -> Outcome:
    """What went wrong with a mutation, in a folder of its own; else what its first command did."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, chdir(folder):
        commands = KINDS[kind](random.Random(f"{kind} {seed}"))
        found = [outcome_of(words, limit_s) for words in commands]
    failed = [outcome for outcome in found if outcome[1]]
    return max(failed or found[:1], key=lambda outcome: OUTCOMES.index(outcome[0]))


def outcome_of(words: Words, limit_s: int) -> Outcome:
    """Of the command `python -m profiling` with these words."""
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
        return "traceback", f"{words[0]}: {where(error)}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if raw := raw_in(out.getvalue() + err.getvalue()):
        return "raw", f"{words[0]}: {raw}"
    if code == 2:
        return refusal(words, err.getvalue().splitlines())
    return "ok", ""


@contextmanager
def all_warnings() -> Iterator[None]:
    """As errors: what numpy warns of is a figure that is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def where(error: Exception) -> str:
    """The error and the last place of this project's that it passed."""
    own = [at for at in traceback.extract_tb(error.__traceback__) if "profiling/" in at.filename]
    said = f"{type(error).__name__}: {plain(error)[:100]}"
    return f"{said} ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else said


def refusal(words: Words, lines: list[str]) -> Outcome:
    said = lines[-1] if lines else ""
    names = [plain(word) for word in words[1:] if Path(word).exists()]
    if ": error: " in said and any(name in said for name in names):
        return "refused", ""
    return "unclear", f"{words[0]}: {said[:200]}"


def raw_in(terminal: str) -> str | None:
    """What a name could do in the outputs of the last command."""
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
