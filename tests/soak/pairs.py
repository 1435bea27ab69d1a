"""Two processes of a training that start on one folder: one owns it, the other is refused.

The refused one says so in one line, with exit code 2; at the end the folder is one run's, bit for
bit what an undisturbed one leaves. Where the first has ended before the second asks, both may run.
"""

import os
import random
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from tests.soak import forks, tiny_run
from tests.soak.forks import Child, ProcessEnd
from tests.soak.moments import announce_calls, pipe
from tests.soak.tiny_run import ITERATIONS, WORDS, Whole
from tests.soak.trials import Trial

KINDS = (("scratch", "scratch"), ("resume", "resume"), ("scratch", "resume"))
CLOSE_S = 0.03  # between the two starts at most, in every other pair
RUN, HALF = Path("run"), Path("half")
# a process owns the folder between calls of these; the second is also called after the checks
OWNS, LETS_GO = "training.metrics.record.open_run_folder", "cli.lock.Lock.__exit__"
BOTH_OWN = b"\0\0"
REFUSED = re.compile(r"train.py: error: out_dir=run: in use by (process (\d+) on|another process)")


def trials(count: int, seed: int, limit_s: float) -> Iterator[Trial]:
    """Yield trials of the kinds in turn."""
    with tiny_run.own_folder():
        whole = tiny_run.train_whole([], 10 * limit_s)
        tiny_run.leave_half("half", 10 * limit_s)
        half = tiny_run.saved_iteration(HALF)
        for number in range(seed, seed + count):
            chance, kind = random.Random(f"pairs {number}"), KINDS[number % len(KINDS)]
            shutil.rmtree(RUN)
            if "resume" in kind or chance.random() < 0.5:
                shutil.copytree(HALF, RUN)
            children, ended, owners = run_both(kind, chance, whole.wall_s, 10 * limit_s)
            problem = what_is_wrong(children, ended, owners) or what_is_left(whole, half)
            refused = any(each.status == 2 for each in ended)
            outcome = "one refused" if refused else "one after the other"
            yield Trial(number, " beside ".join(kind), outcome, problem)


def run_both(
    kind: tuple[str, str], chance: random.Random, whole_s: float, limit_s: float
) -> tuple[list[Child], list[ProcessEnd], bytes]:
    """Run both processes: (children, their ends, announcements of owning and letting go)."""
    offset_s = chance.uniform(0, CLOSE_S if chance.random() < 0.5 else whole_s)
    children: list[Child] = []
    with pipe() as (reader, writer):
        for name in chance.sample(kind, 2):
            time.sleep(offset_s if children else 0)
            call = forks.program("train", [*WORDS, f"init_from={name}"])
            children.append(forks.start_fork(announce_calls(call, writer, OWNS, LETS_GO), {}))
        ended = [child.wait(child.began_s + limit_s) for child in children]
        os.write(writer, b"\n")  # there may be nothing else
        return children, ended, os.read(reader, 999)


def what_is_wrong(children: list[Child], ended: list[ProcessEnd], owners: bytes) -> str | None:
    """Problem with how the two processes ended, or None."""
    for one, other in ((0, 1), (1, 0)):
        if fault := tiny_run.fault_of(ended[one]):
            return fault
        lines = ended[one].err.splitlines()
        if ended[one].status == 2:
            said = REFUSED.match(lines[-1]) if len(lines) == 1 else None
            if not said or said[2] not in (None, str(children[other].pid)):
                return f"refused by {len(lines)} lines: {lines[-1:]}"
        elif ended[one].status or lines:
            return f"exit code {ended[one].status}: {lines[-1:]}"
    if BOTH_OWN in owners:
        return "both had the folder at once"
    return "both were refused" if {each.status for each in ended} == {2} else None


def what_is_left(whole: Whole, half: int | None) -> str | None:
    """Problem with what is in the folder afterwards, or None."""
    spare = [path.name for path in RUN.iterdir() if path.suffix in (".tmp", ".lock")]
    if spare:
        return f"left behind: {', '.join(spare)}"
    iterations = [at for (at, name), _ in tiny_run.rows(RUN) if name == "train/loss"]
    if iterations != list(range(ITERATIONS)):
        return f"{len(iterations)} rows of training in metrics.jsonl, not {ITERATIONS} in order"
    for previous in RUN.glob("previous-*"):
        if tiny_run.saved_iteration(previous) not in (half, ITERATIONS):
            return f"{previous}: lacks the checkpoint of what it was"
    return tiny_run.difference(whole.end, tiny_run.read_end(RUN))
