"""Finds and reads memory snapshots of PyTorch (torch.cuda.memory._dump_snapshot) as columns.

The format is that of torch/csrc/cuda/memory_snapshot.cpp and Module.cpp, PyTorch 2.1 to 2.13. Data
alone is read, by snapshot_pickle, so that no code in a file is run.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from profiling.timeline import opening
from profiling.timeline.snapshot_pickle import Columns, Frame, Rows, SnapshotReader, Stack

ENDINGS = (".pickle", ".pkl")
PICKLE, ZIP = b"\x80", b"PK\x03\x04"
BEGIN = re.compile(rb"\x80.{,32}segments.*?(total_size|device_traces)", re.DOTALL)
BEGIN_BYTES = 4096
IN_FOLDERS = re.compile(r".+\.memory\.pickle|out-of-memory.*\.pickle")  # that this project writes
RANK = re.compile(r"rank[-_]?(\d+)")
RECORD = (
    "call torch.cuda.memory._record_memory_history() before the steps and "
    "torch.cuda.memory._dump_snapshot(FILE) behind them, or use python -m profiling run --kind "
    "memory -- COMMAND"
)
# the order of ACTIONS and of STATES is that of the columns' numbers
ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
)
STATES = ("active_allocated", "active_awaiting_free", "inactive")
ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, MAP, UNMAP, OOM, _ = range(9)
ALLOCATED, AWAITING, INACTIVE = range(3)
BLOCK_BYTES = 16  # less than a block takes in any pickle
MOST_BYTES = 1 << 50  # more than any memory has, and sums of it fit into 64 bits
OTHER = len(ACTIONS)  # an action that this reader does not know
Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]


class Annotation(msgspec.Struct, frozen=True):
    """One end of a range of torch.autograd.profiler.record_function."""

    stage: str  # START or END
    name: str
    device: int
    time_us: int


class Settings(msgspec.Struct):
    """Keys of PYTORCH_CUDA_ALLOC_CONF on which the size of a block depends."""

    max_split_size: int = -1
    roundup_power2_divisions: dict[int, int] = {}  # by MiB


@dataclass(frozen=True)
class Events:
    """Events of the allocator, in order."""

    action: NDArray[np.int8]  # of ACTIONS
    address: Ints
    size: Ints  # bytes as they were asked for
    time_us: Ints | None  # since 1970; None: PyTorch 2.1 writes no times
    stack: Int32s  # number of a stack, or -1
    free_bytes: dict[int, int]  # by event: what the GPU had left where memory ran out


@dataclass(frozen=True)
class Segments:
    """Memory that the allocator holds at the end, in pieces that lie in one."""

    address: Ints
    size: Ints
    stream: Ints
    expandable: NDArray[np.bool_]


@dataclass(frozen=True)
class Blocks:
    """Pieces of segments at the end, sorted by address."""

    address: Ints
    size: Ints
    requested: Ints
    state: Ints  # of STATES
    stack: Ints
    segment: Ints


@dataclass(frozen=True)
class DeviceHistory:
    """History and contents of one GPU."""

    device: int
    events: Events
    segments: Segments
    blocks: Blocks


@dataclass(frozen=True)
class Snapshot:
    """A snapshot, with those devices that hold memory or have a history."""

    file: Path
    devices: list[DeviceHistory]
    frames: list[Frame]  # (file, line, function)
    stacks: list[tuple[int, ...]]  # numbers of frames, the innermost first
    annotations: list[Annotation]
    settings: Settings


def is_snapshot(path: Path) -> bool:
    """Whether the file is a memory snapshot and no other pickle, by its name and first bytes."""
    if not path.name.endswith(ENDINGS):
        return False
    try:
        with open(path, "rb") as file:
            return bool(BEGIN.match(file.read(BEGIN_BYTES)))
    except OSError:
        return False


def may_be_snapshot(path: Path) -> bool:
    """Whether the file is a pickle, or is called as snapshots are."""
    if not path.is_file():
        return False
    if path.name.endswith(ENDINGS):
        return True
    try:
        with open(path, "rb") as file:
            return file.read(1) == PICKLE
    except OSError:  # its reader reports it
        return False


def in_folder(folder: Path) -> list[Path]:
    """The snapshots of a run in its folder or in its profile/, those of the newest window.

    They are one for each rank.
    """
    found = [
        path
        for place in (folder, folder / "profile")
        if place.is_dir()
        for path in place.iterdir()
        if IN_FOLDERS.fullmatch(path.name) and path.is_file()
    ]
    if not found:
        return []
    newest = max(found, key=lambda path: path.stat().st_mtime_ns)
    window = RANK.sub("rank", newest.name)
    alike = [path for path in found if RANK.sub("rank", path.name) == window]
    return sorted(alike, key=lambda path: rank_of(path) or 0)


def snapshots_at(places: Sequence[Path]) -> list[Path]:
    """The snapshots that were given, or lie in the folders; [] if any is something else.

    In a folder the newest file counts, whichever it is: a snapshot or a capture.
    """
    found: list[Path] = []
    for place in places:
        own = in_folder(place) if place.is_dir() else [place] if may_be_snapshot(place) else []
        if not own or (place.is_dir() and capture_is_newer(place, own[0])):
            return []
        found += own
    return found


def snapshots_alone(place: Path) -> list[Path]:
    """The snapshot, or those of a folder that has no capture; else []."""
    if not place.is_dir():
        return [place] if may_be_snapshot(place) else []
    return [] if newest_capture(place) else in_folder(place)


def refuse_mixed(places: Sequence[Path], snapshots: Sequence[list[Path]]) -> None:
    """Raise ValueError for the first place without a snapshot, if another is one.

    `snapshots` are those of each place.
    """
    others = [place for place, own in zip(places, snapshots, strict=True) if not own]
    if others and any(map(may_be_snapshot, places)):
        reason = "is no memory snapshot, but another is one"
        raise ValueError(
            f"{others[0]}: {reason if others[0].exists() else 'no such file or folder'}"
        )


def capture_is_newer(folder: Path, snapshot: Path) -> bool:
    newest = newest_capture(folder)
    return newest is not None and opening.modified_ns(newest) > opening.modified_ns(snapshot)


def newest_capture(folder: Path) -> Path | None:
    try:
        return opening.newest(folder)
    except ValueError:
        return None


def rank_of(path: Path) -> int | None:
    """The rank in a file's name, or None."""
    named = RANK.findall(path.name)
    return int(named[-1]) if named else None


def read(path: Path) -> Snapshot:
    """The snapshot at `path`. Raises ValueError with one line."""
    try:
        if not path.exists():
            raise ValueError(f"{path}: no such file or folder")
        if not path.is_file():
            raise ValueError(f"{path}: is not a file; give a memory snapshot")
        with open(path, "rb") as file:
            begin = file.read(4)
            if not begin.startswith(PICKLE):
                raise ValueError(f"{path}: is {looks_like(begin)}, not a memory snapshot; {RECORD}")
            with mmap(file.fileno(), 0, access=ACCESS_READ) as data:
                reader = SnapshotReader(data)
                value, columns = reader.read(), reader.columns
                del reader  # what the pickle might refer to is hundreds of MB of a large file
        return snapshot_of(path, value, columns)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (msgspec.ValidationError, Unlike, RecursionError) as error:
        raise ValueError(f"{path}: is a pickle, but no memory snapshot: {error}") from None
    except ValueError as error:
        if str(error).startswith(str(path)):
            raise
        raise ValueError(f"{path}: {pickle_fault(str(error))}") from None


class Unlike(ValueError):
    """Raised for a pickle of data that is no snapshot."""


def looks_like(begin: bytes) -> str:
    if not begin:
        return "empty"
    return "a checkpoint or another zip file" if begin.startswith(ZIP) else "not a pickle"


def pickle_fault(words: str) -> str:
    """Words for what is wrong with a pickle that could not be read to its end."""
    if "is not data" in words:
        return (
            f"is a pickle of Python objects, such as a checkpoint, not a memory snapshot ({words}; "
            f"nothing of it was run); {RECORD}"
        )
    return f"{words}: cut off, or not a memory snapshot; write it again"


def snapshot_of(path: Path, value: object, columns: Columns) -> Snapshot:
    if not isinstance(value, dict) or "segments" not in value:
        raise Unlike(f"it has no segments; {RECORD}")
    segments = value["segments"]
    traces = value.get("device_traces", [])
    if not isinstance(segments, list) or not isinstance(traces, list):
        raise Unlike("its segments or device_traces are no lists")
    by_device: dict[int, list[dict[object, object]]] = {}
    for segment in segments:
        if not isinstance(segment, dict):
            raise Unlike("a segment is no dict")
        by_device.setdefault(number(segment, "device", 0), []).append(segment)
    events = rows_by_device(traces, len(columns.action))
    present = sorted({*by_device, *events})
    known, most = action_numbers(columns), path.stat().st_size // BLOCK_BYTES
    devices = [
        DeviceHistory(
            device,
            events_of(columns, events.get(device, slice(0)), known),
            *segments_of(by_device.get(device, []), columns, most),
        )
        for device in present
    ]
    annotations = msgspec.convert(value.get("external_annotations", []), list[Annotation])
    settings = msgspec.convert(value.get("allocator_settings", {}), Settings, str_keys=True)
    return Snapshot(
        path, devices, list(columns.frames), list(columns.stacks), annotations, settings
    )


def rows_by_device(traces: list[object], left: int) -> dict[int, slice | Ints]:
    """The rows of each device's events in the columns, which have `left` of them."""
    rows: dict[int, slice | Ints] = {}
    for device, trace in enumerate(traces):
        if not isinstance(trace, list) or not all(isinstance(run, Rows) for run in trace):
            raise Unlike("a device's trace is no list of events")
        left -= sum(run.count for run in trace)
        if left < 0:  # lists that are referred to again and again
            raise Unlike("it has more events than its size allows")
        if trace:
            rows[device] = rows_of(trace)
    return rows


def rows_of(trace: list[Rows]) -> slice | Ints:
    """The rows of a device's events in the columns; mostly they follow each other."""
    first = [run.first for run in trace]
    behind = [run.first + run.count for run in trace]
    if first[1:] == behind[:-1]:
        return slice(first[0], behind[-1])
    return np.concatenate([np.arange(a, b) for a, b in zip(first, behind, strict=True)])


def action_numbers(columns: Columns) -> NDArray[np.int8]:
    """The number in ACTIONS of each action of the file."""
    named = [ACTIONS.index(name) if name in ACTIONS else OTHER for name in columns.actions]
    return np.array(named, np.int8)


def events_of(columns: Columns, rows: slice | Ints, known: NDArray[np.int8]) -> Events:
    """The events in these rows, views of the columns where they follow each other."""
    time_us = np.asarray(columns.time_us)[rows]
    number_of = np.arange(len(columns.action))[rows] if columns.free_bytes else np.zeros(0)
    failed = np.flatnonzero(np.isin(number_of, list(columns.free_bytes))).tolist()
    free = {event: columns.free_bytes[int(number_of[event])] for event in failed}
    action, size = np.asarray(columns.action)[rows], np.asarray(columns.size)[rows]
    action = known[action] if len(action) else action
    if np.any((action < OOM) & ((size < 0) | (size >= MOST_BYTES))):
        raise Unlike("an event has no possible size")
    return Events(
        action,
        np.asarray(columns.address)[rows],
        size,
        time_us if len(time_us) and time_us.min() > 0 else None,
        np.asarray(columns.stack)[rows],
        free,
    )


def segments_of(
    segments: Sequence[dict[object, object]], columns: Columns, most: int
) -> tuple[Segments, Blocks]:
    rows: list[tuple[int, int, int, int, int, int]] = []
    for index, segment in enumerate(segments):
        if len(rows) > most:  # lists that are referred to again and again
            raise Unlike("it has more blocks than its size allows")
        blocks = segment.get("blocks", [])
        if not isinstance(blocks, list):
            raise Unlike("the blocks of a segment are no list")
        at = number(segment, "address")
        for block in blocks:
            if not isinstance(block, dict) or block.get("state") not in STATES:
                raise Unlike("a block has no state")
            address = number(block, "address", at)  # PyTorch 2.1 has none
            size = number(block, "size")
            asked, stack = number(block, "requested_size", size), stack_of(block, columns)
            rows.append((address, size, asked, STATES.index(str(block["state"])), stack, index))
            at = address + size
    columns_of_blocks = np.array(rows, np.int64).reshape(-1, 6)
    ordered = columns_of_blocks[np.argsort(columns_of_blocks[:, 0], kind="stable")]
    return (
        Segments(
            np.array([number(segment, "address") for segment in segments], np.int64),
            np.array([number(segment, "total_size") for segment in segments], np.int64),
            np.array([number(segment, "stream", 0) for segment in segments], np.int64),
            np.array([segment.get("is_expandable") is True for segment in segments], np.bool_),
        ),
        Blocks(*ordered.T),
    )


def stack_of(block: dict[object, object], columns: Columns) -> int:
    """The number of the stack that allocated a block; -1 where none was recorded."""
    frames = block.get("frames")
    if not isinstance(frames, Stack) and not frames:
        return -1
    try:
        return columns.stack_of(frames)
    except ValueError:
        raise Unlike("a block's frames are no stack") from None


def number(values: dict[object, object], key: str, default: int | None = None) -> int:
    value, most = values.get(key, default), MOST_BYTES if key.endswith("size") else 1 << 63
    if not isinstance(value, int) or not 0 <= value < most:
        raise Unlike(f"{key} is {value!r:.40}, not a number of bytes")
    return value
