"""Makes the report on a memory snapshot."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from profiling.analysis.memory import steps as finding
from profiling.analysis.memory.kinds import KINDS, MOMENTS, WEIGHTS, Phases, kinds_of, phases_of
from profiling.analysis.memory.layout import (
    SMALL_SEGMENT,
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
    Moment,
    OutOfMemory,
    PhaseBytes,
    Pinned,
    Place,
    Step,
    ToldBy,
)
from profiling.analysis.memory.modules import OUTSIDE, named_modules
from profiling.analysis.memory.replay import LEAST, Replay, replay
from profiling.analysis.memory.sentence import AUTOGRAD, NO_STACK, sentence
from profiling.analysis.memory.stacks import NAMES, Phase, Stacks, is_python, read_stacks
from profiling.shared.units import counted
from profiling.timeline import memory_snapshot
from profiling.timeline.memory_snapshot import (
    ALLOCATED,
    MAP,
    OOM,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    UNMAP,
    DeviceHistory,
    Ints,
    Snapshot,
)

MOST_LINES, MOST_LARGEST, MOST_FRAMES = 200, 40, 12
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
NOTHING_FITS = "no three blocks of one segment would have made room; these are the largest"


@dataclass(frozen=True, eq=False)
class DeviceMemory:
    """Facts about one GPU of a snapshot; each is computed when it is first needed."""

    snapshot: Snapshot
    history: DeviceHistory
    stacks: Stacks

    @cached_property
    def replayed(self) -> Replay:
        return replay(self.history, self.snapshot.settings)

    @cached_property
    def agrees(self) -> bool:
        """Whether the events lead to the blocks at the end, and never to more than is reserved."""
        replayed, blocks = self.replayed, self.history.blocks
        final = int(blocks.size[blocks.state == ALLOCATED].sum())
        fits = bool((replayed.allocated <= replayed.reserved).all())
        return fits and final == int(replayed.allocated[-1])

    @property
    def count(self) -> int:
        return len(self.history.events.action)

    @property
    def reaches_back(self) -> bool:
        """Whether the history has the program's peak."""
        return self.count > 0 and self.replayed.reaches_back and self.agrees

    @cached_property
    def phases(self) -> Phases:
        return phases_of(self.history.events, self.stacks)

    @cached_property
    def kind(self) -> Ints:
        return kinds_of(self.replayed.allocations, self.stacks, self.phases, self.count)

    @cached_property
    def line(self) -> Ints:
        """Number of the line of each allocation. Two more than there are stand for none."""
        stack = self.replayed.allocations.stack
        line, count = self.stacks.line[stack], len(self.stacks.lines)
        return np.where(stack < 0, count + 1, np.where(line < 0, count, line))

    @cached_property
    def modules(self) -> tuple[Ints, list[tuple[str, ToldBy]]]:
        """(number of the module of each allocation, name of each and what told it)."""
        named = named_modules(self.stacks.modules, self.snapshot.file)
        without: list[tuple[str, ToldBy]] = [(n, "none") for n in (OUTSIDE, AUTOGRAD, NO_STACK)]
        names = {name: n for n, name in enumerate(dict.fromkeys([*named, *without]))}
        number_of = np.array([names[name] for name in [*named, without[0]]], np.int64)
        number, line = number_of[self.stacks.module[self.replayed.allocations.stack]], self.line
        count = len(self.stacks.lines)
        number = np.where(line == count, len(names) - 2, number)
        return np.where(line > count, len(names) - 1, number), list(names)

    @cached_property
    def ends(self) -> finding.StepEnds:
        events, marks = self.history.events, self.snapshot.annotations
        return finding.step_ends(events, marks, self.history.device, self.phases)

    @cached_property
    def ran_out(self) -> int | None:
        """The event of the last allocation that failed."""
        failed = np.flatnonzero(self.history.events.action == OOM)
        return int(failed[-1]) if len(failed) else None

    @property
    def at(self) -> int:
        """The event that the tables are about."""
        return self.replayed.peak if self.ran_out is None else self.ran_out

    @cached_property
    def tightest(self) -> int:
        """The event after which the allocator holds most large segments: what was free did not do.

        It is `at` if all were held before the history.
        """
        events = self.history.events
        size = np.where(events.size > SMALL_SEGMENT, events.size, 0)
        taken = np.isin(events.action, (SEGMENT_ALLOC, MAP)) * size
        held: Ints = np.cumsum(taken - np.isin(events.action, (SEGMENT_FREE, UNMAP)) * size)
        most = int(np.argmax(held)) if len(held) else -1
        if most < 0 or held[most] <= 0:
            return self.at
        return min(most + 1, self.count - 1)  # the allocation for which it was taken

    def moment(self, event: int) -> Moment:
        allocated = int(self.replayed.allocated[event + 1])
        reserved = int(self.replayed.reserved[event + 1])
        ends, time_us = self.ends.events, self.history.events.time_us
        step = int(np.searchsorted(ends, event)) if len(ends) else None
        ms = None if time_us is None else float(time_us[max(event, 0)] - time_us[0]) / 1e3
        return Moment(
            event if self.count else None,
            ms,
            self.phase_at(event),
            step,
            allocated,
            reserved,
            max(reserved - allocated, 0),
        )

    def phase_at(self, event: int) -> str | None:
        (run,) = self.phases.at(np.array([event]))
        return NAMES.get(Phase(int(self.phases.phase[run]))) if run >= 0 else None

    def place(self, line: int) -> Place:
        if (above := line - len(self.stacks.lines)) >= 0:
            return Place(None, NO_STACK if above else AUTOGRAD, False)
        file, number, function, own = self.stacks.lines[line]
        return Place(f"{file}:{number}", function, own)

    def allocation(self, row: int, blocks: int = 1) -> Allocation:
        found = self.replayed.allocations
        stack = int(found.stack[row])
        numbers = self.snapshot.stacks[stack] if stack >= 0 else ()
        frames = [self.snapshot.frames[n] for n in numbers]
        texts = [f"{f[0]}:{f[1]} in {f[2]}" for f in frames if is_python(f)]
        place, kind = self.place(int(self.line[row])), KINDS[self.kind[row]]
        return Allocation(blocks, int(found.size[row]), kind, place, texts[:MOST_FRAMES])


def read_memory(path: Path) -> list[DeviceMemory]:
    """The GPUs of a snapshot. Raises ValueError with one line, also if it tells nothing."""
    snapshot = memory_snapshot.read(path)
    stacks = read_stacks(snapshot)
    devices = [DeviceMemory(snapshot, history, stacks) for history in snapshot.devices]
    telling = [
        device for device in devices if device.count or (device.history.blocks.stack >= 0).any()
    ]
    if not telling:
        raise ValueError(
            f"{path}: no history was recorded, so it only says what is held at its end; "
            f"{memory_snapshot.RECORD}"
        )
    return telling


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
    at_end = found.died == memory.count
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
            "the peak is not known."
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
