"""Repeats a real capture until it is big, to measure how the readers take it.

    python -m benchmarks repeat_capture capture=FILE out=FILE [kernels=1000000]

Times, correlation ids and the numbers in `iteration N` move on with each repetition, so that the
result reads like one long window. Takes an nsys .sqlite or a torch.profiler .json, also as .gz, and
holds one repetition in memory. Where `kernels` is no multiple of what the capture has, the result
has some more.
"""

import gzip
import json
import os
import re
import shutil
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import at_least

MOVED_TABLES = re.compile(
    r"CUPTI_ACTIVITY_KIND_\w+|NVTX_EVENTS|CUDA_GPU_MEMORY_USAGE_EVENTS|OSRT_API|GPU_METRICS"
)
TIMES = ("start", "end", "timestamp", "rawTimestamp")  # columns that move with each repetition
PUSH_POP, START_END = 59, 60  # NVTX_EVENTS.eventType of ranges
ITERATION = re.compile(r"iteration (\d+)")


@dataclass
class RepeatConfig:
    capture: str = field(default="", metadata={"help": "what to repeat"})
    out: str = field(default="", metadata={"help": "file to write; .sqlite or .json"})
    kernels: int = field(default=1_000_000, metadata={"help": "at least so many"})

    def __post_init__(self) -> None:
        for key in ("capture", "out"):
            if not getattr(self, key):
                raise ValueError(f"{key}: name a file")
        at_least(self, kernels=1)


def main(config: RepeatConfig) -> None:
    capture, out = Path(config.capture), Path(config.out)
    if not capture.is_file():
        raise ValueError(f"capture={capture}: no such file")
    temporary = out.with_name(out.name + ".tmp")
    try:
        with gzip.open(capture) if capture.suffix == ".gz" else open(capture, "rb") as file:
            if ".sqlite" in capture.name:
                with open(temporary, "wb") as copy:
                    shutil.copyfileobj(file, copy)
                made = repeat_sqlite(temporary, config.kernels)
            else:
                made = repeat_json(json.load(file), temporary, config.kernels)
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)
    print(f"{out}: {made} kernels, {out.stat().st_size / 1e6:.0f} MB")


def repeat_sqlite(path: Path, kernels: int) -> int:
    """Repeats the events of the file in place; returns how many kernels it has then."""
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("PRAGMA synchronous = OFF")
    rows = "SELECT name FROM sqlite_master WHERE type = 'table'"
    tables = [name for (name,) in database.execute(rows) if MOVED_TABLES.fullmatch(name)]
    count = scalar(database, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL")
    repetitions = -(-kernels // count)
    calls = "CUPTI_ACTIVITY_KIND_RUNTIME"
    first, last, ids = database.execute(
        f"SELECT min(start), max(end), max(correlationId) + 1 FROM {calls}"
    ).fetchone()
    period_ns = max(last, scalar(database, "SELECT max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL"))
    period_ns += 1000 - first
    for table in tables:
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        moved = {name: f"{name} + :number * {period_ns}" for name in TIMES}
        moved |= {"correlationId": f"correlationId + :number * {ids}"}
        names = ", ".join(f'"{name}"' for name in columns)
        values = ", ".join(moved.get(name, f'"{name}"') for name in columns)
        which = f"AND eventType IN ({PUSH_POP}, {START_END})" if table == "NVTX_EVENTS" else ""
        last_row = scalar(database, f"SELECT max(rowid) FROM {table}")
        for number in range(1, repetitions):
            insert = f"INSERT INTO {table} ({names}) SELECT {values} FROM {table} "
            insert += f"WHERE rowid <= {last_row} {which}"
            database.execute(insert, {"number": number})
    if "NVTX_EVENTS" in tables:
        number_iterations(database)
    database.commit()
    database.close()
    return count * repetitions


def number_iterations(database: sqlite3.Connection) -> None:
    """Gives the repeated iterations the numbers that follow."""
    rows = database.execute(
        "SELECT n.rowid, COALESCE(n.text, s.value) FROM NVTX_EVENTS n "
        "LEFT JOIN StringIds s ON s.id = n.textId "
        "WHERE COALESCE(n.text, s.value) LIKE 'iteration %' ORDER BY n.start"
    ).fetchall()
    first = int(rows[0][1].removeprefix("iteration ")) if rows else 0
    names = [(f"iteration {first + i}", rowid) for i, (rowid, _) in enumerate(rows)]
    database.executemany("UPDATE NVTX_EVENTS SET text = ?, textId = NULL WHERE rowid = ?", names)


def scalar(database: sqlite3.Connection, query: str) -> int:
    (value,) = database.execute(query).fetchone()
    return value


def repeat_json(trace: dict[str, Any], out: Path, kernels: int) -> int:
    """Writes the trace, repeated; returns how many kernels it has then."""
    events = trace.pop("traceEvents")
    timed = [event for event in events if event.get("ph") in ("X", "s", "f")]
    count = sum(event.get("cat") == "kernel" for event in timed)
    if not count:
        raise ValueError("capture: has no kernels to repeat")
    repetitions = -(-kernels // count)
    iterations = {event["name"] for event in timed if ITERATION.fullmatch(event["name"])}
    steps = {
        "ts": max(e["ts"] + e.get("dur", 0) for e in timed) - min(e["ts"] for e in timed) + 1,
        "id": largest(timed, "id") + 1,
        "iteration": len(iterations),
        "correlation": largest([e.get("args", {}) for e in timed], "correlation") + 1,
        "External id": largest([e.get("args", {}) for e in timed], "External id") + 1,
    }
    with open(out, "w", encoding="utf-8") as written:
        written.write(json.dumps(trace, separators=(",", ":"))[:-1] + ',"traceEvents":[\n')
        written.write(",\n".join(dumps(event) for event in events))
        for number in range(1, repetitions):
            for event in timed:
                written.write(",\n" + dumps(moved(event, number, steps)))
        written.write("\n]}\n")
    return count * repetitions


def largest(records: list[dict[str, Any]], key: str) -> int:
    return max((record[key] for record in records if key in record), default=0)


def moved(event: dict[str, Any], number: int, steps: dict[str, Any]) -> dict[str, Any]:
    """The event in a later repetition."""
    event = event | {"ts": round(event["ts"] + number * steps["ts"], 3)}
    if "id" in event:
        event["id"] += number * steps["id"]
    if match := ITERATION.fullmatch(event["name"]):
        event["name"] = f"iteration {int(match[1]) + number * steps['iteration']}"
    if "args" in event:
        ids = ("correlation", "External id")
        old = event["args"]
        event["args"] = old | {key: old[key] + number * steps[key] for key in ids if key in old}
    return event


def dumps(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":"))
