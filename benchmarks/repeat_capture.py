"""Repeats a real capture until it is big, to measure how the readers take it.

    python -m benchmarks repeat_capture capture=FILE out=FILE [kernels=1000000]

Times, correlation ids and the numbers in `iteration N` move on with each repetition, so that the
result reads like one long window. Takes an nsys .sqlite or a torch.profiler .json, also as .gz, and
holds one repetition in memory. Where `kernels` is no multiple of what the capture has, the result
has some more.
"""

import gzip
import json
import re
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measuring import Keys, key
from cli.files import replacement_for, resolve_link

MOVED_TABLES = re.compile(
    r"CUPTI_ACTIVITY_KIND_\w+|NVTX_EVENTS|CUDA_GPU_MEMORY_USAGE_EVENTS|OSRT_API|GPU_METRICS"
)
TIMES = ("start", "end", "timestamp", "rawTimestamp")  # columns that move with each repetition
PUSH_POP, START_END = 59, 60  # NVTX_EVENTS.eventType of ranges
ITERATION = re.compile(r"iteration (\d+)")
IDS = ("correlation", "External id")  # in an event's args
Json = dict[str, Any]  # an object of a Chrome trace, passed on as json.load read it


@dataclass
class RepeatConfig(Keys):
    capture: str = key("", "what to repeat", needed="a file", file=True)
    out: str = key("", "file to write; .sqlite or .json", needed="a file")
    kernels: int = key(1_000_000, "at least so many", least=1)


def main(config: RepeatConfig) -> None:
    capture, out = Path(config.capture), Path(config.out)
    with (
        replacement_for(resolve_link(out)) as made,
        gzip.open(capture) if capture.suffix == ".gz" else open(capture, "rb") as file,
    ):
        if ".sqlite" in capture.name:
            with open(made, "wb") as copy:
                shutil.copyfileobj(file, copy)
            kernels = repeat_sqlite(made, config.kernels)
        else:
            kernels = repeat_json(json.load(file), made, config.kernels)
    print(f"{out}: {kernels} kernels, {out.stat().st_size / 1e6:.0f} MB")


def repetitions_of(count: int, kernels: int) -> int:
    if not count:
        raise ValueError("capture: has no kernels to repeat")
    return -(-kernels // count)


def repeat_sqlite(path: Path, kernels: int) -> int:
    """Repeat the events of the file in place. Returns the number of kernels in the result."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        tables = [name for (name,) in rows if MOVED_TABLES.fullmatch(name)]
        count, kernels_end, first, last, ids = database.execute(
            "SELECT * FROM (SELECT count(*), max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL), (SELECT "
            "min(start), max(end), max(correlationId) + 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME)"
        ).fetchone()
        repetitions = repetitions_of(count, kernels)
        growth = dict.fromkeys(TIMES, max(last, kernels_end) + 1000 - first) | {
            "correlationId": ids
        }
        for table in tables:
            repeat_rows(database, table, growth, repetitions)
        if "NVTX_EVENTS" in tables:
            number_iterations(database)
        database.commit()
    return int(count) * repetitions


def repeat_rows(
    database: sqlite3.Connection, table: str, growth: Mapping[str, int], repetitions: int
) -> None:
    """Repeat the rows of a table. `growth`: column -> increase with each repetition."""
    names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    values = [
        f'"{name}" + :number * {growth[name]}' if name in growth else f'"{name}"' for name in names
    ]
    (last_row,) = database.execute(f"SELECT max(rowid) FROM {table}").fetchone()
    columns = ", ".join(f'"{name}"' for name in names)
    insert = f"INSERT INTO {table} ({columns}) SELECT {', '.join(values)} FROM {table} "
    insert += f"WHERE rowid <= {last_row}"
    if table == "NVTX_EVENTS":
        insert += f" AND eventType IN ({PUSH_POP}, {START_END})"
    database.executemany(insert, ({"number": number} for number in range(1, repetitions)))


def number_iterations(database: sqlite3.Connection) -> None:
    """Number the repeated iterations consecutively."""
    rows = database.execute(
        "SELECT n.rowid, COALESCE(n.text, s.value) FROM NVTX_EVENTS n "
        "LEFT JOIN StringIds s ON s.id = n.textId "
        "WHERE COALESCE(n.text, s.value) LIKE 'iteration %' ORDER BY n.start"
    ).fetchall()
    first = int(rows[0][1].removeprefix("iteration ")) if rows else 0
    names = [(f"iteration {first + i}", rowid) for i, (rowid, _) in enumerate(rows)]
    database.executemany("UPDATE NVTX_EVENTS SET text = ?, textId = NULL WHERE rowid = ?", names)


def repeat_json(trace: Json, out: Path, kernels: int) -> int:
    """Write the repeated trace. Returns the number of kernels in the result."""
    events = trace.pop("traceEvents")
    timed = [event for event in events if event.get("ph") in ("X", "s", "f")]
    count: int = sum(event.get("cat") == "kernel" for event in timed)
    repetitions = repetitions_of(count, kernels)
    period = max(e["ts"] + e.get("dur", 0) for e in timed) - min(e["ts"] for e in timed) + 1
    args = [event.get("args", {}) for event in timed]
    growth = {name: largest(args, name) + 1 for name in IDS}
    growth |= {"ts": period, "id": largest(timed, "id") + 1}
    iterations = len({event["name"] for event in timed if ITERATION.fullmatch(event["name"])})
    with open(out, "w", encoding="utf-8") as written:
        written.write(json.dumps(trace, separators=(",", ":"))[:-1] + ',"traceEvents":[\n')
        written.write(",\n".join(map(dumps, events)))
        for number in range(1, repetitions):
            grown = {name: number * step for name, step in growth.items()}
            for event in timed:
                written.write(",\n" + dumps(shift_event(event, grown, number * iterations)))
        written.write("\n]}\n")
    return count * repetitions


def largest(records: list[Json], name: str) -> int:
    return max((record[name] for record in records if name in record), default=0)


def shift_event(event: Json, grown: Mapping[str, float], iterations: int) -> Json:
    """Copy of the event for a later repetition, with its times, ids and iteration moved on."""
    event = event | {n: round(event[n] + grown[n], 3) for n in ("ts", "id") if n in event}
    if match := ITERATION.fullmatch(event["name"]):
        event["name"] = f"iteration {int(match[1]) + iterations}"
    if args := event.get("args"):
        event["args"] = args | {n: args[n] + grown[n] for n in IDS if n in args}
    return event


def dumps(event: Json) -> str:
    return json.dumps(event, separators=(",", ":"))
