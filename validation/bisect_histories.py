"""How often `bisect` names the planted commit, and whether it names one where there is none.

    python -m validation bisect_histories
    python -m validation bisect_histories planted=2 without=1 least=20 most=30 out=out-try

Each history is a repository of a small CPU program, whose commits change a comment; one of them, by
the seed, also makes the step longer by a share between `least` and `most` per cent. The program is
deterministic but for the machine, so nothing else may run. What is done is kept in `out`: the same
command goes on where it was stopped. On two quiet cores a planted history takes about 6 minutes,
one without about 1.
"""

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measuring import PROJECT, Keys, key
from profiling.launch.bisect.search import Bisection
from profiling.shared.json_records import append_lines, read_json, read_lines

ROWS = "histories.jsonl"
MOST_VISITS = 8  # that a history of 32 commits may take
ROUNDS = 8000  # of a hash in a step: some milliseconds, with C's pace
PROGRAM = """\
import hashlib
import torch
torch.set_num_threads(1)
rounds = int(open("rounds.txt").read())
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(140):
    optimizer.zero_grad()
    model(torch.ones(8, 8)).sum().backward()
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", rounds)
    optimizer.step()
"""


@dataclass
class HistoriesConfig(Keys):
    planted: int = key(20, "histories with a slowdown", least=0)
    without: int = key(20, "histories without one", least=0)
    commits: int = key(32, "commits behind GOOD", least=2)
    least: float = key(2.0, "least slowdown in per cent", least=0.1)
    most: float = key(5.0, "greatest slowdown in per cent", least=0.1)
    repeats: int = key(5, "processes of each commit at first", least=2)
    most_repeats: int = key(40, "processes of each commit in a visit", least=2)
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


def main(config: HistoriesConfig) -> None:
    out = Path(config.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    rows = read_lines(out / ROWS, Row) if (out / ROWS).exists() else []
    done = {row.history for row in rows}
    for number in range(config.planted + config.without):
        has_one = number < config.planted
        history = f"{'planted' if has_one else 'without'}-{config.seed}-{number}"
        if history not in done:
            rows.append(judged(config, out / history, history, has_one))
            append_lines(out / ROWS, rows[-1:])
        print(spelled(next(row for row in rows if row.history == history)), flush=True)
    print(summary(rows))


def judged(config: HistoriesConfig, folder: Path, history: str, has_one: bool) -> Row:
    """Plant a history in the folder, unless it is there, and bisect it."""
    chance = random.Random(history)
    place, percent = chance.randint(1, config.commits), chance.uniform(config.least, config.most)
    rounds = [
        round(ROUNDS * (1 + percent / 100)) if has_one and number >= place else ROUNDS
        for number in range(config.commits + 1)
    ]
    if not (folder / "planted").exists():
        plant(folder, [{"rounds.txt": f"{each}\n", "train.py": PROGRAM} for each in rounds])
        (folder / "planted").touch()
    result = folder / "result.json"
    flags = ["--repeats", config.repeats, "--most-repeats", config.most_repeats, "--json", result]
    words = ["bisect", f"main~{config.commits}", "main", *flags, "--", sys.executable, "train.py"]
    environ = os.environ | {"PYTHONPATH": str(PROJECT)}
    begun = time.perf_counter()
    with open(folder / "bisect.log", "ab") as log:
        command = [sys.executable, "-m", "profiling", *map(str, words)]
        done = subprocess.run(command, cwd=folder, env=environ, stdout=log, stderr=log)
    if done.returncode not in (0, 3):
        raise ValueError(f"{history}: bisect ended with {done.returncode}; see {log.name}")
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
        done.returncode,
        len(found.visits),
        sum(visit.processes for visit in found.visits),
        round(time.perf_counter() - begun, 1),
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
