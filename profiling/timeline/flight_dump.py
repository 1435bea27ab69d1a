"""Dumps of PyTorch's flight recorder, one for each rank: found, read, as columns.

The format is that of c10d's FlightRecorder.hpp, versions 2.x (torch 2.6 to 2.13): a pickled dict.
The trainer's dumps have one of each recorder, and a Note behind them. They are read by
profiling.timeline.pickled_data: no code of a file is run.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from profiling.flight_recorder import DUMP, EARLIER, Note, place
from profiling.timeline import pickled_data

MOST_BYTES = 64 * 2**20  # a buffer of 2000 collectives is 0.3 MB
NAME = re.compile(r"(.*?rank[-_]?)(\d+)")  # ours, and torch's own nccl_trace_rank_0
PICKLE = b"\x80"  # how one begins; a Note is JSON
OF_TORCH = re.compile(r"[/\\]torch[/\\]distributed[/\\]")  # frames that only pass a call on
Sizes = tuple[tuple[int, ...], ...]  # of each tensor
Names = tuple[str, ...]


class Frame(msgspec.Struct, frozen=True):
    filename: str
    line: int
    name: str


class Entry(msgspec.Struct):
    """One call, as torch wrote it."""

    record_id: int
    process_group: tuple[str, str]  # name, description
    collective_seq_id: int
    profiling_name: str  # backend:operation
    time_created_ns: int
    state: str  # scheduled, started, completed
    input_sizes: Sizes
    output_sizes: Sizes = ()
    input_dtypes: Names = ()
    output_dtypes: Names = ()
    retired: bool = False
    timeout_ms: int = 0
    is_p2p: bool = False
    frames: tuple[Frame, ...] = ()


class Group(msgspec.Struct):
    ranks: str = ""  # "[0, 1]"; gloo leaves it empty


class Content(msgspec.Struct):
    version: str
    entries: list[Entry] = []
    pg_config: dict[str, Group] = {}


@dataclass(frozen=True)
class Operation:
    """What has to be the same on all ranks of a group."""

    name: str  # all_reduce
    backend: str  # nccl, gloo
    input_sizes: Sizes
    output_sizes: Sizes
    dtypes: Names


@dataclass(frozen=True)
class GroupCalls:
    """Of one rank in one process group, by sequence number, each once."""

    sequence: NDArray[np.int64]
    entered_ns: NDArray[np.int64]  # since 1970, by the rank's own clock
    timeout_ms: NDArray[np.int64]
    timed_out: NDArray[np.bool_]
    operation: list[Operation]
    stack: list[tuple[str, ...]]  # FILE:LINE in FUNCTION, the innermost first
    finished_to: int  # the last sequence number that is done; 0: none is

    @property
    def finished_at_ns(self) -> int | None:
        """When the last that is done was entered; None: none is recorded."""
        done = np.flatnonzero(self.sequence <= self.finished_to)
        return int(self.entered_ns[done[-1]]) if len(done) else None


@dataclass(frozen=True)
class Dump:
    """Of one rank. `groups` by (name, description)."""

    file: Path
    rank: int
    dumped_ns: int  # the file's own time where the trainer left no note
    note: Note | None
    whole: bool  # nothing has fallen out of the recorder's ring
    groups: dict[tuple[str, str], GroupCalls]
    members: dict[str, tuple[int, ...]]  # of the groups, by name, where torch knows them
    point_to_point: int  # sends and receives, which are left out


def find(places: Sequence[Path]) -> dict[int, Path]:
    """The dumps by rank, in run folders, other folders, or files. Raises ValueError."""
    files = [file for place in places for file in files_in(place)]
    found: dict[int, Path] = {}
    for file in files:
        match = NAME.fullmatch(file.name)
        if not match:
            raise ValueError(f"{file}: whose is it? a dump's name ends in rank and a number")
        if (rank := int(match[2])) in found:
            raise ValueError(f"{file}, {found[rank]}: are both of rank {rank}; give one run's")
        found[rank] = file
    return dict(sorted(found.items()))


def files_in(place: Path) -> list[Path]:
    """Raises ValueError where there is none."""
    if not place.exists():
        raise ValueError(f"{place}: no such file or folder; give the out_dir of a run, or dumps")
    if not place.is_dir():
        return [place]
    for name in (re.compile(rf"{DUMP}\d+"), re.compile(rf"{EARLIER}\d+"), NAME):
        for folder in (place / "profile", place):
            listed = folder.iterdir() if folder.is_dir() else ()
            if files := [path for path in listed if name.fullmatch(path.name)]:
                return files
    raise ValueError(
        f"{place}: no dump of a flight recorder ({DUMP}0, ...) there or in profile/; a run under "
        "torchrun leaves them when a collective times out, or with --now"
    )


def read(path: Path, rank: int) -> Dump:
    """Raises ValueError naming the file."""
    if not path.is_file():  # who opens a pipe waits for its writer
        raise ValueError(f"{path}: is no file")
    try:
        size, modified_ns = path.stat().st_size, path.stat().st_mtime_ns
        if size > MOST_BYTES:
            raise ValueError(
                f"{size / 1e6:,.0f} MB are no dump; the most is {MOST_BYTES / 1e6:.0f}"
            )
        data = path.read_bytes()
        contents, end = read_contents(data)
        note = msgspec.json.decode(data[end:], type=Note) if data[end:] else None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors
        raise ValueError(f"{path}: no dump of a flight recorder: {error}") from None
    return dump_of(path, rank, modified_ns, contents, note)


def read_contents(data: bytes) -> tuple[list[Content], int]:
    """Of each recorder, and where they end. Raises ValueError."""
    contents: list[Content] = []
    end = 0
    while not contents or data.startswith(PICKLE, end):
        value, length = pickled_data.read(data[end:])
        contents.append(msgspec.convert(value, Content))
        end += length
    return contents, end


def dump_of(
    path: Path, rank: int, modified_ns: int, contents: list[Content], note: Note | None
) -> Dump:
    by_recorder = [sorted(content.entries, key=lambda e: e.record_id) for content in contents]
    entries = list(chain.from_iterable(by_recorder))
    calls = [entry for entry in entries if not entry.is_p2p]
    last = max(calls, key=lambda entry: entry.time_created_ns, default=None)
    failed = last if note and note.in_collective else None
    by_group: dict[tuple[str, str], dict[int, Entry]] = {}
    for entry in calls:  # of a coalesced call the last part stands for all, and has its state
        by_group.setdefault(entry.process_group, {})[entry.collective_seq_id] = entry
    groups = {name: columns(of_group, failed) for name, of_group in by_group.items()}
    members = {
        name: tuple(map(int, re.findall(r"\d+", group.ranks)))
        for content in contents
        for name, group in content.pg_config.items()
    }
    last_ns = last.time_created_ns if last else 0
    return Dump(
        path,
        rank,
        note.dumped_ns if note else max(modified_ns, last_ns),
        note,
        all(recorded[0].record_id == 0 for recorded in by_recorder if recorded),
        groups,
        {name: ranks for name, ranks in members.items() if ranks},
        len(entries) - len(calls),
    )


def columns(by_sequence: dict[int, Entry], failed: Entry | None) -> GroupCalls:
    """Of one group. `failed`: the call that the rank's error came out of."""
    entries = [entry for _, entry in sorted(by_sequence.items())]
    done = [is_done(entry, failed) for entry in entries]
    late = [not d and (e.retired or e is failed) for e, d in zip(entries, done, strict=True)]
    return GroupCalls(
        np.array([entry.collective_seq_id for entry in entries], np.int64),
        np.array([entry.time_created_ns for entry in entries], np.int64),
        np.array([entry.timeout_ms for entry in entries], np.int64),
        np.array(late, np.bool_),
        [
            operation(
                e.profiling_name, e.input_sizes, e.output_sizes, e.input_dtypes, e.output_dtypes
            )
            for e in entries
        ],
        [stack(entry.frames) for entry in entries],
        # a group's collectives run one behind the other: what is before one that is done, is done
        max((n for n, d in zip(sorted(by_sequence), done, strict=True) if d), default=0),
    )


def is_done(entry: Entry, failed: Entry | None) -> bool:
    """gloo's entries stay scheduled, and are retired when they end, by an error too. NCCL's are as
    the GPU says, whatever became of the host."""
    if entry.profiling_name.startswith("gloo:"):
        return entry.retired and entry is not failed
    return entry.state == "completed"


@cache  # a run has few kinds of calls, and as few objects stand for them
def operation(
    spelled: str, inputs: Sizes, outputs: Sizes, input_dtypes: Names, output_dtypes: Names
) -> Operation:
    backend, _, name = spelled.rpartition(":")
    return Operation(name, backend, inputs, outputs, (*input_dtypes, *output_dtypes))


@cache
def stack(frames: tuple[Frame, ...]) -> tuple[str, ...]:
    """The callers of torch.distributed, without the frames that only pass a call on."""
    callers = [frame for frame in frames if not OF_TORCH.search(frame.filename)]
    return tuple(place(frame.filename, frame.line, frame.name) for frame in callers)
