"""Captures of pairs, packed: exports of nsys without what no reader reads, and traces, by xz."""

import gzip
import lzma
import shutil
import sqlite3
from contextlib import closing, nullcontext, redirect_stdout
from pathlib import Path

from cli.files import replacement_for
from profiling.launch import reports
from profiling.timeline.nsys_export import ACTIVITY, NVTX
from profiling.tools.nsys_tool import Nsys

# tables that profiling.timeline reads, and the beginnings of names of such
KEPT = {"StringIds", NVTX, "OSRT_API", "PROFILER_OVERHEAD", "DIAGNOSTIC_EVENT", "ANALYSIS_DETAILS"}
KEPT |= {"CUDA_GPU_MEMORY_USAGE_EVENTS", "META_DATA_EXPORT", "ENUM_CUDA_MEMCPY_OPER"}
KEPT |= {f"{ACTIVITY}{kind}" for kind in ("RUNTIME", "KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")}
KEPT_FROM = "TARGET_INFO_"
PRESET = 3  # of xz: a trace of 60 MB takes seconds


def pack(capture: Path, place: Path) -> Path:
    """Compress a capture (.sqlite, .json or .json.gz) into the folder; returns NAME.xz."""
    packed = place / f"{capture.name.removesuffix('.gz')}.xz"
    unpack = gzip.open if capture.suffix == ".gz" else open
    with (
        replacement_for(packed) as temporary,
        unpack(capture, "rb") as content,
        lzma.open(temporary, "wb", preset=PRESET) as file,
    ):
        shutil.copyfileobj(content, file, 1 << 20)
    return packed


def unpack(packed: Path, folder: Path) -> Path:
    """Put a kept capture into the folder as the readers take it; returns its path."""
    capture = folder / packed.stem
    with replacement_for(capture) as temporary, lzma.open(packed) as content:
        temporary.write_bytes(content.read())
    return capture


def trim(export: Path) -> None:
    """Drop the tables of an export that no reader reads."""
    with closing(sqlite3.connect(export)) as database:
        named = database.execute("SELECT type, name FROM sqlite_master").fetchall()
        for kind, name in named:
            if kind == "view" or kind == "table" and not is_kept(name):
                database.execute(f'DROP {kind} "{name}"')
        database.commit()
        database.execute("VACUUM")


def is_kept(table: str) -> bool:
    return table in KEPT or table.startswith((KEPT_FROM, "sqlite_"))


def export(nsys: Nsys, report: Path, log: Path) -> Path:
    """Export and trim a report of nsys, which is deleted. Raises ValueError if there is none."""
    with open(log, "a", encoding="utf-8") as file, redirect_stdout(file):
        if not report.exists() or not reports.export_reports(nsys, [report], nullcontext):
            raise ValueError(f"{report.name}: no report or no export; see {log}")
    sqlite = report.with_suffix(".sqlite")
    trim(sqlite)
    report.unlink()
    return sqlite
