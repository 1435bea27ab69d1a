"""Dumps of PyTorch's flight recorder, one for each rank: found, read, as columns.

The format is that of c10d's FlightRecorder.hpp, versions 2.x (torch 2.6 to 2.13): a pickled dict,
behind which the trainer may have left a Note. It is read by profiling.timeline.pickled_data: no
code of a file is run.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from profiling.flight_recorder import DUMP, EARLIER, Note, place
from profiling.timeline import pickled_data

MOST_BYTES = 64 * 2**20  # a buffer of 2000 collectives is 0.3 MB
NAME = re.compile(r"(.*?rank[-_]?)(\d+)")  # ours, and torch's own nccl_trace_rank_0
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
    try:
        size, modified_ns = path.stat().st_size, path.stat().st_mtime_ns
        if size > MOST_BYTES:
            raise ValueError(
                f"{size / 1e6:,.0f} MB are no dump; the most is {MOST_BYTES / 1e6:.0f}"
            )
        data = path.read_bytes()
        value, end = pickled_data.read(data)
        content = msgspec.convert(value, Content)
        note = msgspec.json.decode(data[end:], type=Note) if data[end:] else None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors
        raise ValueError(f"{path}: no dump of a flight recorder: {error}") from None
    return dump_of(path, rank, modified_ns, content, note)


def dump_of(path: Path, rank: int, modified_ns: int, content: Content, note: Note | None) -> Dump:
    calls = sorted((e for e in content.entries if not e.is_p2p), key=lambda e: e.record_id)
    failed = calls[-1].record_id if calls and note and note.in_collective else None
    by_group: dict[tuple[str, str], dict[int, Entry]] = {}
    for entry in calls:  # of a coalesced call the last part stands for all, and has its state
        by_group.setdefault(entry.process_group, {})[entry.collective_seq_id] = entry
    groups = {name: columns(of_group, failed) for name, of_group in by_group.items()}
    members = {
        name: tuple(map(int, re.findall(r"\d+", group.ranks)))
        for name, group in content.pg_config.items()
    }
    last_ns = max((entry.time_created_ns for entry in calls), default=0)
    return Dump(
        path,
        rank,
        note.dumped_ns if note else max(modified_ns, last_ns),
        note,
        not content.entries or min(entry.record_id for entry in content.entries) == 0,
        groups,
        {name: ranks for name, ranks in members.items() if ranks},
        len(content.entries) - len(calls),
    )


def columns(by_sequence: dict[int, Entry], failed: int | None) -> GroupCalls:
    """Of one group. `failed`: the record that the rank's error came out of."""
    entries = [entry for _, entry in sorted(by_sequence.items())]
    done = [is_done(entry, failed) for entry in entries]
    late = [
        e.record_id == failed or (e.retired and not d) for e, d in zip(entries, done, strict=True)
    ]
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


def is_done(entry: Entry, failed: int | None) -> bool:
    """gloo's entries stay scheduled, and are retired when they end, by an error too."""
    if entry.record_id == failed:
        return False
    if entry.profiling_name.startswith("gloo:"):
        return entry.retired
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
