"""Nsight Compute's CSV pages as records: what each profiled kernel reached, and what held it back.

Called by profiling.verbs.ncu. Reads the pages `details` (a row for each metric, and ncu's advice)
and `raw` (a row for each kernel, a column for each metric, no advice) of `ncu --csv`.
"""

import csv
import math
import re
from dataclasses import dataclass, field

RANGE = re.compile(r'"[^":]+:([^":]+):')  # "DOMAIN:NAME:payload:colour:..."
# unit -> how many of its base unit; ncu's newer versions write us, older ones usecond
TIMES_NS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
TIMES_NS |= {"nsecond": 1, "usecond": 1e3, "msecond": 1e6, "second": 1e9}
SIZES = {f"{prefix}byte": 1000**power for power, prefix in enumerate(("", "K", "M", "G", "T"))}
UNITS = {
    "time": TIMES_NS,
    "percent": {"%": 1},
    "size": SIZES | {f"{unit}/block": size for unit, size in SIZES.items()},
    "rate": {f"{unit}/{s}": size for unit, size in SIZES.items() for s in ("s", "second")},
}


@dataclass(frozen=True)
class Metric:
    name: str  # as the raw page has it
    label: str  # as the details page has it
    kind: str  # of UNITS, or count


PERCENT_ELAPSED = "avg.pct_of_peak_sustained_elapsed"
METRICS = {
    "duration_ns": Metric("gpu__time_duration.sum", "Duration", "time"),
    "sm_percent": Metric(f"sm__throughput.{PERCENT_ELAPSED}", "Compute (SM) Throughput", "percent"),
    "memory_percent": Metric(
        f"gpu__compute_memory_throughput.{PERCENT_ELAPSED}", "Memory Throughput", "percent"
    ),
    "dram_percent": Metric(f"gpu__dram_throughput.{PERCENT_ELAPSED}", "DRAM Throughput", "percent"),
    "dram_bytes_per_s": Metric("dram__bytes.sum.per_second", "Memory Throughput", "rate"),
    "theoretical_occupancy_percent": Metric(
        "sm__maximum_warps_per_active_cycle_pct", "Theoretical Occupancy", "percent"
    ),
    "achieved_occupancy_percent": Metric(
        "sm__warps_active.avg.pct_of_peak_sustained_active", "Achieved Occupancy", "percent"
    ),
    "waves": Metric("launch__waves_per_multiprocessor", "Waves Per SM", "count"),
    "registers": Metric("launch__registers_per_thread", "Registers Per Thread", "count"),
    "shared_static_bytes": Metric(
        "launch__shared_mem_per_block_static", "Static Shared Memory Per Block", "size"
    ),
    "shared_dynamic_bytes": Metric(
        "launch__shared_mem_per_block_dynamic", "Dynamic Shared Memory Per Block", "size"
    ),
}
# what may hold the number of blocks on an SM down -> how many blocks it allows
LIMITS = {
    "registers": Metric("launch__occupancy_limit_registers", "Block Limit Registers", "count"),
    "shared memory": Metric(
        "launch__occupancy_limit_shared_mem", "Block Limit Shared Mem", "count"
    ),
    "blocks": Metric("launch__occupancy_limit_blocks", "Block Limit SM", "count"),
    "warps": Metric("launch__occupancy_limit_warps", "Block Limit Warps", "count"),
    "barriers": Metric("launch__occupancy_limit_barriers", "Block Limit Barriers", "count"),
}


@dataclass(frozen=True)
class Advice:
    """What one of ncu's rules says."""

    rule: str
    kind: str  # OPT (could be faster), WRN or INF
    text: str
    speedup_percent: float | None  # ncu's estimate
    scope: str | None  # global: of the kernel's time; local: of the part that the rule looks at


@dataclass
class ProfiledKernel:
    """One launch. None stands for what the report does not hold."""

    id: int
    name: str
    grid: str
    block: str
    ranges: list[str]  # the NVTX ranges it was launched in, the outermost first
    metrics: dict[str, float | None]  # the keys of METRICS, in their units
    block_limits: dict[str, int]  # the keys of LIMITS -> blocks on an SM
    advice: list[Advice] = field(default_factory=list)

    @property
    def limited_by(self) -> list[str]:
        """What keeps more blocks off an SM: the smallest of the limits, several where they tie."""
        least = min(self.block_limits.values(), default=None)
        return [name for name, blocks in self.block_limits.items() if blocks == least]

    @property
    def tail_percent(self) -> float | None:
        """How much of all waves' room stays empty because the last one is not full."""
        waves = self.metrics["waves"]
        return None if waves is None else 100 * (1 - waves / max(math.ceil(waves), 1))


def read_pages(text: str) -> list[ProfiledKernel]:
    """The kernels of either page, in the order of their launches.

    Raises ValueError where the text is none of ncu's pages.
    """
    lines = [line for line in text.splitlines() if not line.startswith("==")]
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        raise ValueError("no header of an ncu CSV page (ncu --import FILE --page details --csv)")
    rows = list(csv.DictReader(lines[start:]))
    return read_details(rows) if "Metric Name" in (rows or [{}])[0] else read_raw(rows)


def read_details(rows: list[dict[str, str]]) -> list[ProfiledKernel]:
    kernels: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        kernels.setdefault(row["ID"], []).append(row)
    found = []
    for mine in kernels.values():
        values = [
            (row["Metric Name"], row["Metric Unit"], row["Metric Value"])
            for row in mine
            if row["Metric Name"] and row["Metric Value"]
        ]
        kernel = kernel_of(mine[0], values)
        kernel.advice = [advice_of(row) for row in mine if row.get("Rule Description")]
        found.append(kernel)
    return found


def read_raw(rows: list[dict[str, str]]) -> list[ProfiledKernel]:
    """The first row below the header holds the units."""
    if not rows:
        return []
    units = rows[0]
    return [
        kernel_of(row, [(name, units[name] or "", row[name] or "") for name in row if name])
        for row in rows[1:]
    ]


def kernel_of(row: dict[str, str], values: list[tuple[str, str, str]]) -> ProfiledKernel:
    limits = {name: measured(metric, values) for name, metric in LIMITS.items()}
    ranges = next((row[key] for key in row if key and key.startswith("thread Domain")), None)
    return ProfiledKernel(
        id=int(row["ID"]),
        name=row["Kernel Name"],
        grid=row["Grid Size"],
        block=row["Block Size"],
        ranges=RANGE.findall(ranges or ""),
        metrics={name: measured(metric, values) for name, metric in METRICS.items()},
        block_limits={name: int(limit) for name, limit in limits.items() if limit is not None},
    )


def measured(metric: Metric, values: list[tuple[str, str, str]]) -> float | None:
    """In the base unit. One label may stand for several metrics, which differ in their units."""
    for name, unit, value in values:
        if name not in (metric.name, metric.label):
            continue
        scale = 1 if metric.kind == "count" else UNITS[metric.kind].get(unit)
        if scale is not None:
            return None if (plain := number(value)) is None else plain * scale
    return None


def number(text: str) -> float | None:
    """1,234.5 as a number; None where ncu could not measure (n/a)."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def advice_of(row: dict[str, str]) -> Advice:
    return Advice(
        row["Rule Name"],
        row["Rule Type"],
        row["Rule Description"],
        number(row.get("Estimated Speedup") or ""),
        row.get("Estimated Speedup Type") or None,
    )
