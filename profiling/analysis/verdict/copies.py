"""Describe the copies that keep the GPU from computing: direction, memory, speed.

Called by diagnosis.
"""

from collections.abc import Iterator

from profiling.analysis.sum_records import CopySpeed
from profiling.shared.hardware import link_bytes_per_s
from profiling.timeline.trace import Device

DIRECTION = {"Host-to-Device": "to the GPU", "Device-to-Host": "to the host"}
WORTH_TELLING = 0.1  # of the time in which only copies run


def sentences(copies: list[CopySpeed], gpu: Device | None, of_mean: float) -> Iterator[str]:
    """A line for each kind of copy that matters, in the order of `copies` (most exposed first).

    `of_mean` is the exposed time of a typical step as a share of that of the mean step.
    """
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
