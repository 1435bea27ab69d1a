"""One GPU of a memory snapshot: what its history says, computed when it is first needed."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from profiling.analysis.memory import steps as finding
from profiling.analysis.memory.kinds import KINDS, Phases, kinds_of, phases_of
from profiling.analysis.memory.layout import SMALL_SEGMENT
from profiling.analysis.memory.memory_records import Allocation, Moment, Place, ToldBy
from profiling.analysis.memory.modules import OUTSIDE, named_modules
from profiling.analysis.memory.replay import Replay, replay
from profiling.analysis.memory.sentence import AUTOGRAD, NO_STACK
from profiling.analysis.memory.stacks import NAMES, Phase, Stacks, is_python, read_stacks
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

MOST_FRAMES = 12  # of an allocation in the report


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
