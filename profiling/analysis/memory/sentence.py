"""Says in one sentence where the memory goes."""

from profiling.analysis.memory.memory_records import MemoryReport, Place
from profiling.shared.units import binary_bytes, whole_percent

AUTOGRAD, NO_STACK = "threads of autograd", "before the history"  # in place of a line


def sentence(report: MemoryReport) -> str:
    if failed := report.out_of_memory:
        where = f" at {short(failed.place)}" if failed.place.line else ""
        begin = (
            f"Out of memory{where}: {binary_bytes(failed.asked_bytes)} were asked for with "
            f"{binary_bytes(report.at.allocated_bytes)} allocated"
        )
        return f"{begin}: {what(report)}"
    if report.peak is None:
        allocated = binary_bytes(report.at.allocated_bytes)
        return f"{allocated} allocated when the snapshot was written: {what(report)}"
    peak = f"Peak {binary_bytes(report.peak.allocated_bytes)}{when(report)}"
    if report.answer == "leak":
        leak = report.leaks[0]
        more = f" and {len(report.leaks) - 1} more" if len(report.leaks) > 1 else ""
        return (
            f"{short(leak.place)}{more} keeps {binary_bytes(leak.bytes_per_step)} more with each "
            f"step. {peak}: {what(report)}"
        )
    if report.answer == "fragmented":
        free, held = report.stranded_bytes, report.tightest.reserved_bytes
        share = f"{binary_bytes(free)} of {binary_bytes(held)} reserved"
        return (
            f"Fragmented: {share} lay free between blocks and did not fit. {peak}: {what(report)}"
        )
    return f"{peak}: {what(report)}"


def when(report: MemoryReport) -> str:
    peak = report.peak
    assert peak, "there is a history"
    phase = f" in {peak.phase}" if peak.phase else ""
    return f"{phase} of step {peak.step}" if peak.step is not None and phase else phase


def what(report: MemoryReport) -> str:
    """The kind with the most bytes, and the line with most of it."""
    if not report.kinds:
        return "nothing is allocated"
    first = report.kinds[0]
    name = "of unknown kind" if first.kind == "unknown" else first.kind
    words = f"{whole_percent(first.percent / 100)} {name}"
    placed = [row for row in report.lines if row.kind == first.kind and row.place.line]
    return f"{words}, most from {short(placed[0].place)}" if placed else words


def short(place: Place) -> str:
    """FILE:LINE without folders, and the function; or what stands for them."""
    if place.line is None:
        return place.function
    return f"{place.line.replace(chr(92), '/').rpartition('/')[2]} ({place.function})"
