"""Makes the report on a memory snapshot."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.memory import steps as finding
from profiling.analysis.memory.device_memory import DeviceMemory, read_memory
from profiling.analysis.memory.kinds import KINDS, MOMENTS, WEIGHTS
from profiling.analysis.memory.layout import (
    frees_for,
    pinned,
    segments_at,
    stranded,
)
from profiling.analysis.memory.memory_records import (
    Allocation,
    Answer,
    Curve,
    DevicePeak,
    KindBytes,
    Leak,
    LineBytes,
    MemoryReport,
    ModuleBytes,
    OutOfMemory,
    PhaseBytes,
    Pinned,
    Place,
    Step,
    ToldBy,
)
from profiling.analysis.memory.replay import LEAST
from profiling.analysis.memory.sentence import sentence
from profiling.analysis.memory.stacks import NAMES
from profiling.shared.units import counted
from profiling.timeline import memory_snapshot
from profiling.timeline.memory_snapshot import Ints

MOST_LINES, MOST_LARGEST = 200, 40
MOST_POINTS = 4000
MOST_STEPS = 200  # in the report
# from here on it is the answer: free between blocks, and reserved beyond the peak of allocated
FRAGMENTED_PERCENT, FRAGMENTED_BYTES, BEYOND_PERCENT = 33.0, 64 << 20, 10.0
LEAK_BYTES, LEAK_PERCENT = 1 << 20, 0.1  # likewise, in all, and of the peak
IN_ONE_PIECE = (
    "the blocks lie next to each other, or next to free bytes, in one segment, so that one piece "
    "is free once they are"
)
BY_PAGES = "segments are expandable: free pages anywhere are mapped where they are needed"
SIZES_TELL = (
    "What was allocated before has no stack: its kind is told by sizes, a weight for each gradient "
    "and two moments for each weight."
)
NOTHING_TELLS = (
    "What was allocated before has no stack, so its kind and line are unknown; begin to record "
    "before the model is made."
)
NOTHING_FITS = "no three blocks of one segment are large enough; these are the largest"


def memory_report(paths: Sequence[Path], device: int | None = None) -> MemoryReport:
    """The report on the GPU with the highest peak, with a row for each other.

    Raises ValueError for files that cannot be read, and for a device that is in none.
    """
    return report_of_highest((memory for path in paths for memory in read_memory(path)), device)


def report_of_highest(memories: Iterable[DeviceMemory], device: int | None) -> MemoryReport:
    best: MemoryReport | None = None
    rows = []
    for memory in memories:
        report = report_on(memory)
        rows.append(row_of(report, memory.snapshot.file))
        chosen = device is None or memory.history.device == device
        if chosen and (best is None or height(report) > height(best)):
            best = report
    if best is None:
        have = ", ".join(sorted({str(row.device) for row in rows}))
        raise ValueError(f"--device {device}: the snapshot has {have}")
    return replace(best, devices=rows)


def height(report: MemoryReport) -> tuple[bool, int]:
    return report.out_of_memory is not None, report.at.allocated_bytes


def row_of(report: MemoryReport, path: Path) -> DevicePeak:
    peak = report.peak
    return DevicePeak(
        str(path),
        report.device,
        memory_snapshot.rank_of(path),
        peak.allocated_bytes if peak else None,
        int(max(report.curve.reserved_bytes)) if report.curve else None,
        peak.phase if peak else None,
        report.answer,
    )


def report_on(memory: DeviceMemory) -> MemoryReport:
    live = memory.replayed.allocations.live_at(memory.at)
    failed = out_of_memory(memory) if memory.ran_out is not None else None
    steps = steps_of(memory)
    at = memory.moment(memory.at)
    tightest = memory.moment(memory.tightest)
    leaks, held = leaks_of(memory), pinned_at(memory)
    free = stranded(memory.history, memory.replayed, memory.tightest)
    report = MemoryReport(
        file=str(memory.snapshot.file),
        device=memory.history.device,
        answer=answer_of(memory, free, leaks),
        sentence="",
        peak=memory.moment(memory.replayed.peak) if memory.count else None,
        reaches_back=memory.reaches_back,
        at=at,
        tightest=tightest,
        stranded_bytes=free,
        kinds=kinds(memory, live),
        lines=lines(memory, live),
        modules=modules(memory, live),
        largest=largest(memory, live),
        phases=phase_peaks(memory),
        steps=steps[-MOST_STEPS:],
        steps_from=memory.ends.told_by,
        leaks=leaks,
        pinned=held,
        out_of_memory=failed,
        curve=curve(memory) if memory.count else None,
        events=memory.count,
        notes=notes(memory),
        devices=[],
        fit=None,
    )
    return replace(report, sentence=sentence(report))


def answer_of(memory: DeviceMemory, stranded_bytes: int, leaks: list[Leak]) -> Answer:
    if not memory.count:
        return "state"
    if memory.ran_out is not None:
        return "out_of_memory"
    most = max(int(memory.replayed.allocated.max()), 1)
    kept = sum(leak.bytes_per_step * leak.steps for leak in leaks)
    if kept >= LEAK_BYTES and 100 * kept >= LEAK_PERCENT * most:
        return "leak"
    reserved = int(memory.replayed.reserved.max())
    much = max(FRAGMENTED_BYTES, FRAGMENTED_PERCENT / 100 * reserved)
    if stranded_bytes >= much and 100 * (reserved - most) >= BEYOND_PERCENT * reserved:
        return "fragmented"
    return "peak"


def kinds(memory: DeviceMemory, live: NDArray[np.bool_]) -> list[KindBytes]:
    size, kind = memory.replayed.allocations.size[live], memory.kind[live]
    total = max(int(size.sum()), 1)
    rows = []
    for number, name in enumerate(KINDS):
        own = size[kind == number]
        if len(own):
            held = int(own.sum())
            rows.append(KindBytes(name, held, len(own), 100 * held / total))
    return sorted(rows, key=lambda row: -row.bytes)


@dataclass(frozen=True)
class Held:
    """Live bytes of one line or one module."""

    number: int  # of it; -1: all others together, of which there are `others`
    kind: str
    bytes: int
    allocations: int
    percent: float
    others: int = 0


def held_by(memory: DeviceMemory, live: NDArray[np.bool_], which: Ints) -> list[Held]:
    """The live bytes of each number in `which`, the most first; they add up to all of them."""
    size, kind = memory.replayed.allocations.size[live], memory.kind[live]
    numbers, rows, counts = np.unique(which[live], return_inverse=True, return_counts=True)
    by_kind = np.zeros((len(numbers), len(KINDS)), np.int64)
    np.add.at(by_kind, (rows, kind), size)
    held = by_kind.sum(axis=1)
    total = max(int(held.sum()), 1)
    order = np.argsort(-held, kind="stable")

    def row(chosen: Ints, number: int, others: int = 0) -> Held:
        kinds, share = by_kind[chosen].sum(axis=0), int(held[chosen].sum())
        count = int(counts[chosen].sum())
        return Held(number, KINDS[int(kinds.argmax())], share, count, 100 * share / total, others)

    found = [row(order[n : n + 1], int(numbers[order[n]])) for n in range(len(order[:MOST_LINES]))]
    rest = order[MOST_LINES:]
    return [*found, row(rest, -1, len(rest))] if len(rest) else found


def lines(memory: DeviceMemory, live: NDArray[np.bool_]) -> list[LineBytes]:
    return [
        LineBytes(
            Place(None, counted(row.others, "other line"), False)
            if row.others
            else memory.place(row.number),
            row.kind,
            row.bytes,
            row.allocations,
            row.percent,
        )
        for row in held_by(memory, live, memory.line)
    ]


def modules(memory: DeviceMemory, live: NDArray[np.bool_]) -> list[ModuleBytes]:
    number, names = memory.modules
    rows = []
    for row in held_by(memory, live, number):
        others: tuple[str, ToldBy] = (counted(row.others, "other module"), "none")
        name, told_by = others if row.others else names[row.number]
        rows.append(ModuleBytes(name, told_by, row.kind, row.bytes, row.allocations, row.percent))
    return rows


def largest(memory: DeviceMemory, live: NDArray[np.bool_]) -> list[Allocation]:
    """The largest blocks; those of one size, kind and stack are one row."""
    rows, found = np.flatnonzero(live), memory.replayed.allocations
    alike = np.stack([found.size[rows], memory.kind[rows], found.stack[rows]])
    groups, first, counts = np.unique(alike, axis=1, return_index=True, return_counts=True)
    order = np.argsort(-groups[0], kind="stable")[:MOST_LARGEST]
    return [memory.allocation(int(rows[first[n]]), int(counts[n])) for n in order.tolist()]


def phase_peaks(memory: DeviceMemory) -> list[PhaseBytes]:
    phases, allocated = memory.phases, memory.replayed.allocated[1:]
    if not len(phases.first):
        return []
    highest = np.maximum.reduceat(allocated, phases.first)
    before = memory.replayed.allocated[phases.first]
    return [
        PhaseBytes(name, int(highest[own].max()), int((highest - before)[own].max()))
        for phase, name in NAMES.items()
        if (own := phases.phase == phase).any()
    ]


def steps_of(memory: DeviceMemory) -> list[Step]:
    ends, allocated = memory.ends.events, memory.replayed.allocated[1:]
    if not len(ends):
        return []
    begins = np.append(0, ends[:-1] + 1)
    highest = np.maximum.reduceat(allocated[: ends[-1] + 1], begins)
    time_us = memory.history.events.time_us
    return [
        Step(
            number,
            None if time_us is None else float(time_us[end] - time_us[0]) / 1e3,
            end,
            int(highest[number]),
            int(allocated[end]),
        )
        for number, end in enumerate(ends.tolist())
    ]


def leaks_of(memory: DeviceMemory) -> list[Leak]:
    ends = memory.ends.events[-finding.MOST_STEPS :]
    found, count = memory.replayed.allocations, len(memory.stacks.lines) + 2
    kept = finding.bytes_kept(found, memory.line, ends, count)
    if not len(ends):
        return []
    at_end = found.live_at(int(ends[-1]))
    return [
        Leak(
            memory.place(line),
            chief_kind(memory, at_end & (memory.line == line)),
            per_step,
            steps,
            int(kept[-1, line]),
        )
        for line, per_step, steps in finding.growing(kept)
    ]


def chief_kind(memory: DeviceMemory, rows: NDArray[np.bool_]) -> str:
    held = np.bincount(memory.kind[rows], memory.replayed.allocations.size[rows], len(KINDS))
    return KINDS[int(held.argmax())]


def pinned_at(memory: DeviceMemory) -> list[Pinned]:
    if memory.history.segments.expandable.any():
        return []
    segments = segments_at(memory.history, memory.replayed, memory.tightest)
    rows = pinned(segments, memory.line, memory.replayed.allocations.size)
    return [Pinned(memory.place(line), held, free, n) for line, held, free, n in rows]


def out_of_memory(memory: DeviceMemory) -> OutOfMemory:
    event = memory.at
    events, size = memory.history.events, memory.replayed.allocations.size
    asked = -(-int(events.size[event]) // LEAST) * LEAST
    segments = segments_at(memory.history, memory.replayed, event)
    free = events.free_bytes.get(event)
    if memory.history.segments.expandable.any():
        rows = np.flatnonzero(memory.replayed.allocations.live_at(event))
        rows = rows[np.argsort(-size[rows], kind="stable")][:3]
        room = memory.moment(event).inactive_bytes + (free or 0)
        needed = int(np.searchsorted(np.cumsum(size[rows]), asked - room)) + 1
        frees, enough, assumed = rows[:needed].tolist(), needed <= len(rows), BY_PAGES
    else:
        frees, enough = frees_for(asked, segments, memory.kind, size)
        assumed = IN_ONE_PIECE if enough else NOTHING_FITS
    line = int(memory.stacks.line[events.stack[event]])
    line = len(memory.stacks.lines) if line < 0 else line
    return OutOfMemory(
        int(events.size[event]),
        memory.place(line),
        free,
        max((int(segment.gaps.max()) for segment in segments), default=0),
        [memory.allocation(row) for row in frees],
        enough,
        assumed,
    )


def curve(memory: DeviceMemory) -> Curve:
    """The curve in at most MOST_POINTS points: of each piece its highest and its last."""
    allocated, reserved = memory.replayed.allocated[1:], memory.replayed.reserved[1:]
    count = len(allocated)
    if count <= MOST_POINTS:
        rows = np.arange(count)
    else:
        begins = np.linspace(0, count, MOST_POINTS // 2, endpoint=False).astype(np.int64)
        pieces = np.append(begins, count)
        highest = [
            a + int(allocated[a:b].argmax())
            for a, b in zip(pieces[:-1].tolist(), pieces[1:].tolist(), strict=True)
        ]
        rows = np.unique([*highest, *(pieces[1:] - 1).tolist(), memory.replayed.peak])
        rows = rows[rows >= 0]
    time_us = memory.history.events.time_us
    ms = None if time_us is None else ((time_us[rows] - time_us[0]) / 1e3).round(3).tolist()
    return Curve(ms, rows.tolist(), allocated[rows].tolist(), reserved[rows].tolist())


def notes(memory: DeviceMemory) -> list[str]:
    """Sentences on what the file does not tell, and what follows from that."""
    found = []
    replayed = memory.replayed
    if not memory.count:
        found.append(
            "No history was recorded: this is what lay there when the snapshot was written, and "
            f"the peak is not known. To know it, {memory_snapshot.RECORD}."
        )
    elif not replayed.reaches_back:
        found.append(
            "The history begins later than the program, when bytes were allocated already: the "
            "peak is that of what was recorded, at least."
        )
        old = (replayed.allocations.born < 0) & (replayed.allocations.stack < 0)
        if old.any():
            told = np.isin(memory.kind[old], (WEIGHTS, MOMENTS)).any()
            found.append(SIZES_TELL if told else NOTHING_TELLS)
    if memory.count and not memory.agrees:
        found.append(
            "The events and the blocks at the end do not agree, so some events are missing."
        )
    if memory.count and memory.ends.told_by is None:
        found.append("No steps were recognised, so whether something leaks is not known.")
    return found
