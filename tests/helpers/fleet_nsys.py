"""Write simulated trainings (benchmarks.fleet) as nsys would have exported them."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.fleet.files import PROCESS, FileFacts
from benchmarks.fleet.simulation import Simulation
from profiling.timeline.nsys_export import PROCESS_BITS

TABLES = """
    CREATE TABLE StringIds (id INT, value TEXT);
    CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT, smCount INT, totalMemory INT, uuid TEXT);
    CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);
    CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INT);
    CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, correlationId INT, nameId INT,
        globalTid INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT,
        correlationId INT, globalPid INT, demangledName INT, gridX INT, gridY INT, gridZ INT,
        blockX INT, blockY INT, blockZ INT);
"""


def write_nsys(simulation: Simulation, ranks: Sequence[int], path: Path, facts: FileFacts) -> Path:
    """Write the export of an nsys session that traced these ranks' processes, on one clock."""
    database = sqlite3.connect(path)
    database.executescript(TABLES)
    if facts.host:
        insert(database, "TARGET_INFO_SYSTEM_ENV", [("Hostname", facts.host)])
        insert(database, "TARGET_INFO_SESSION_START_TIME", [(round(facts.began_s * 1e9),)])
    names: dict[str, int] = {}
    clock_us = 1e3 + facts.clock_us[ranks[0]]
    for device, rank in enumerate(ranks):
        process = (PROCESS + rank) << PROCESS_BITS
        thread = process + PROCESS + rank
        database.execute(
            "INSERT INTO TARGET_INFO_GPU VALUES (?, 'NVIDIA H200', 132, 150109880320, ?)",
            (device, facts.host and f"GPU {device} of {facts.host}"),
        )
        begin, end = facts.span_us(simulation, rank)

        def ns(us: np.ndarray, rank: int = rank) -> int:
            return int(round((clock_us + us[rank]) * 1000))

        ranges = [
            (
                ns(each.start_us),
                ns(each.end_us),
                59,
                each.name.replace("step ", "iteration "),
                thread,
            )
            for each in simulation.ranges
            if begin <= each.start_us[rank] <= end
        ]
        calls = [
            (
                ns(each.start_us),
                ns(each.end_us),
                -1,
                names.setdefault(each.name, len(names)),
                thread,
            )
            for each in simulation.waits
            if begin <= each.start_us[rank] <= end
        ]
        kernels = []
        launch = names.setdefault("cudaLaunchKernelExC_v11060", len(names))
        for number, of in enumerate(simulation.operations):
            queued = facts.queued and of.launch_us[rank] < begin < of.end_us[rank]
            if not of.there[rank] or not (begin <= of.launch_us[rank] <= end or queued):
                continue
            if not queued:
                calls.append((ns(of.launch_us), ns(of.returned_us), number, launch, thread))
            name = names.setdefault(of.name, len(names))
            place = (device, of.stream, number, process, name)
            geometry = (int(of.blocks[rank]), 1, 1, 384, 1, 1)
            kernels.append((ns(of.start_us), ns(of.end_us), *place, *geometry))
        insert(database, "NVTX_EVENTS", ranges)
        insert(database, "CUPTI_ACTIVITY_KIND_RUNTIME", calls)
        insert(database, "CUPTI_ACTIVITY_KIND_KERNEL", kernels)
    insert(database, "StringIds", [(number, name) for name, number in names.items()])
    database.commit()
    database.close()
    return path


def insert(database: sqlite3.Connection, table: str, rows: Sequence[tuple[object, ...]]) -> None:
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
