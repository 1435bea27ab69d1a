"""A training that is ended again and again by signals, and resumed, until it comes to its end.

What is left then has to be, bit for bit, what an uninterrupted training leaves. Used by the parts
kills and signals.
"""

import contextlib
import json
import os
import random
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch

from benchmarks.reliability_parts import forks
from benchmarks.reliability_parts.forks import Child, Ended
from benchmarks.reliability_parts.trial import Trial
from training import checkpoint_file

ITERATIONS, SAVED_EACH, MOST_SAVES = 60, 5, 6
WORDS = (
    f"out_dir=run device=cpu compile=false data_source=text.txt n_layer=1 n_head=2 n_embd=16 "
    f"block_size=16 batch_size=2 dropout=0.1 max_iters={ITERATIONS} eval_iters=1 log_interval=1 "
    f"eval_interval={SAVED_EACH} always_save_checkpoint=true wandb.mode=disabled"
).split()
LOSSES = ("train/loss", "val/loss", "eval/train_loss")
RESUME = "a resume"
# moments of a life: the function that it is ended in, of the trainer; None: whenever
MOMENTS = {
    "any moment": None,
    "a save": "training.checkpoint.write",
    RESUME: "training.checkpoint.load",
    "opening the folder": "training.record.open_run_folder",
}
LONGEST_S = {"any moment": 2.0, "a save": 0.02, RESUME: 0.05, "opening the folder": 0.05}
Judge = Callable[[Ended], str | None]  # what is wrong with how a life ended; None: nothing


@dataclass(frozen=True)
class Life:
    """One process of the training."""

    seed: int
    moment: str
    number: int  # the signal
    ended: Ended
    signalled: bool  # else it had ended before

    def trial(self, failure: str | None) -> Trial:
        outcome = "failed" if failure else signal.Signals(self.number).name
        return Trial(self.seed, self.moment, outcome, failure)


def trials(
    count: int, seed: int, limit_s: float, part: str, signals: tuple[int, ...], judge: Judge
) -> Iterator[Trial]:
    """`count` lives that a signal ended, over as many whole trainings as they make."""
    with tempfile.TemporaryDirectory(prefix="reliability-") as folder, chdir(folder):
        forks.use_data_folder(Path(folder) / "data")
        Path("text.txt").write_text("To be, or not to be, that is the question.\n" * 60, "utf-8")
        whole = forks.forked(forks.program("train", WORDS), {}, 10 * limit_s)
        if whole.status:
            raise ValueError(f"the training without interruption failed: {whole.err}")
        expected, done, begun = left_behind(Path("run")), 0, 0
        while done < count:
            shutil.rmtree("run")
            iteration = 0
            while True:  # one training, life after life
                last = done >= count
                chance = random.Random(f"{part} {seed + done} {begun}")
                begun += 1  # a life that ended before its signal is followed by another
                life = lived(seed + done, chance, signals, 10 * limit_s, quiet=last)
                problem, iteration = judged(life, judge, iteration)
                if not life.signalled and not problem:
                    problem = difference(expected, left_behind(Path("run")))
                if life.signalled:
                    done += 1
                if life.signalled or problem:
                    yield life.trial(problem)
                if problem or not life.signalled:
                    break


def lived(
    seed: int, chance: random.Random, signals: tuple[int, ...], limit_s: float, quiet: bool
) -> Life:
    """A process that starts, or resumes what lies there, and gets a signal, unless `quiet`."""
    there = Path("run/ckpt.pt").is_file()
    moment = chance.choice([moment for moment in MOMENTS if there or moment != RESUME])
    number = chance.choice(signals)
    words = [*WORDS, f"init_from={'resume' if there else 'scratch'}"]
    heard, told = os.pipe()
    child = forks.started(announcing(forks.program("train", words), MOMENTS[moment], told), {})
    until_s = child.began_s + limit_s
    calls = {"any moment": 0, "a save": chance.randint(1, MOST_SAVES)}.get(moment, 1)
    signalled = not quiet and wait_for(child, heard, calls, until_s)
    if signalled:
        time.sleep(chance.uniform(0, LONGEST_S[moment]))
        signalled = not child.has_ended()
    if signalled:
        child.signal(number)
    ended = child.wait(until_s)
    os.close(heard)
    os.close(told)
    return Life(seed, moment, number, ended, signalled)


def announcing(call: Callable[[], None], function: str | None, told: int) -> Callable[[], None]:
    """`call`, which writes a byte to `told` as it enters the function."""
    if function is None:
        return call

    def announced() -> None:
        module, _, name = function.rpartition(".")
        original = getattr(__import__(module, fromlist=[name]), name)

        def enter(*arguments: object, **named: object) -> object:
            os.write(told, b"x")
            return original(*arguments, **named)

        with mock.patch(function, enter):
            call()

    return announced


def wait_for(child: Child, heard: int, calls: int, until_s: float) -> bool:
    """Until the child enters the function for that time; False where it ended before."""
    while calls:
        if select.select([heard], [], [], forks.POLL_S)[0]:
            calls -= len(os.read(heard, 1))
        elif child.has_ended() or time.perf_counter() > until_s:
            return False
    return True


def judged(life: Life, judge: Judge, before: int) -> tuple[str | None, int]:
    """(what is wrong with the life, the iteration that is safe after it)."""
    ended = life.ended
    last = " ".join(ended.err.split())[-200:]
    if "Traceback (most recent call last)" in ended.err + ended.out:
        return f"traceback: {last}", before
    if ended.status is None:
        return f"hung for {ended.wall_s:.0f} s", before
    problem = judge(ended) if life.signalled else ended.status and f"ended with {last}"
    path = Path("run/ckpt.pt")
    if not path.exists():
        return problem or (f"{path} is gone" if before else None), before
    with contextlib.suppress(ValueError):
        iteration = checkpoint_file.load(path).iteration
        back = iteration < before and f"went back from iteration {before} to {iteration}"
        return problem or back or None, iteration
    return problem or f"{path} is damaged", before


def left_behind(folder: Path) -> dict[str, object]:
    """The end of a training: what was learnt, and what was measured of it."""
    state = checkpoint_file.unpacked(folder / "ckpt.pt")
    state.pop("config")
    rows: dict[tuple[int, str], float] = {}
    for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        rows |= {
            (row["iter"], name): row[name] for name in ("train/loss", "val/loss") if name in row
        }
    return {"state": state, "losses": rows}


def difference(expected: object, found: object, place: str = "") -> str | None:
    """The first place where two states differ in a bit."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if set(expected) != set(found):
            return f"{place}: other entries"
        pairs = (
            (difference(value, found[key], f"{place}/{key}")) for key, value in expected.items()
        )
        return next(filter(None, pairs), None)
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        both = enumerate(zip(expected, found, strict=True))
        each = (difference(*pair, f"{place}/{number}") for number, pair in both)
        return next(filter(None, each), None)
    if isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor):
        same = torch.equal(expected, found)
    else:
        same = expected == found
    return None if same else f"{place}: differs from the training without interruption"
