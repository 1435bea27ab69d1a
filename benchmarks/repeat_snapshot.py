"""Repeats the history of a memory snapshot until it is big, to measure how the reader takes it.

    python -m benchmarks repeat_snapshot snapshot=FILE out=FILE [megabytes=2000]

The result is laid out as `torch.cuda.memory._dump_snapshot` lays out its pickle, and times move on
with each repetition. Allocations that came before the history, or outlive it, are not repeated, so
that each repetition gives back what it takes.
"""

import pickle
import struct
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from benchmarks.measuring import Keys, key
from cli.files import replacement_for, resolve_link
from profiling.analysis.memory.replay import pair
from profiling.timeline.memory_snapshot import (
    ACTIONS,
    FREE_COMPLETED,
    DeviceHistory,
    Ints,
    Snapshot,
    read,
)

KEYS = ("action", "addr", "size", "stream", "time_us", "frames")
BATCH = 1000  # items that a pickle appends at once
MEMOIZE, REMEMBERED = b"\x94", 1  # the dict of the whole is value 0
EACH_US = 10


@dataclass
class RepeatConfig(Keys):
    snapshot: str = key("", "what to repeat", needed="a file", file=True)
    out: str = key("", "file to write", needed="a file")
    megabytes: int = key(2000, "at least so large", least=1)


def main(config: RepeatConfig) -> None:
    out = Path(config.out)
    snapshot = read(Path(config.snapshot))
    history = max(snapshot.devices, key=lambda device: len(device.events.action))
    with replacement_for(resolve_link(out)) as made, open(made, "wb") as file:
        count = write(file, snapshot, history, config.megabytes * 1_000_000)
    print(f"{out}: {count} events, {out.stat().st_size / 1e6:.0f} MB")


def repeated(history: DeviceHistory) -> Ints:
    """The events of those allocations that come and go within the history. Raises ValueError."""
    events, found = history.events, pair(history.events, history.blocks)
    within = (found.born >= 0) & (found.died < len(events.action))
    completed = found.died[within] + 1  # what follows at once, on a single stream
    completed = completed[completed < len(events.action)]
    same = events.address[completed] == events.address[completed - 1]
    completed = completed[same & (events.action[completed] == FREE_COMPLETED)]
    rows = np.unique(np.concatenate([found.born[within], found.died[within], completed]))
    if not len(rows):
        raise ValueError("snapshot: nothing in its history is allocated and freed")
    return rows


def write(file: BinaryIO, snapshot: Snapshot, history: DeviceHistory, least: int) -> int:
    """Write the pickle; return the number of its events.

    Names and frames come first, in a list that a reader passes over, and are then referred to.
    """
    names = [*KEYS, *ACTIONS]
    file.write(b"\x80\x04}" + MEMOIZE + b"(" + text("shared") + b"](")
    file.write(b"".join(text(name) + MEMOIZE for name in names))
    keys = ("filename", "line", "name")
    for frame in snapshot.frames:
        items = b"".join(text(k) + plain(v) for k, v in zip(keys, frame, strict=True))
        file.write(b"}" + MEMOIZE + b"(" + items + b"u")
    file.write(b"e" + text("segments") + plain([]) + text("device_traces") + b"](](")
    memo = REMEMBERED + len(names) + len(snapshot.frames)
    encoded = Encoder(names, snapshot, history)
    count, rows = 0, repeated(history).tolist()
    while file.tell() < least:
        for row in rows:
            event, memo = encoded.event(row, count, memo)
            file.write(event)
            count += 1
            if count % BATCH == 0:
                file.write(b"e(")
    file.write(b"eeu.")
    return count


class Encoder:
    """Writes events as references to names and frames that are in the file."""

    def __init__(self, names: list[str], snapshot: Snapshot, history: DeviceHistory) -> None:
        self.name = {name: reference(REMEMBERED + n) for n, name in enumerate(names)}
        first = REMEMBERED + len(names)
        self.stacks = [
            b"".join(reference(first + frame) for frame in stack) for stack in snapshot.stacks
        ]
        self.events = history.events
        self.freed: dict[int, tuple[int, int]] = {}  # address: (stack, value) of its free

    def event(self, row: int, count: int, memo: int) -> tuple[bytes, int]:
        """(the event, the number of the next value that is memoized).

        What completes a free has the list of frames of what requested it.
        """
        events, name = self.events, self.name
        address, stack = int(events.address[row]), int(events.stack[row])
        action = ACTIONS[events.action[row]]
        known = self.freed.get(address)
        memo += 1  # the event
        if action == "free_completed" and known and known[0] == stack:
            frames = reference(known[1])
        else:
            frames = b"]" + MEMOIZE + b"(" + self.stacks[stack] + b"e"
            self.freed[address] = stack, memo
            memo += 1
        us = struct.pack("<q", 1_700_000_000_000_000 + EACH_US * count)[:7]
        pairs = (
            (name["action"], name[action]),
            (name["addr"], plain(address)),
            (name["size"], plain(int(events.size[row]))),
            (name["stream"], plain(0)),
            (name["time_us"], b"\x8a\x07" + us),
            (name["frames"], frames),
        )
        return b"}" + MEMOIZE + b"(" + b"".join(chain(*pairs)) + b"u", memo


def reference(number: int) -> bytes:
    return b"h%c" % number if number < 256 else b"j" + struct.pack("<I", number)


def plain(value: object) -> bytes:
    """The instructions for a value that is not memoized."""
    if isinstance(value, str):
        return text(value)
    return pickle.dumps(value, 2)[2:-1].replace(b"q\x00", b"")


def text(value: str) -> bytes:
    written = value.encode()
    return b"X" + struct.pack("<I", len(written)) + written
