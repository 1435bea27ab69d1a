"""Captures that lost records have no verdict, and whole ones no warning of a loss.

Odd seeds damage a real capture: kernels are gone at random, in one piece or from a moment on, rows
of all tables are, kernels end in a year, ranges have no end. How much is lost is counted here by
itself, from what was taken away. Even seeds end one early, as a profiler that is stopped while the
GPU works, and add what has no kernel for good reasons: launches that fail, a CUDA graph's capture.
"""

import gzip
import io
import json
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from profiling.report.renderers import page
from profiling.verbs import report
from tests.soak.damage import Json, alter_export
from tests.soak.fuzzed_files import CAPTURES
from tests.soak.trials import Trial

EXPORTS = ("slow_eager", "flash_eager", "flash_compile", "slow_compile")
TRACE = "flash_eager.trace"
KERNELS, CALLS, RANGES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
ON_GPU = (KERNELS, "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
OF_TRACE = ("kernel", "cuda_runtime", "cuda_driver", "gpu_memcpy", "gpu_memset")
REFUSED_PERCENT = 5.0  # of the launched kernels; if more are lost there may be no verdict
BOGUS_NS = (10**10, 3 * 10**16)  # 10 s, longer than any session here, and a year
GAP_NS = 2000  # between two calls, at least, where more calls are inserted
OURS = ("not in the capture", "no kernel for any of its", "longer than the whole", "lost its end")


@dataclass
class Damage:
    kind: str
    lost_percent: float = 0.0  # of the launched kernels
    left_out: int = 0  # events that end too late
    open_steps: int = 0  # steps that lost their ends


def trials(count: int, seed: int, limit_s: float) -> Iterator[Trial]:
    """Yield trials of whole and damaged captures in turn."""
    page.plotly_js = str  # 5 MB that are the same on each page
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, chdir(folder):
        for number in range(seed, seed + count):
            yield capture_trial(number)


def capture_trial(seed: int) -> Trial:
    chance = random.Random(f"capture {seed}")
    from_trace = chance.random() < 0.2
    name = "x.json" if from_trace else "x.sqlite"
    content = read_capture(TRACE if from_trace else chance.choice(EXPORTS))
    changed, done = (damaged_trace if from_trace else damaged_export)(
        content, chance, seed % 2 == 1
    )
    Path(name).write_bytes(changed)
    said = io.StringIO()
    with redirect_stdout(said):
        report.main([name])
        outputs = ("--json", "out.json", "--markdown", "out.md", "--html", "out.html")
        report.main([name, *outputs])
    return judge(seed, done, json.loads(Path("out.json").read_bytes()), said.getvalue())


def judge(seed: int, done: Damage, found: Json, said: str) -> Trial:
    """Trial of a capture from its damage, its JSON report `found` and the printed text `said`."""
    verdict, lost = found["bottleneck"]["verdict"], found["health"]["lost_kernels"]
    warned = [row["what"] for row in found["health"]["findings"] if row["level"] == "warning"]
    ours = [what for what in warned if any(part in what for part in (*OURS, "lost their ends"))]
    words = said + Path("out.md").read_text("utf-8") + Path("out.html").read_text("utf-8")
    bound = verdict != "unknown" or "Bound by" in words
    outcome = "verdict" if bound else "no verdict"
    what = None
    if done.lost_percent > REFUSED_PERCENT and bound:
        what = f"{done.lost_percent:.1f} % lost, and yet {verdict}: {lost}"
    elif done.lost_percent < REFUSED_PERCENT - 1 and not bound:
        what = f"{done.lost_percent:.1f} % lost, and no verdict: {lost}"
    elif done.left_out and f"left out {done.left_out} event" not in " ".join(said.split()):
        what = f"{done.left_out} events end too late, which is not said"
    elif done.open_steps and not any("lost its end" in w or "lost their" in w for w in ours):
        what = f"{done.open_steps} steps have no end, which is not said"
    elif not (done.lost_percent or done.left_out or done.open_steps) and ours:
        what = f"nothing was lost, but: {ours[0]}"
    return Trial(seed, done.kind, f"{outcome}, warned" if ours else outcome, what)


@cache
def read_capture(name: str) -> bytes:
    ending = "json.gz" if name == TRACE else "sqlite.gz"
    return gzip.decompress((CAPTURES / f"{name}.{ending}").read_bytes())


def share_of(chance: random.Random) -> float:
    """Random share from 1 to 50 %, below 10 % as often as above."""
    return chance.choice((chance.uniform(0.01, 0.1), chance.uniform(0.1, 0.5)))


# exports of nsys


def damaged_export(content: bytes, chance: random.Random, lossy: bool) -> tuple[bytes, Damage]:
    done = Damage("")

    def change(database: sqlite3.Connection) -> None:
        database.execute(
            f"CREATE TEMP TABLE launched AS SELECT rowid r, correlationId c FROM {KERNELS}"
        )
        how = chance.choice(LOSSES) if lossy else ended_early
        done.kind = f"nsys: {how.__name__.replace('_', ' ')}"
        how(database, chance, done)
        if lossy:
            done.lost_percent = lost_percent(database)
        database.execute("DROP TABLE temp.launched")

    return alter_export(content, change), done


def lost_percent(database: sqlite3.Connection) -> float:
    """Percentage of the kernels with a launch in the file that are gone or have a bogus end."""
    query = f"SELECT count(*) FROM launched WHERE c IN (SELECT correlationId FROM {CALLS})"
    there = f'SELECT rowid FROM {KERNELS} WHERE "end" - start < {BOGUS_NS[0] // 2}'
    ((launched,),) = database.execute(query).fetchall()
    ((lost,),) = database.execute(f"{query} AND r NOT IN ({there})").fetchall()
    percent: float = 100 * lost / launched
    return percent


def rows_of(database: sqlite3.Connection, table: str) -> list[int]:
    return [row for (row,) in database.execute(f"SELECT rowid FROM {table} ORDER BY start")]


def delete(database: sqlite3.Connection, table: str, rows: list[int]) -> None:
    database.executemany(f"DELETE FROM {table} WHERE rowid = ?", [(row,) for row in rows])


def kernels_at_random(database: sqlite3.Connection, chance: random.Random, done: Damage) -> None:
    rows = rows_of(database, KERNELS)
    delete(database, KERNELS, chance.sample(rows, int(share_of(chance) * len(rows))))


def kernels_in_one_piece(database: sqlite3.Connection, chance: random.Random, done: Damage) -> None:
    rows = rows_of(database, KERNELS)
    length = int(share_of(chance) * len(rows))
    first = chance.randrange(len(rows) - length)
    delete(database, KERNELS, rows[first : first + length])


def kernels_cut_off(database: sqlite3.Connection, chance: random.Random, done: Damage) -> None:
    rows = rows_of(database, KERNELS)
    delete(database, KERNELS, rows[len(rows) - int(share_of(chance) * len(rows)) :])


def rows_of_all_tables(database: sqlite3.Connection, chance: random.Random, done: Damage) -> None:
    share = share_of(chance)
    for table in (*ON_GPU, CALLS):
        rows = rows_of(database, table)
        delete(database, table, chance.sample(rows, int(share * len(rows))))


def all_kernels(database: sqlite3.Connection, chance: random.Random, done: Damage) -> None:
    database.execute(chance.choice(("DELETE FROM", "DROP TABLE")) + f" {KERNELS}")
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (KERNELS,)).fetchone():
        columns = "start INT, end INT, correlationId INT"
        database.execute(f"CREATE TABLE {KERNELS} ({columns})")


def bogus_ends(database: sqlite3.Connection, chance: random.Random, done: Damage) -> None:
    rows = rows_of(database, KERNELS)
    count = chance.choice((1, int(share_of(chance) * len(rows))))
    chosen = [(chance.choice(BOGUS_NS), row) for row in chance.sample(rows, count)]
    database.executemany(f'UPDATE {KERNELS} SET "end" = "end" + ? WHERE rowid = ?', chosen)
    done.left_out = count


def open_ranges(database: sqlite3.Connection, chance: random.Random, done: Damage) -> None:
    name = "COALESCE(text, (SELECT value FROM StringIds WHERE id = textId))"
    query = f"SELECT rowid FROM {RANGES} WHERE {name} LIKE 'iteration %' ORDER BY start"
    steps = [row for (row,) in database.execute(query)][:-1]  # the last may be cut off
    chosen = chance.sample(steps, chance.choice((1, len(steps) // 2, len(steps))))
    database.executemany(
        f'UPDATE {RANGES} SET "end" = NULL WHERE rowid = ?', [(row,) for row in chosen]
    )
    done.open_steps = len(chosen)


LOSSES: tuple[Callable[[sqlite3.Connection, random.Random, Damage], None], ...] = (
    *(kernels_at_random, kernels_in_one_piece, kernels_cut_off, rows_of_all_tables),
    *(all_kernels, bogus_ends, open_ranges),
)


def ended_early(database: sqlite3.Connection, chance: random.Random, done: Damage) -> None:
    """End the capture in its last two thirds, and add launches that rightly have no kernel."""
    ((first, last),) = database.execute(f'SELECT min(start), max("end") FROM {CALLS}').fetchall()
    end = int(first + chance.uniform(0.33, 1) * (last - first))
    for table in (*ON_GPU, CALLS):
        database.execute(f'DELETE FROM {table} WHERE "end" > {end}')
    database.execute(f"DELETE FROM {RANGES} WHERE start > {end}")
    database.execute(f'UPDATE {RANGES} SET "end" = NULL WHERE "end" > {end}')
    launch = "SELECT id FROM StringIds WHERE value LIKE 'cudaLaunchKernel_v%'"
    ((launch_id,),) = database.execute(launch).fetchall()
    ((names,),) = database.execute("SELECT max(id) FROM StringIds").fetchall()
    words = ("cudaStreamBeginCapture_v10000", "cudaStreamEndCapture_v10000")
    strings = [(names + 1 + number, word) for number, word in enumerate(words)]
    database.executemany("INSERT INTO StringIds (id, value) VALUES (?, ?)", strings)
    calls = database.execute(
        f'SELECT start, "end", globalTid FROM {CALLS} ORDER BY start'
    ).fetchall()
    gaps = [
        (one[1], one[2])
        for one, other in zip(calls, calls[1:], strict=False)
        if other[0] - one[1] > GAP_NS
    ]
    failing, recording = (chance.choice(gaps) for _ in range(2))
    fails = [(failing[0] + 10 * n, failing[1], launch_id, 2) for n in range(1, 60)]
    records = [(recording[0] + 10 * n, recording[1], launch_id, 0) for n in range(2, 100)]
    edges = [
        (recording[0] + 10 * at, recording[1], names + which, 0) for at, which in ((1, 1), (100, 2))
    ]
    added = [*fails, *records, *edges] if failing != recording else [*records, *edges]
    database.executemany(
        f'INSERT INTO {CALLS} (start, "end", globalTid, nameId, returnValue, correlationId, '
        "eventClass) VALUES (?1, ?1 + 5, ?2, ?3, ?4, -7, 0)",
        added,
    )


# traces of torch.profiler


def damaged_trace(content: bytes, chance: random.Random, lossy: bool) -> tuple[bytes, Damage]:
    trace = json.loads(content)
    events = trace["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    kernels.sort(key=lambda event: event["ts"])
    if not lossy:
        calls = [event for event in events if event.get("cat") == "cuda_runtime"]
        first, last = calls[0]["ts"], max(event["ts"] + event["dur"] for event in calls)
        end = first + chance.uniform(0.33, 1) * (last - first)
        late = {id(e) for e in events if e.get("cat") in OF_TRACE and e["ts"] + e["dur"] > end}
        done = Damage("torch.profiler: ended early")
    else:
        count = int(share_of(chance) * len(kernels))
        how = chance.choice(("at random", "in one piece", "cut off", "bogus ends"))
        at = {"in one piece": chance.randrange(len(kernels) - count), "cut off": -count}.get(how)
        chosen = chance.sample(kernels, count) if at is None else kernels[at:][:count]
        done = Damage(f"torch.profiler: kernels {how}", 100 * count / len(kernels))
        late = {id(event) for event in chosen}
        if how == "bogus ends":
            for event in chosen:
                event["dur"] += chance.choice(BOGUS_NS) / 1e3
            done.left_out, late = count, set()
    trace["traceEvents"] = [event for event in events if id(event) not in late]
    return json.dumps(trace).encode(), done
