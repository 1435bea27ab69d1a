"""SIGKILL at random moments of README's CPU run, whose evaluations lie at its two ends.

The run resumes from checkpoints that are saved by the clock. No work from before the last of them
may be lost, and at the end nothing may tell the run from one that was left alone. Most trials have
an interval of two seconds; of every 25 one has the default, a minute, in a longer run.
"""

import os
import random
import shutil
import signal
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.paths import PROJECT
from tests.soak import forks, tiny_run
from tests.soak.moments import call_on_entry, pipe
from tests.soak.tiny_run import difference, read_end
from tests.soak.trials import Trial
from training.disk.save_timer import ON_CPU_S

RUN = Path("run")
WORDS = (
    f"{PROJECT}/configs/shakespeare_char_cpu.yaml out_dir=run data_source=text.txt n_layer=1 "
    "n_embd=32 dropout=0.1 eval_iters=1 wandb.mode=disabled"
).split()
TIMER = "training.disk.save_timer.SaveTimer.__init__"  # called where the loop begins
SECOND = struct.Struct("d")
USUAL_EACH = 25  # of so many trials one has the default interval
# beyond the interval: an iteration and a save, of a process that others keep from its core
SLACK_S = 5.0


@dataclass(frozen=True)
class Training:
    """A kind of run, and how long after the start of a process it may be killed."""

    name: str
    interval_s: float
    iterations: int
    longest_s: float
    words: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        length = [f"{key}={self.iterations}" for key in ("max_iters", "lr_decay_iters")]
        return [*WORDS, *length, f"eval_interval={self.iterations}", *self.words]

    @cached_property
    def end(self) -> dict[str, object]:
        """End of the run when nothing disturbs it. Raises ValueError where it fails."""
        ended = forks.run_in_fork(
            forks.program("train", [*self.command, "out_dir=whole"]), {}, 1800
        )
        if ended.status:
            raise ValueError(f"the training without interruption failed: {ended.err}")
        return read_end(Path("whole"))


SHORT = Training("each 2 s", 2.0, 2000, 6.0, ("checkpoint_interval_s=2",))


@dataclass(frozen=True)
class Life:
    """Result of one process of a run."""

    problem: str | None
    killed: bool  # else it came to the end before
    lost_s: float  # training time since the last checkpoint


def trials(count: int, seed: int, limit_s: float) -> Iterator[Trial]:
    """Make `count` kills; a run that comes to its end is checked, and another one begins."""
    usual = Training("each 60 s, the default", ON_CPU_S, 12_000, 1.5 * ON_CPU_S)
    numbers = range(seed, seed + count)
    with tiny_run.own_folder():
        yield from kill_repeatedly(usual, [n for n in numbers if n % USUAL_EACH == 0], limit_s)
        yield from kill_repeatedly(SHORT, [n for n in numbers if n % USUAL_EACH], limit_s)


def kill_repeatedly(training: Training, seeds: list[int], limit_s: float) -> Iterator[Trial]:
    waiting = seeds[::-1]
    while waiting:
        shutil.rmtree(RUN, ignore_errors=True)
        saved: int | None = None
        life, begun = Life(None, True, 0.0), 0
        while life.killed and not life.problem:
            begun += 1
            number = waiting[-1] if waiting else None
            life = run_life(training, number, begun, saved is not None, 60 * limit_s)
            problem, saved = judge_life(training, life, saved)
            life = Life(problem, life.killed, life.lost_s)
            if life.killed and number is not None:
                waiting.pop()
                yield Trial(number, training.name, loss_outcome(life.lost_s, training), problem)
            elif problem:
                yield Trial(number or seeds[-1], training.name, "the end", problem)


def run_life(
    training: Training, number: int | None, begun: int, resumes: bool, limit_s: float
) -> Life:
    """Run a process that starts or resumes the run; it is killed unless `number` is None."""
    words = [*training.command, f"init_from={'resume' if resumes else 'scratch'}"]
    with pipe() as (reader, writer):
        os.set_blocking(reader, False)
        call = call_on_entry(
            forks.program("train", words), TIMER, lambda: os.write(writer, SECOND.pack(time.time()))
        )
        child = forks.start_fork(call, {})
        until_s = child.began_s + training.longest_s + limit_s
        lost_s = 0.0
        if number is not None:
            chance = random.Random(f"clock {number} {begun}")
            sleep_until(child, child.began_s + chance.uniform(0, training.longest_s))
        if number is not None and not child.has_ended():
            child.signal(signal.SIGKILL)
            lost_s = time.time() - last_safe_s(reader)
        ended = child.wait(until_s)
        # a process that was leaving already ends by itself all the same
        is_killed = number is not None and ended.status == -signal.SIGKILL
        problem = tiny_run.fault_of(ended)
        if ended.status != (-signal.SIGKILL if is_killed else 0):
            problem = problem or f"exit code {ended.status}: {' '.join(ended.err.split())[-200:]}"
        return Life(problem, is_killed, lost_s)


def sleep_until(child: forks.Child, when_s: float) -> None:
    while time.perf_counter() < when_s and not child.has_ended():
        time.sleep(forks.POLL_S)


def last_safe_s(reader: int) -> float:
    """Time of this process's last checkpoint, else of the start of its loop, else now."""
    try:
        (loop_s,) = SECOND.unpack(os.read(reader, SECOND.size))
    except BlockingIOError:
        return time.time()
    path = RUN / "ckpt.pt"
    return max(loop_s, path.stat().st_mtime) if path.exists() else float(loop_s)


def judge_life(training: Training, life: Life, before: int | None) -> tuple[str | None, int | None]:
    """(what is wrong with the life or None, iteration of the checkpoint after it or None)."""
    if life.problem:
        return life.problem, before
    try:
        saved = tiny_run.saved_iteration(RUN)
    except ValueError as error:
        return str(error), before
    if (before or 0) > (saved or 0):
        return f"went back from iteration {before} to {saved}", saved
    if life.lost_s > training.interval_s + SLACK_S:
        return f"{life.lost_s:.1f} s of training lost", saved
    if life.killed:
        return None, saved
    return difference(training.end, read_end(RUN)), saved


def loss_outcome(lost_s: float, training: Training) -> str:
    """Column of the table that so many lost seconds count in."""
    if not lost_s:
        return "nothing lost"
    half = training.interval_s / 2
    if lost_s <= half:
        return "up to half an interval"
    return "up to an interval" if lost_s <= training.interval_s else "a little more"
