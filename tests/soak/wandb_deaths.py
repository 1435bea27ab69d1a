"""W&B's background process killed or stopped at random moments of a run that is recorded offline.

The run goes on: it ends with 0, has all rows in metrics.jsonl, and says once that W&B failed; a
line that wandb itself writes to stderr may stand beside that.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.soak import forks, tiny_run
from tests.soak.forks import Child, ProcessEnd
from tests.soak.moments import announce_calls, call_on_entry, pipe, wait_for_calls
from tests.soak.tiny_run import ITERATIONS, ROW, WORDS, Whole
from tests.soak.trials import Trial

CORE = "wandb-core"
SIGNALS = (signal.SIGKILL, signal.SIGSTOP)
END = "the end"
# moment -> (function of the trainer, number of calls of it at most, seconds after the call)
MOMENTS = {
    "its start": ("", 0, 0.5),
    "a row": (ROW, ITERATIONS, 0.05),
    END: ("training.metrics.tracker.Tracker.finish", 1, 0.2),
}
ROW_S = 0.05  # delay of each row, or all rows are written before wandb-core starts
GONE_S = 5.0  # by which wandb-core may outlive the run
RUN = Path("run")


@dataclass(frozen=True)
class Death:
    ended: ProcessEnd
    core: int | None  # process id of wandb-core, or None if it was never there


def trials(count: int, seed: int, limit_s: float) -> Iterator[Trial]:
    """Yield trials of moments and signals in turn. A stopped process delays the run by 30 s."""
    with tiny_run.own_folder():
        whole = tiny_run.train_whole([], 10 * limit_s)
        for number in range(seed, seed + count):
            shutil.rmtree(RUN)
            moment = list(MOMENTS)[number % len(MOMENTS)]
            sign = SIGNALS[number // len(MOMENTS) % len(SIGNALS)]
            death = kill_core(moment, sign, random.Random(f"wandb_deaths {number}"), 10 * limit_s)
            problem = what_is_wrong(death, moment == END, whole)
            yield Trial(number, moment, sign.name, problem)


def kill_core(moment: str, sign: signal.Signals, chance: random.Random, limit_s: float) -> Death:
    function, most, longest_s = MOMENTS[moment]
    call = forks.program("train", [*WORDS, "wandb.mode=offline"])
    call = call_on_entry(call, ROW, lambda: time.sleep(ROW_S))
    with pipe() as (reader, writer):
        child = forks.start_fork(announce_calls(call, writer, *filter(None, [function])), {})
        until_s = child.began_s + limit_s
        core = wait_for_core(child, until_s)
        wait_for_calls(child, reader, chance.randint(min(1, most), most), until_s)
        time.sleep(chance.uniform(0, longest_s))
        with contextlib.suppress(ProcessLookupError):
            os.kill(core or child.pid, sign if core else 0)
        return Death(child.wait(until_s), core)


def wait_for_core(child: Child, until_s: float) -> int | None:
    """Process id of the child's wandb-core once it is there; None at the end or the limit."""
    while not child.has_ended() and time.perf_counter() < until_s:
        with contextlib.suppress(OSError):  # threads and processes come and go
            for thread in Path(f"/proc/{child.pid}/task").iterdir():
                for process in (thread / "children").read_text().split():
                    if Path(f"/proc/{process}/comm").read_text().strip() == CORE:
                        return int(process)
        time.sleep(forks.POLL_S)
    return None


def is_gone(process: int) -> bool:
    """Whether the process ends within GONE_S; a zombie that nobody waits for has ended."""
    until_s = time.perf_counter() + GONE_S
    while time.perf_counter() < until_s:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(forks.POLL_S)
    return False


def what_is_wrong(death: Death, may_be_late: bool, whole: Whole) -> str | None:
    ended, core = death.ended, death.core
    if fault := tiny_run.fault_of(ended):
        return fault
    if ended.status or not all(line.startswith("wandb: ") for line in ended.err.splitlines()):
        return f"exit code {ended.status}: {' '.join(ended.err.split())[-200:]}"
    if core is None or not is_gone(core):
        return f"{CORE} was never there" if core is None else f"{CORE} is left behind"
    warnings = [line for line in ended.out.splitlines() if line.startswith("warning: ")]
    failure = json.loads((RUN / "summary.json").read_text("utf-8"))["wandb"]["failure"]
    if len(warnings) != (failure is not None):
        return f"{len(warnings)} warnings, and summary.json has {failure}: {warnings}"
    if failure is None and not may_be_late:
        return "W&B's failure was not noticed"
    return tiny_run.difference(whole.end, tiny_run.read_end(RUN))
