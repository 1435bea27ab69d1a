"""Bad inputs: is each refused in one line that names it, with exit code 2, or else valid?

- valid: exit code 0, or what a verb or a run means by 1; what was still at work at the limit
- refused: exit code 2 and one line on stderr, which names what is wrong
- unclear: exit code 2 otherwise; traceback; hang; other: an exit code that means nothing
"""

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

from cli.plain import plain
from tests.soak import bad_inputs, forks
from tests.soak.bad_inputs import Case
from tests.soak.forks import ProcessEnd
from tests.soak.trials import Trial

ROW = "\niter "  # begins a line that a training prints
LONGEST = 2000  # characters in a message that somebody has to read
QUIET = {"WANDB_MODE": "disabled", "TINY_SHAKESPEARE_URL": "http://[::1]:9"}


def trials(count: int, seed: int, limit_s: float) -> Iterator[Trial]:
    """Yield `count` trials; each depends on its own seed alone."""
    return trials_on_a_run(trial, count, seed, limit_s)


def trials_on_a_run(
    trial: Callable[[int, Path, float], Trial], count: int, seed: int, limit_s: float
) -> Iterator[Trial]:
    """Yield `count` trials, which get a seed each and the folder of a run."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        run = first_run(Path(folder))
        for number in range(seed, seed + count):
            yield trial(number, run, limit_s)


def first_run(folder: Path) -> Path:
    """Train a small run in `folder` for the commands to read, and return its own folder."""
    forks.use_data_folder(folder / "data")
    run = folder / "first" / "out"
    run.parent.mkdir()
    with chdir(run.parent):
        bad_inputs.prepare_folder(run)
        made = forks.run_in_fork(forks.program("train", [bad_inputs.FILE]), QUIET, 60)
    if made.status:
        raise ValueError(f"the run that the others start from failed: {made.err}")
    return run


def trial(seed: int, run: Path, limit_s: float) -> Trial:
    chance = random.Random(f"inputs {seed}")
    (kind,) = chance.choices(list(bad_inputs.KINDS), bad_inputs.WEIGHTS)
    with tempfile.TemporaryDirectory(prefix="input-") as folder, chdir(folder):
        bad_inputs.prepare_folder(run)
        case = bad_inputs.KINDS[kind](chance)
        ended = forks.run_in_fork(
            forks.program(case.program, case.words), QUIET | case.environ, limit_s
        )
    outcome, what = judge(case, ended)
    if what is None:
        return Trial(seed, kind, outcome)
    variables = [f"{name}={value}" for name, value in case.environ.items()]
    command = " ".join(plain(repr(word))[:90] for word in [*variables, case.program, *case.words])
    return Trial(seed, kind, outcome, f"{command}: {what}")


def judge(case: Case, ended: ProcessEnd) -> tuple[str, str | None]:
    """(outcome, what went wrong or None)."""
    lines = [line for line in ended.err.splitlines() if line.strip()]
    last = plain(lines[-1])[:300] if lines else "nothing was said"
    if "Traceback (most recent call last)" in ended.err + ended.out:
        return "traceback", f"{len(lines)} lines, {last}"
    if ended.status is None:
        works = ended.out if case.program == "sample" else ROW in ended.out  # a text streams
        return ("valid", None) if works else ("hang", f"{ended.wall_s:.0f} s, {last}")
    if ended.status in (0, 1):
        return "valid", None
    if ended.status != 2:
        return "other", f"exit code {ended.status}, {last}"
    errors = [line for line in lines if ": error: " in line]
    if case.program == "profiling" and case.words[:1] == ["doctor"] and not lines:
        return "valid", None  # 2 is an error of the machine's
    if len(errors) != 1 or not lines[-1].startswith(errors[0]):
        return "unclear", f"{len(errors)} errors in {len(lines)} lines, {last}"
    if len(errors[0]) > LONGEST:
        return "unclear", f"a line of {len(errors[0])} characters"
    if case.names and not any(is_named(name, errors[0]) for name in case.names):
        return "unclear", f"names none of {', '.join(map(plain, case.names))}: {last}"
    return "refused", None


def is_named(name: str, line: str) -> bool:
    return bool(name) and (plain(name)[:60] in line or os.path.basename(name) in line)
