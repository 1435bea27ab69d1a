"""Nsight Compute's CSV pages as records of kernels: rates reached, and what held each one back.

Called by profiling.verbs.ncu. Reads the pages `details` (a row for each metric, and ncu's advice)
and `raw` (a row for each kernel, a column for each metric, no advice) of `ncu --csv`.
"""

import csv
import math
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from profiling.tools import nsight

KERNEL_COLUMNS = ("ID", "Kernel Name", "Grid Size", "Block Size")
DETAILS_COLUMNS = ("Metric Name", "Metric Unit", "Metric Value")
RULE_COLUMNS = ("Rule Description", "Rule Name", "Rule Type")  # present where ncu gives advice
AGAIN = "write it with ncu --import FILE --page details --csv"
LARGEST = 1e100  # a larger number is no measurement
RANGE = re.compile(r'"[^":]+:([^":]+):')  # "DOMAIN:NAME:payload:colour:..."
# unit -> its size in base units; newer versions of ncu write us, older ones usecond
TIMES_NS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
TIMES_NS |= {"nsecond": 1, "usecond": 1e3, "msecond": 1e6, "second": 1e9}
PERCENT = {"%": 1}
BYTES = {f"{prefix}byte": 1000**power for power, prefix in enumerate(("", "K", "M", "G", "T"))}
BLOCK_BYTES = BYTES | {f"{unit}/block": size for unit, size in BYTES.items()}
RATES = {f"{unit}/{s}": size for unit, size in BYTES.items() for s in ("s", "second")}


@dataclass(frozen=True)
class NcuMetric:
    name: str  # as the raw page has it
    label: str  # as the details page has it
    units: Mapping[str, float] | None = None  # None for a count


ELAPSED = "avg.pct_of_peak_sustained_elapsed"
METRICS = {
    "duration_ns": NcuMetric("gpu__time_duration.sum", "Duration", TIMES_NS),
    "sm_percent": NcuMetric(f"sm__throughput.{ELAPSED}", "Compute (SM) Throughput", PERCENT),
    "memory_percent": NcuMetric(
        f"gpu__compute_memory_throughput.{ELAPSED}", "Memory Throughput", PERCENT
    ),
    "dram_percent": NcuMetric(f"gpu__dram_throughput.{ELAPSED}", "DRAM Throughput", PERCENT),
    "dram_bytes_per_s": NcuMetric("dram__bytes.sum.per_second", "Memory Throughput", RATES),
    "theoretical_occupancy_percent": NcuMetric(
        "sm__maximum_warps_per_active_cycle_pct", "Theoretical Occupancy", PERCENT
    ),
    "achieved_occupancy_percent": NcuMetric(
        "sm__warps_active.avg.pct_of_peak_sustained_active", "Achieved Occupancy", PERCENT
    ),
    "waves": NcuMetric("launch__waves_per_multiprocessor", "Waves Per SM"),
    "registers": NcuMetric("launch__registers_per_thread", "Registers Per Thread"),
    "shared_static_bytes": NcuMetric(
        "launch__shared_mem_per_block_static", "Static Shared Memory Per Block", BLOCK_BYTES
    ),
    "shared_dynamic_bytes": NcuMetric(
        "launch__shared_mem_per_block_dynamic", "Dynamic Shared Memory Per Block", BLOCK_BYTES
    ),
}
# limit of the number of blocks on an SM -> the metric with how many blocks it allows
LIMITS = {
    "registers": NcuMetric("launch__occupancy_limit_registers", "Block Limit Registers"),
    "shared memory": NcuMetric("launch__occupancy_limit_shared_mem", "Block Limit Shared Mem"),
    "blocks": NcuMetric("launch__occupancy_limit_blocks", "Block Limit SM"),
    "warps": NcuMetric("launch__occupancy_limit_warps", "Block Limit Warps"),
    "barriers": NcuMetric("launch__occupancy_limit_barriers", "Block Limit Barriers"),
}


@dataclass(frozen=True)
class Advice:
    """Advice of one of ncu's rules about a kernel."""

    rule: str
    kind: str  # OPT (could be faster), WRN or INF
    text: str
    speedup_percent: float | None  # ncu's estimate
    scope: str | None  # the speedup is of the kernel's time (global) or of the rule's part (local)


@dataclass(frozen=True)
class ProfiledKernel:
    """One launch of a kernel. A value that the report does not hold is None."""

    name: str
    ranges: list[str]  # the NVTX ranges that it was launched in, the outermost first
    grid: str
    block: str
    duration_ns: float | None  # this field and the next ten are the keys of METRICS
    sm_percent: float | None
    memory_percent: float | None
    dram_percent: float | None
    dram_bytes_per_s: float | None
    theoretical_occupancy_percent: float | None
    achieved_occupancy_percent: float | None
    waves: float | None
    registers: float | None
    shared_static_bytes: float | None
    shared_dynamic_bytes: float | None
    tail_percent: float | None  # room of the last wave that stays empty
    blocks_per_sm: dict[str, int]  # by the keys of LIMITS
    limited_by: list[str]  # what keeps more blocks off an SM; several where they tie
    advice: list[Advice]


def read_report(report: Path, ncu: str | None) -> list[ProfiledKernel]:
    """The kernels of a report: a CSV page, or a .ncu-rep, which needs ncu to read.

    `ncu` is the path of one, else nsight finds it. Raises ValueError naming the file.
    """
    if not report.is_file():
        what = "is a folder" if report.is_dir() else "no such file"
        raise ValueError(f"{report}: {what}; give a .ncu-rep, or a page of it as .csv")
    if report.suffix == ".ncu-rep":
        text = import_report(report, ncu)
    else:
        text = report.read_text(encoding="utf-8", errors="replace")
    try:
        return read_pages(text)
    except ValueError as error:
        raise ValueError(f"{report}: {error}") from error


def import_report(report: Path, ncu: str | None) -> str:
    """The page `details` of a .ncu-rep as CSV text. Raises ValueError if ncu fails."""
    words = [nsight.find("ncu", ncu).path, "--import", str(report)]
    words += ["--page", "details", "--csv", "--print-units", "base"]  # base: without rounding
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        message = (done.stderr or done.stdout).strip()[-300:]
        raise ValueError(f"{report}: ncu --import failed: {message}")
    return done.stdout


def read_pages(text: str) -> list[ProfiledKernel]:
    """The kernels of either page, in the order of their launches.

    Raises ValueError if the text is none of ncu's pages.
    """
    lines = [line for line in text.splitlines() if not line.startswith("==")]
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        raise ValueError(f"has no header of an ncu CSV page; {AGAIN}")
    try:
        rows = list(csv.DictReader(lines[start:]))
    except csv.Error as error:
        raise ValueError(f"is damaged: {error}") from error
    check_columns(rows)
    return read_details(rows) if "Metric Name" in (rows or [{}])[0] else read_raw(rows)


def check_columns(rows: list[dict[str, str]]) -> None:
    """Raise ValueError if a column is missing, or a line is cut off."""
    header = rows[0] if rows else dict.fromkeys(KERNEL_COLUMNS, "")
    wanted = set(KERNEL_COLUMNS)
    for page in (DETAILS_COLUMNS, RULE_COLUMNS):
        wanted |= set(page) if page[0] in header else set()
    if lacking := sorted(wanted - header.keys()):
        raise ValueError(f"has no column {', '.join(lacking)}; {AGAIN}")
    if any(row[name] is None for row in rows for name in KERNEL_COLUMNS):
        raise ValueError(f"is cut off in a line; {AGAIN}")


def read_details(rows: list[dict[str, str]]) -> list[ProfiledKernel]:
    """The kernels of the page `details`, which has a row for each metric and piece of advice."""
    kernels: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        kernels.setdefault(row["ID"], []).append(row)
    columns = itemgetter("Metric Name", "Metric Unit", "Metric Value")
    return [
        kernel_of(
            kernel_rows[0],
            [columns(row) for row in kernel_rows if row["Metric Name"] and row["Metric Value"]],
            [advice_of(row) for row in kernel_rows if row.get("Rule Description")],
        )
        for kernel_rows in kernels.values()
    ]


def read_raw(rows: list[dict[str, str]]) -> list[ProfiledKernel]:
    """The kernels of the page `raw`, whose first row below the header holds the units."""
    return [
        kernel_of(row, [(name, rows[0][name] or "", row[name] or "") for name in row if name], [])
        for row in rows[1:]
    ]


def kernel_of(
    row: dict[str, str], values: list[tuple[str, str, str]], advice: list[Advice]
) -> ProfiledKernel:
    """The record of a kernel. `values` are (name, unit, value) of each metric."""
    metrics = {name: value_of(metric, values) for name, metric in METRICS.items()}
    waves = metrics["waves"]
    limits = {name: value_of(metric, values) for name, metric in LIMITS.items()}
    blocks = {name: int(limit) for name, limit in limits.items() if limit is not None}
    ranges = next((row[key] for key in row if key and key.startswith("thread Domain")), None)
    return ProfiledKernel(
        name=row["Kernel Name"],
        ranges=RANGE.findall(ranges or ""),
        grid=row["Grid Size"],
        block=row["Block Size"],
        **metrics,
        tail_percent=None if waves is None else 100 * (1 - waves / max(math.ceil(waves), 1)),
        blocks_per_sm=blocks,
        limited_by=[name for name, most in blocks.items() if most == min(blocks.values())],
        advice=advice,
    )


def value_of(metric: NcuMetric, values: list[tuple[str, str, str]]) -> float | None:
    """Value of the metric in its base unit, or None if it is missing.

    One label may stand for several metrics, which differ in their units.
    """
    for name, unit, value in values:
        scale = 1 if metric.units is None else metric.units.get(unit)
        if name in (metric.name, metric.label) and scale is not None:
            return None if (plain := number(value)) is None else plain * scale
    return None


def number(text: str) -> float | None:
    """A number such as 1,234.5, or None where ncu could not measure (n/a)."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if -LARGEST < value < LARGEST else None


def advice_of(row: dict[str, str]) -> Advice:
    return Advice(
        row["Rule Name"],
        row["Rule Type"],
        row["Rule Description"],
        number(row.get("Estimated Speedup") or ""),
        row.get("Estimated Speedup Type") or None,
    )
