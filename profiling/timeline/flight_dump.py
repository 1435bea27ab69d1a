"""Finds the dumps of PyTorch's flight recorder, one for each rank, and reads them as columns.

The format is that of c10d's FlightRecorder.hpp, versions 2.x (torch 2.6 to 2.13): a pickled dict.
The trainer's dumps have one such dict for each recorder, followed by a Note. They are read by
profiling.timeline.pickled_data, so that no code in a file is run.
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

from profiling.shared.run_files import DUMP, EARLIER, HOOK_FILES, Note, place
from profiling.timeline import pickled_data

MOST_BYTES = 64 * 2**20  # a buffer of 2000 collectives is 0.3 MB
NAME = re.compile(r"(.*?rank[-_]?)(\d+)")  # ours, and torch's own nccl_trace_rank_0
PICKLE = b"\x80"  # first byte of a pickle; a Note is JSON
OF_TORCH = re.compile(r"[/\\]torch[/\\]distributed[/\\]")  # frames that only pass a call on
Sizes = tuple[tuple[int, ...], ...]  # the shape of each tensor
Names = tuple[str, ...]


class Frame(msgspec.Struct, frozen=True):
    filename: str
    line: int
    name: str


class Entry(msgspec.Struct):
    """One collective call, as torch records it."""

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
    """The parts of a collective call that must be equal on all ranks of its group."""

    name: str  # all_reduce
    backend: str  # nccl, gloo
    input_sizes: Sizes
    output_sizes: Sizes
    dtypes: Names


@dataclass(frozen=True)
class GroupCalls:
    """The calls of one rank in one process group, one for each sequence number, in their order."""

    sequence: NDArray[np.int64]
    entered_ns: NDArray[np.int64]  # since 1970, by the rank's own clock
    timeout_ms: NDArray[np.int64]
    timed_out: NDArray[np.bool_]
    operation: list[Operation]
    stack: list[tuple[str, ...]]  # FILE:LINE in FUNCTION, the innermost first
    finished_to: int  # the last sequence number that is done; 0 without one

    @property
    def finished_at_ns(self) -> int | None:
        """Time at which the last finished call was entered, or None if none is recorded."""
        done = np.flatnonzero(self.sequence <= self.finished_to)
        return int(self.entered_ns[done[-1]]) if len(done) else None


@dataclass(frozen=True)
class Dump:
    """The dump of one rank; the keys of `groups` are (name, description)."""

    file: Path
    rank: int
    dumped_ns: int  # since 1970; the file's own time where the trainer left no note
    note: Note | None
    whole: bool  # nothing has fallen out of the recorder's ring buffer
    groups: dict[tuple[str, str], GroupCalls]
    members: dict[str, tuple[int, ...]]  # ranks of each group, by name, where torch knows them
    point_to_point: int  # number of sends and receives, which are left out


def find(places: Sequence[Path]) -> dict[int, Path]:
    """The dumps at `places` (run folders, other folders, files) by rank. Raises ValueError."""
    files = [file for place in places for file in files_in(place)]
    dumps: dict[int, Path] = {}
    for file in files:
        match = NAME.fullmatch(file.name)
        if not match:
            raise ValueError(
                f"{file}: the name does not say which rank this dump is from; it must end in "
                "rank and a number"
            )
        if (rank := int(match[2])) in dumps:
            raise ValueError(
                f"{file}, {dumps[rank]}: both are from rank {rank}; give the dumps of one run only"
            )
        dumps[rank] = file
    return dict(sorted(dumps.items()))


def files_in(place: Path) -> list[Path]:
    """The dumps in a folder, or `place` itself if it is a file. Raises ValueError without any."""
    if not place.exists():
        raise ValueError(f"{place}: no such file or folder; give the out_dir of a run, or dumps")
    if not place.is_dir():
        return [place]
    for name in (re.compile(rf"{DUMP}\d+"), re.compile(rf"{EARLIER}\d+"), NAME):
        for folder in (place / "profile", place):
            entries = folder.iterdir() if folder.is_dir() else ()
            named = [path for path in entries if name.fullmatch(path.name)]
            if files := [path for path in named if not re.fullmatch(HOOK_FILES, path.name)]:
                return files
    raise ValueError(
        f"{place}: no dump of a flight recorder ({DUMP}0, ...) in this folder or in its "
        "profile/; a run under torchrun writes dumps when a collective times out, or with --now"
    )


def read(path: Path, rank: int) -> Dump:
    """The dump at `path`. Raises ValueError naming the file."""
    if not path.is_file():  # opening a pipe would wait for its writer
        raise ValueError(f"{path}: is not a file")
    try:
        size, modified_ns = path.stat().st_size, path.stat().st_mtime_ns
        if size > MOST_BYTES:
            raise ValueError(
                f"{size / 1e6:,.0f} MB are too much for a dump; the limit is {MOST_BYTES / 1e6:.0f}"
            )
        data = path.read_bytes()
        contents, end = read_contents(data)
        note = msgspec.json.decode(data[end:], type=Note) if data[end:] else None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors
        raise ValueError(f"{path}: not a dump of a flight recorder: {error}") from None
    return dump_of(path, rank, modified_ns, contents, note)


def read_contents(data: bytes) -> tuple[list[Content], int]:
    """(the contents of each recorder, the offset at which they end). Raises ValueError."""
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
    for entry in calls:  # the last part of a coalesced call stands for all of it, and has its state
        by_group.setdefault(entry.process_group, {})[entry.collective_seq_id] = entry
    groups = {name: group_calls(entries, failed) for name, entries in by_group.items()}
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


def group_calls(by_sequence: dict[int, Entry], failed: Entry | None) -> GroupCalls:
    """The calls of one group. `failed` is the call that raised the rank's error."""
    entries = [entry for _, entry in sorted(by_sequence.items())]
    done = [is_finished(entry, failed) for entry in entries]
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
        # a group's collectives run one after the other, so all before a finished one are finished
        max((n for n, d in zip(sorted(by_sequence), done, strict=True) if d), default=0),
    )


def is_finished(entry: Entry, failed: Entry | None) -> bool:
    """Whether the call has finished.

    An entry of gloo stays "scheduled" and is retired when it ends, even by an error. The state of
    an entry of NCCL is what the GPU reports, whatever became of the host.
    """
    if entry.profiling_name.startswith("gloo:"):
        return entry.retired and entry is not failed
    return entry.state == "completed"


@cache  # a run has few kinds of calls, which share as few objects
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
