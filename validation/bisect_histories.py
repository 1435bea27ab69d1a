"""Counts how often `bisect` names the planted commit, and a commit where none is planted.

    python -m validation bisect_histories
    python -m validation bisect_histories planted=2 without=1 least=20 most=30 out=out-try
    python -m validation bisect_histories lanes=16
    python -m validation bisect_histories gpu=true out=out-bisect-gpu

Each history is a repository of a small program, whose commits change a comment; one of them, by the
seed, also makes the step longer by a share between `least` and `most` per cent: bytes to hash on
the CPU, or products of matrices on the GPU. The program is deterministic but for the machine, so
nothing else may run. With `lanes` so many histories are bisected at once, all processes of one on a
core of its own, and with a GPU of its own. What is done is kept in `out`: the same command goes on
where it was stopped. On one core a planted history takes two to three minutes, beside other work up
to ten, and one without a slowdown about one.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import IO

import torch

from benchmarks.measuring import Keys, key
from profiling.analysis.difference.baseline import Machine
from profiling.launch.bisect.search import Bisection
from profiling.launch.experiment.baselines import machine_of
from profiling.shared.json_records import JsonObject, append_lines, read_json, read_lines
from validation.pairs import ask_gpu
from validation.started_programs import python_path

ROWS = "histories.jsonl"
MOST_VISITS = 8  # that a history of 32 commits may take
# Bytes to hash in a step. How long they take hardly depends on where a process's memory lies, as
# rounds of a short hash do: 0.7 % between processes, not 2.4. A step takes less than a millisecond:
# where something else runs on the core, most of them lie between two of its turns.
BYTES = 1_500_000
PRODUCTS = 400  # of matrices in a step: some milliseconds of a large GPU
PROGRAM = """\
import hashlib
import torch  # without torch.optim, which imports Dynamo: another second
torch.set_num_threads(1)
data = bytes(int(open("work.txt").read()))
model = torch.nn.Linear(8, 8)
for _ in range(280):
    model.zero_grad()
    model(torch.ones(8, 8)).sum().backward()
    hashlib.sha256(data).digest()
"""
ON_GPU = """\
import torch  # without torch.optim, as above
rounds = int(open("work.txt").read())
matrix = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
product = torch.empty_like(matrix)
model = torch.nn.Linear(8, 8, device="cuda")
for _ in range(100):
    model.zero_grad()
    loss = model(torch.ones(8, 8, device="cuda")).sum()
    loss.backward()
    for _ in range(rounds):
        torch.mm(matrix, matrix, out=product)
    loss.item()
"""


@dataclass
class HistoriesConfig(Keys):
    gpu: bool = key(False, "a program whose step is kernels on the GPU")
    planted: int | None = key(None, "histories with a slowdown (20, or 5 on a GPU)", least=0)
    without: int | None = key(None, "histories without one (20, or none on a GPU)", least=0)
    lanes: int = key(1, "histories that are bisected at once", least=1)
    commits: int = key(32, "commits behind GOOD", least=2)
    least: float = key(2.0, "least slowdown in per cent", least=0.1)
    most: float = key(5.0, "greatest slowdown in per cent", least=0.1)
    repeats: int = key(4, "processes of each commit at first", least=2)
    most_repeats: int = key(80, "processes of each commit in a visit", least=2)
    seed: int = key(0, "of the commits and their slowdowns")
    out: str = key("out-bisect-histories", "folder of the histories and their results")


@dataclass(frozen=True)
class Row:
    """A history and what `bisect` said of it; commits are counted from 1, 0 is GOOD."""

    history: str
    planted: int | None
    percent: float | None
    named: int | None
    exit_code: int
    visits: int
    processes: int
    wall_s: float
    lanes: int  # histories that were bisected at once
    machine: Machine


def main(config: HistoriesConfig) -> None:
    out = Path(config.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    rows = read_lines(out / ROWS, Row) if (out / ROWS).exists() else []
    done, free, machine = {row.history for row in rows}, lanes(config), this_machine(config.gpu)
    planted = (5 if config.gpu else 20) if config.planted is None else config.planted
    without = (0 if config.gpu else 20) if config.without is None else config.without
    kinds = [True] * planted + [False] * without
    place = f"{'gpu-' if config.gpu else ''}{config.seed}"
    histories = {
        f"{'planted' if has_one else 'without'}-{place}-{number}": has_one
        for number, has_one in enumerate(kinds)
    }

    children = Children()

    def judge(history: str) -> Row:
        lane = free.get()
        if lane.core is not None:
            os.sched_setaffinity(0, {lane.core})  # of this thread, and of what it starts
        try:
            has_one = histories[history]
            return judged(config, out / history, history, has_one, lane, machine, children)
        finally:
            free.put(lane)

    for row in rows:
        if row.history in histories:
            print(spelled(row), flush=True)
    with ThreadPoolExecutor(config.lanes) as pool:
        try:
            left = [history for history in histories if history not in done]
            started = [pool.submit(judge, history) for history in left]
            for each in as_completed(started):
                rows.append(each.result())
                append_lines(out / ROWS, rows[-1:])
                print(spelled(rows[-1]), flush=True)
        except BaseException:  # Ctrl-C, or a history that failed: the pool waits for its threads
            pool.shutdown(wait=False, cancel_futures=True)
            children.end()
            raise
    print(summary(rows))


class Children:
    """Processes that the threads of a pool run and wait for; another thread can end them all."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.running: set[subprocess.Popen[bytes]] = set()
        self.ended = False

    def run(self, command: list[str], folder: Path, environ: dict[str, str], log: IO[bytes]) -> int:
        """Run a process to its end and return its exit code; after `end` none is started."""
        with self.lock:
            if self.ended:
                return 128 + signal.SIGTERM
            child = subprocess.Popen(command, cwd=folder, env=environ, stdout=log, stderr=log)
            self.running.add(child)
        try:
            return child.wait()
        finally:
            with self.lock:
                self.running.remove(child)

    def end(self) -> None:
        """Ask all processes to end, with what they started."""
        with self.lock:
            self.ended = True
            for child in self.running:
                child.terminate()


@dataclass(frozen=True)
class Lane:
    """Core and GPU that a history has to itself; None: all that there are."""

    core: int | None = None
    gpu: str | None = None


def lanes(config: HistoriesConfig) -> SimpleQueue[Lane]:
    """The lanes, all free. Raises ValueError where the machine has fewer cores or GPUs."""
    free: SimpleQueue[Lane] = SimpleQueue()
    cores, visible = own_cores(), os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible.split(",") if visible else [*map(str, range(torch.cuda.device_count()))]
    for what, count in (("cores", len(cores)), *([("GPUs", len(gpus))] if config.gpu else [])):
        if count < config.lanes:
            raise ValueError(f"lanes={config.lanes}: this machine has {count} {what}")
    for lane in range(config.lanes):
        core = cores[lane] if config.lanes > 1 else None
        free.put(Lane(core, gpus[lane] if config.gpu else None))
    return free


def own_cores() -> list[int]:
    """A number for each core that this process may use; threads of one core share it."""
    found: dict[str, int] = {}
    for number in sorted(os.sched_getaffinity(0)):
        told = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        found.setdefault(told.read_text() if told.exists() else str(number), number)
    return list(found.values())


def this_machine(gpu: bool) -> Machine:
    facts: JsonObject = {"torch": str(torch.__version__)}
    of_gpu: JsonObject = {"gpu": ask_gpu(["name"]), "cuda": torch.version.cuda}
    return machine_of(facts | of_gpu if gpu else facts)


def judged(
    config: HistoriesConfig,
    folder: Path,
    history: str,
    has_one: bool,
    lane: Lane,
    machine: Machine,
    children: Children,
) -> Row:
    """Plant a history in the folder, unless it is there, and bisect it."""
    chance = random.Random(history)
    place, percent = chance.randint(1, config.commits), chance.uniform(config.least, config.most)
    usual, program = (PRODUCTS, ON_GPU) if config.gpu else (BYTES, PROGRAM)
    work = [
        round(usual * (1 + percent / 100)) if has_one and number >= place else usual
        for number in range(config.commits + 1)
    ]
    if not (folder / "planted").exists():
        plant(folder, [{"work.txt": f"{each}\n", "train.py": program} for each in work])
        (folder / "planted").touch()
    result = folder / "result.json"
    flags = ["--repeats", config.repeats, "--most-repeats", config.most_repeats, "--json", result]
    words = ["bisect", f"main~{config.commits}", "main", *flags, "--", sys.executable, "train.py"]
    environ = os.environ | {"PYTHONPATH": python_path(os.environ)}
    environ |= {"CUDA_VISIBLE_DEVICES": lane.gpu} if lane.gpu is not None else {}
    begun = time.perf_counter()
    with open(folder / "bisect.log", "ab") as log:
        command = [sys.executable, "-m", "profiling", *map(str, words)]
        exit_code = children.run(command, folder, environ, log)
    if exit_code not in (0, 3):
        raise ValueError(f"{history}: bisect ended with {exit_code}; see {log.name}")
    found = read_json(result, Bisection)
    named = None
    if found.named:
        span = ["git", "-C", str(folder), "rev-list", "--count", found.named]
        named = int(subprocess.check_output(span, text=True)) - 1
    return Row(
        history,
        place if has_one else None,
        round(percent, 2) if has_one else None,
        named,
        exit_code,
        len(found.visits),
        sum(visit.processes for visit in found.visits),
        round(time.perf_counter() - begun, 1),
        config.lanes,
        machine,
    )


def plant(folder: Path, contents: list[dict[str, str]]) -> None:
    """Make a repository at `folder` whose branch main has a commit for each file -> text."""
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    lines = []
    for number, files in enumerate(contents):
        lines += ["commit refs/heads/main", f"committer A <a@b> {1_700_000_000 + number} +0000"]
        lines += [data(f"commit {number}")]
        for name, text in (files | {"note.txt": f"# {number}\n"}).items():
            lines += [f"M 100644 inline {name}", data(text)]
    git = ["git", "-C", str(folder)]
    stream = "\n".join([*lines, ""]).encode()
    subprocess.run([*git, "fast-import", "--quiet", "--force"], input=stream, check=True)
    subprocess.run([*git, "reset", "-q", "--hard", "main"], check=True)


def data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}"


def spelled(row: Row) -> str:
    return json.dumps(asdict(row))


def summary(rows: list[Row]) -> str:
    """Markdown of the counts."""
    planted = [row for row in rows if row.planted is not None]
    without = [row for row in rows if row.planted is None]
    right = sum(row.named == row.planted for row in planted)
    wrong = sum(row.named not in (None, row.planted) for row in planted)
    within = sum(row.visits <= MOST_VISITS for row in rows)
    lines = [
        "| histories | planted commit named | another named | none named |",
        "|---|---:|---:|---:|",
        f"| {len(planted)} with a slowdown | {right} | {wrong} | {len(planted) - right - wrong} |",
        f"| {len(without)} without | | {sum(row.named is not None for row in without)} "
        f"| {sum(row.named is None for row in without)} |",
        f"\n{within} of {len(rows)} in at most {MOST_VISITS} visits; "
        f"{sum(row.processes for row in rows)} processes, "
        f"{sum(row.wall_s for row in rows) / 60:.0f} min",
    ]
    return "\n".join(["", *lines])
