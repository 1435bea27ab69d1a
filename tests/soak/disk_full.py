"""A small disk that is filled at random moments, for a time or until the training has ended.

What was on it stays. The training ends with 0 where its end is on the disk, with 1 and a last line
about what is not, and with 2 where it had no room to begin; once there is room, a resume comes to
the end that an undisturbed training comes to.
"""

import random
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cli.lock import NAME as LOCK
from tests.soak import forks, small_disk, tiny_run
from tests.soak.forks import ProcessEnd
from tests.soak.moments import announce_calls, pipe, wait_for_calls
from tests.soak.small_disk import Disk
from tests.soak.tiny_run import ITERATIONS, SAVED_EACH, WORDS, Whole
from tests.soak.trials import Trial

RUN = Path("disk/run")
HALF = Path("half")
RESUME = "a resume"
# moment -> (function of the trainer, number of calls of it at most)
MOMENTS = {
    "the start": ("", 0),
    "a row": (tiny_run.ROW, ITERATIONS),
    "a save": (tiny_run.SAVE, ITERATIONS // SAVED_EACH),
    "the end": ("training.metrics.record.Record.__exit__", 1),
    RESUME: ("training.disk.checkpoint.read_checkpoint", 1),
}
MOST_FREE_PAGES = 3  # an almost full disk takes a part of a file
SAFE = re.compile(r": not on the disk: .+?; (?:\S+ is whole, of iteration (\d+)|there is no check)")


@dataclass(frozen=True)
class Case:
    moment: str
    calls: int  # of its function, until the disk is filled
    there: bool  # whether a run that was killed halfway lies in the folder
    init_from: str
    free_pages: int
    for_s: float  # time until there is room again; inf: not before the end


def trials(count: int, seed: int, limit_s: float) -> Iterator[Trial]:
    with tiny_run.own_folder() as folder, small_disk.mount_disk(folder / "disk") as disk:
        whole = tiny_run.train_whole([], 10 * limit_s)
        tiny_run.leave_half(str(HALF), 10 * limit_s)
        for number in range(seed, seed + count):
            case = case_of(random.Random(f"disk_full {number}"), number, whole.wall_s)
            shutil.rmtree(RUN, ignore_errors=True)
            if case.there:
                shutil.copytree(HALF, RUN)
            before = content(RUN)
            ended = with_full_disk(disk, case, 10 * limit_s)
            problem = what_is_wrong(ended, before, whole) or end_of_resume(case, whole, limit_s)
            how_long = "for a time" if case.for_s < limit_s else "to the end"
            yield Trial(number, f"{case.moment}, {how_long}", f"exit code {ended.status}", problem)


def case_of(chance: random.Random, number: int, whole_s: float) -> Case:
    """Case for trial `number`, which takes the moments in turn."""
    moment = list(MOMENTS)[number % len(MOMENTS)]
    there = moment == RESUME or chance.random() < 0.5
    resumes = there and (moment == RESUME or chance.random() < 0.5)
    return Case(
        moment,
        chance.randint(min(1, MOMENTS[moment][1]), MOMENTS[moment][1]),
        there,
        "resume" if resumes else "scratch",
        chance.randint(0, MOST_FREE_PAGES),
        chance.uniform(0, whole_s / 2) if chance.random() < 0.5 else float("inf"),
    )


def with_full_disk(disk: Disk, case: Case, limit_s: float) -> ProcessEnd:
    """Train while the disk fills up. The disk is free again afterwards."""
    function = MOMENTS[case.moment][0]
    call = forks.program("train", [*WORDS, f"out_dir={RUN}", f"init_from={case.init_from}"])
    if not function:
        disk.fill(case.free_pages)
    with pipe() as (reader, writer):
        child = forks.start_fork(announce_calls(call, writer, *filter(None, [function])), {})
        until_s = child.began_s + limit_s
        wait_for_calls(child, reader, case.calls, until_s)
        if function:
            disk.fill(case.free_pages)
        full_s = time.perf_counter()
        while not child.has_ended() and time.perf_counter() < min(full_s + case.for_s, until_s):
            time.sleep(forks.POLL_S)
        if case.for_s < limit_s:
            disk.free()
        ended = child.wait(until_s)
        disk.free()
        return ended


def content(folder: Path) -> dict[str, bytes]:
    """Relative path -> content of all files in the folder, except locks."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != LOCK]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def what_is_wrong(ended: ProcessEnd, before: dict[str, bytes], whole: Whole) -> str | None:
    """Problem with how the training ended or with what is on the disk then, or None."""
    if fault := tiny_run.fault_of(ended):
        return fault
    lines = ended.err.splitlines()
    if ended.status == 0:
        return tiny_run.difference(whole.end, tiny_run.read_end(RUN))
    if len(lines) != 1:
        return f"exit code {ended.status} and {len(lines)} lines: {lines[-1:]}"
    if ended.status == 2:
        lost = [name for name, was in before.items() if content(RUN).get(name) != was]
        return f"refused, but {', '.join(lost)} changed" if lost else None
    if ended.status == 1 and (said := SAFE.search(lines[0])):
        safe = int(said[1]) if said[1] else None
        there = tiny_run.saved_iteration(RUN)
        return None if safe == there else f"{lines[0]}: but ckpt.pt holds {there}"
    return f"exit code {ended.status}: {lines[0]}"


def end_of_resume(case: Case, whole: Whole, limit_s: float) -> str | None:
    """Problem with a resume once there is room, or with the run that a fresh start moved away."""
    half = (HALF / "ckpt.pt").read_bytes()
    kept = [path.read_bytes() for path in RUN.rglob("ckpt.pt")]
    if case.there and case.init_from == "scratch" and half not in kept:
        return "the run that lay there lost its checkpoint"
    there = tiny_run.saved_iteration(RUN)
    words = [*WORDS, f"out_dir={RUN}", f"init_from={'scratch' if there is None else 'resume'}"]
    ended = forks.run_in_fork(forks.program("train", words), {}, 10 * limit_s)
    if fault := tiny_run.fault_of(ended):
        return fault
    if ended.status:
        return f"with room again: exit code {ended.status}: {' '.join(ended.err.split())[-200:]}"
    return tiny_run.difference(whole.end, tiny_run.read_end(RUN))
