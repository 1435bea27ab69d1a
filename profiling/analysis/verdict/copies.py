"""Describe the copies that keep the GPU from computing: direction, memory, speed.

Copies within the GPU's memory, and memsets, are no traffic with the host: they count as kernels
that copy. Numbers that the host reads one by one count as synchronization, as the waits for them
do: none of them is large enough for a link to matter. Called by diagnosis.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from profiling.analysis.gpu_time.host_activity import NUMBERS_BYTES, TO_HOST
from profiling.analysis.records import Report, TypicalStep
from profiling.analysis.sum_records import CopySpeed
from profiling.shared.hardware import link_bytes_per_s
from profiling.shared.units import ROUNDING_MS
from profiling.timeline.trace import Device

DIRECTION = {"Host-to-Device": "to the GPU", "Device-to-Host": "to the host"}
WITHIN_GPU = re.compile(r"(Unified )?(Device|Array)-to-(Device|Array)")
PEER = "Peer-to-Peer"  # counts as communication
WORTH_TELLING = 0.1  # of the time in which only copies run


def within_gpu_ms(report: Report) -> float:
    """Milliseconds of the typical step in which only copies within the GPU, or memsets, run."""
    if report.typical is None:
        return 0.0
    rows = [row for row in report.copies or [] if row.direction != PEER]
    others = [row for row in rows if not WITHIN_GPU.fullmatch(row.direction)]
    return report.typical.parts_ms["copy"] - alone_ms(report, others)


def numbers_ms(report: Report) -> float:
    """Milliseconds of the typical step in which only numbers go to the host.

    0 where the causes of idle time are not known.
    """
    if report.idle is None:
        return 0.0
    home = [row for row in report.copies or [] if row.direction == TO_HOST]
    read = [row for row in home if row.bytes and row.bytes <= NUMBERS_BYTES * row.count]
    return alone_ms(report, read)


def alone_ms(report: Report, rows: list[CopySpeed]) -> float:
    """Milliseconds of the typical step in which only these copies run; `rows` have the mean's."""
    step, breakdown = report.typical, report.breakdown
    if step is None or breakdown is None or not breakdown.copy_ms:
        return 0.0
    of_mean = sum(row.exposed_ms for row in rows) / breakdown.copy_ms
    return step.parts_ms["copy"] * min(1.0, of_mean)


def as_kernels(report: Report) -> TypicalStep | None:
    """The typical step with copies within the GPU, and memsets, counted as kernels that copy."""
    step, ms = report.typical, within_gpu_ms(report)
    if step is None or ms < ROUNDING_MS:
        return step
    parts, families = step.parts_ms, step.family_ms
    parts = parts | {"compute": parts["compute"] + ms, "copy": parts["copy"] - ms}
    families = families | {"copy": families.get("copy", 0.0) + ms}
    return replace(step, parts_ms=parts, family_ms=families)


def sentences(copies: list[CopySpeed], gpu: Device | None, of_mean: float) -> Iterator[str]:
    """A line for each kind of copy that matters, in the order of `copies` (most exposed first).

    `of_mean` is the exposed time of a typical step as a share of that of the mean step. Copies
    within the GPU have none.
    """
    copies = [row for row in copies if not WITHIN_GPU.fullmatch(row.direction)]
    exposed_ms = sum(row.exposed_ms for row in copies)
    peak = link_bytes_per_s(gpu.name) if gpu else None
    for row in copies:
        if row.exposed_ms < WORTH_TELLING * exposed_ms:
            continue
        memory = f" ({row.memory} memory)" if row.memory else ""
        speed = ""
        if row.bytes is not None and row.gb_per_s is not None:
            speed = f", {row.bytes / 1e6:,.1f} MB in total, at {row.gb_per_s:.1f} GB/s"
        if row.link_percent is not None and peak:
            speed += f", {row.link_percent:.0f} % of the link's {peak / 1e9:.0f}"
        yield (
            f"{of_mean * row.exposed_ms:.2f} ms per step: {row.count} copies "
            f"{DIRECTION.get(row.direction, row.direction)}{memory}{speed}."
        )


def staging_sentence(idle_ms: float) -> str:
    """The line about idle time with the cause `staging`; `idle_ms` is of one step."""
    return (
        f"The GPU was idle for {idle_ms:.2f} ms per step while the host moved bytes from or to "
        "pageable memory through a buffer of the driver, or between copies that follow each other."
    )
