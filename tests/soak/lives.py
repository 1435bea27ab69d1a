"""A training that is ended again and again by signals, and resumed, until it comes to its end.

What is left then has to be, bit for bit, what an uninterrupted training leaves. Used by the parts
kills and signals.
"""

import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.soak import forks, fresh, tiny_run
from tests.soak.forks import ProcessEnd
from tests.soak.moments import announce_calls, pipe, wait_for_calls
from tests.soak.tiny_run import SAVE, WORDS, difference, read_end
from tests.soak.trials import Trial

MOST_SAVES = 6
RUN, PROJECT = Path("run"), "project"
ANY, RESUME, START_UP = "any moment", "a resume", "start-up"


@dataclass(frozen=True)
class Moment:
    """A kind of moment at which a process is ended."""

    function: str  # of the trainer, whose call begins the moment; empty: any time
    longest_s: float  # delay of the signal at most
    calls: int = 1  # the signal follows one of the first `calls` calls


MOMENTS = {
    ANY: Moment("", 2.0),
    START_UP: Moment("", 3.0),  # of a process that imports torch itself
    "a save": Moment(SAVE, 0.02, MOST_SAVES),
    RESUME: Moment("training.disk.checkpoint.read_checkpoint", 0.05),
    "opening the folder": Moment("training.metrics.record.open_run_folder", 0.05),
    "taking the lock": Moment("cli.lock.Lock.own", 0.002, 2),  # for the checks, and for the run
    "giving the lock back": Moment("cli.lock.Lock.__exit__", 0.002, 2),
}
SHARE_OF_ANY, SHARE_OF_START_UP = 0.4, 0.1
Judge = Callable[[ProcessEnd], str | None]  # what is wrong with how a life ended, or None


@dataclass(frozen=True)
class Life:
    """Result of one process of the training."""

    seed: int
    moment: str
    number: int  # the signal
    ended: ProcessEnd
    signalled: bool  # False where it had ended before

    def trial(self, failure: str | None) -> Trial:
        return Trial(self.seed, self.moment, signal.Signals(self.number).name, failure)


def trials(
    count: int, seed: int, limit_s: float, part: str, signals: tuple[int, ...], judge: Judge
) -> Iterator[Trial]:
    """Make `count` processes end by a signal, in as many whole trainings as that takes."""
    with tiny_run.own_folder() as folder:
        fresh.link_project(folder / PROJECT)
        expected, done, begun = tiny_run.train_whole([], 10 * limit_s).end, 0, 0
        while done < count:
            shutil.rmtree(RUN, ignore_errors=True)  # a life that failed may have left none
            iteration = 0
            while True:  # one training, life after life
                last = done >= count
                chance = random.Random(f"{part} {seed + done} {begun}")
                begun += 1  # a life that ended before its signal is followed by another
                life = run_life(seed + done, chance, signals, 10 * limit_s, quiet=last)
                problem, iteration = judge_life(life, judge, iteration)
                if not life.signalled and not problem:
                    problem = difference(expected, read_end(RUN))
                if life.signalled:
                    done += 1
                if life.signalled or problem:
                    yield life.trial(problem)
                if problem or not life.signalled:
                    break


def run_life(
    seed: int, chance: random.Random, signals: tuple[int, ...], limit_s: float, quiet: bool
) -> Life:
    """Run a process that starts or resumes the run; it gets a signal unless `quiet`."""
    there = (RUN / "ckpt.pt").is_file()
    name = moment_of(chance, there)
    moment, number = MOMENTS[name], chance.choice(signals)
    words = [*WORDS, f"init_from={'resume' if there else 'scratch'}"]
    with pipe() as (reader, writer):
        call = forks.program("train", words)
        if name == START_UP:
            call = fresh.program(Path(PROJECT).resolve(), words, writer)
        elif moment.function:
            call = announce_calls(call, writer, moment.function)
        child = forks.start_fork(call, {})
        until_s = child.began_s + limit_s
        calls = 0 if name == ANY else chance.randint(1, moment.calls)
        signalled = not quiet and wait_for_calls(child, reader, calls, until_s)
        if signalled:
            time.sleep(chance.uniform(0, moment.longest_s))
            signalled = not child.has_ended()
        if signalled:
            child.signal(number)
        return Life(seed, name, number, child.wait(until_s), signalled)


def moment_of(chance: random.Random, there: bool) -> str:
    """Random key of MOMENTS; a resume only where `there`, a checkpoint to resume from."""
    share = chance.random()
    if share < SHARE_OF_ANY + SHARE_OF_START_UP:
        return ANY if share < SHARE_OF_ANY else START_UP
    some = [name for name in MOMENTS if name not in (ANY, START_UP) and (there or name != RESUME)]
    return chance.choice(some)


def judge_life(life: Life, judge: Judge, before: int) -> tuple[str | None, int]:
    """(what is wrong with the life or None, iteration of the checkpoint after it)."""
    ended = life.ended
    if fault := tiny_run.fault_of(ended):
        return fault, before
    last = " ".join(ended.err.split())[-200:]
    problem = judge(ended) if life.signalled else ended.status and f"ended with {last}"
    try:
        iteration = tiny_run.saved_iteration(RUN)
    except ValueError as error:
        return problem or str(error), before
    if iteration is None:
        return problem or (f"{RUN}/ckpt.pt is gone" if before else None), before
    back = iteration < before and f"went back from iteration {before} to {iteration}"
    return problem or back or None, iteration
