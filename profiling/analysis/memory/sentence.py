"""Says in one sentence where the memory goes."""

from profiling.analysis.memory.memory_records import MemoryReport, Place
from profiling.shared.units import binary_bytes, counted, whole_percent

AUTOGRAD, NO_STACK = "threads of autograd", "before the history"  # in place of a line


def sentence(report: MemoryReport) -> str:
    if failed := report.out_of_memory:
        where = f" at {short(failed.place)}" if failed.place.line else ""
        begin = (
            f"Out of memory{where}: {binary_bytes(failed.asked_bytes)} were asked for with "
            f"{binary_bytes(report.at.allocated_bytes)} allocated"
        )
        if failed.is_limited:
            begin += f" and {binary_bytes(failed.gpu_free_bytes)} left on the GPU"
        return f"{begin}: {largest_kind(report)}"
    if report.peak is None:
        allocated = binary_bytes(report.at.allocated_bytes)
        return f"{allocated} allocated when the snapshot was written: {largest_kind(report)}"
    peak = f"Peak {binary_bytes(report.peak.allocated_bytes)}{when(report)}"
    if report.answer == "leak":
        leak, *others = report.leaks
        more = ""
        if others:
            size = binary_bytes(sum(each.bytes_per_step for each in others))
            more = f", {counted(len(others), 'other line')} {size}"
        return (
            f"{short(leak.place)} keeps {binary_bytes(leak.bytes_per_step)} more with each step"
            f"{more}. {peak}: {largest_kind(report)}"
        )
    if report.answer == "fragmented":
        free, held = report.stranded_bytes, report.tightest.reserved_bytes
        share = f"{binary_bytes(free)} of {binary_bytes(held)} reserved"
        of = f" of {short(report.pinned[0].place)}" if report.pinned else ""
        return (
            f"Fragmented: {share} lay free in pieces too small for an allocation, between "
            f"blocks{of}. {peak}: {largest_kind(report)}"
        )
    return f"{peak}: {largest_kind(report)}"


def when(report: MemoryReport) -> str:
    peak = report.peak
    assert peak, "there is a history"
    phase = f" in {peak.phase}" if peak.phase else ""
    return f"{phase} of step {peak.step}" if peak.step is not None and phase else phase


def largest_kind(report: MemoryReport) -> str:
    """The kind with the most bytes, and the line with most of it, or else with most of all."""
    if not report.kinds:
        return "nothing is allocated"
    first = report.kinds[0]
    name = "of unknown kind" if first.kind == "unknown" else first.kind
    words = f"{whole_percent(first.percent / 100)} {name}"
    most, placed = report.lines[0], [row for row in report.lines if row.place.line]
    if placed and most.place.line is None and most.kind == first.kind:
        line, share = short(placed[0].place), whole_percent(placed[0].percent / 100)
        return f"{words}, most from {short(most.place)}; the line with most is {line}, {share}"
    alike = [row for row in placed if row.kind == first.kind]
    return f"{words}, most from {short(alike[0].place)}" if alike else words


def short(place: Place) -> str:
    """FILE:LINE without folders, and the function; or what stands for them."""
    if place.line is None:
        return place.function
    return f"{place.line.replace(chr(92), '/').rpartition('/')[2]} ({place.function})"
