"""Python stacks of CUDA calls in an nsys export. Called by nsys_sqlite.

With --cudabacktrace nsys writes each launch twice, once more as an event of its own class; here it
counts once, for `nsys stats` twice. With --python-backtrace=cuda a mark of NVTX begins with that
event, in a domain of nsys. Its payload has the frames, the innermost first: function, file and the
line that ran. The table CUDA_CALLCHAINS has frames of C alone. Payloads are in an export only with
--include-blobs=true.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from html import unescape
from itertools import count
from struct import Struct, error

import numpy as np

from profiling.timeline.nsys_export import NVTX, PROCESS_BITS, Export
from profiling.timeline.personal import source_name
from profiling.timeline.reading import first_matching, rows_of
from profiling.timeline.sqlite_columns import connect
from profiling.timeline.trace import CallStacks, Columns

CHAINS = "CUDA_CALLCHAINS"
BACKTRACE = 67  # CUPTI_ACTIVITY_KIND_RUNTIME.eventClass
MARK = 34  # NVTX_EVENTS.eventType
SCHEMAS, ENTRIES = "NVTX_PAYLOAD_SCHEMAS", "NVTX_PAYLOAD_SCHEMA_ENTRIES"
SCHEMA, PARTS = "Python Backtrace on CUDA", ("Function", "File", "Line")
# a payload begins with four numbers: its domain, its schema, its size, and where it is
LONG, INT = Struct("<Q"), Struct("<i")
SCHEMA_AT, HEADER_BYTES = LONG.size, 4 * LONG.size
MOST_BYTES = 1 << 16  # in front of a frame, and of one
NOT_EXPORTED = (
    "Python stacks were recorded, but are not in this export: nsys export --type sqlite "
    "--include-blobs=true REPORT writes them, too"
)
UNKNOWN = "Python stacks were recorded, but how they are written is not known"
OF_NO_CALL = "Python stacks were recorded, but none belongs to a call in this capture"


@dataclass(frozen=True)
class Layout:
    """Places of the frames in a payload, in bytes."""

    count_at: int
    frames_at: int
    frame_bytes: int
    function_at: int  # in a frame: a number in StringIds
    file_at: int  # likewise
    line_at: int


def has_backtraces(export: Export) -> bool:
    return CHAINS in export.tables or bool(schemas_of(export))


def schemas_of(export: Export) -> list[int]:
    """The numbers that Python's backtraces have, each process its own."""
    rows = export.rows(SCHEMAS, "schemaId", "name")
    return [schema for schema, name in rows if name == SCHEMA and isinstance(schema, int)]


def split_backtraces(calls: Columns | None) -> tuple[Columns | None, Columns | None]:
    """(the calls, their backtraces' events); the second is None without any."""
    if calls is None or "class" not in calls:
        return calls, None
    is_backtrace = calls["class"] == BACKTRACE
    return rows_of(calls, ~is_backtrace), rows_of(calls, is_backtrace)


def call_stacks(
    export: Export, calls: Columns | None, backtraces: Columns | None
) -> CallStacks | None:
    """The stacks of the calls, in their order; None where there are none."""
    if calls is None or backtraces is None or not schemas_of(export):
        return None
    start_ns, thread, number, payloads = marks(export)
    if not len(start_ns):
        return None
    layouts = layouts_of(export)
    tables = [frames_of(export, payload, layouts) for payload in payloads]
    if not any(tables):
        export.warnings.append(UNKNOWN if any(payloads) else NOT_EXPORTED)
        return None
    event = row_at(start_ns, thread, backtraces["start_ns"], backtraces["thread"])
    known = np.flatnonzero(event >= 0)
    thread, number_of_call = (backtraces[name][event[known]] for name in ("thread", "id"))
    call = first_matching(
        thread >> PROCESS_BITS, number_of_call, calls["thread"] >> PROCESS_BITS, calls["id"]
    )
    of_call = np.full(len(calls["id"]), -1)
    of_call[call[call >= 0]] = number[known[call >= 0]]
    if (of_call < 0).all():
        export.warnings.append(OF_NO_CALL)
        return None
    stack = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    names = export.names.numbers_of(name for table in tables for name in table)
    return CallStacks(of_call, stack, names)


def marks(export: Export) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[bytes]]:
    """(start, thread, number of the payload of each mark without a text, the distinct payloads)."""
    present = export.tables.get(NVTX, set())
    payload = "binaryData" if "binaryData" in present else "NULL"
    wanted = {"start", "globalTid", "eventType", "text", "textId"}
    if not wanted <= present:
        return (*np.empty((3, 0), np.int64), [])
    query = (
        f"SELECT start, globalTid, {payload} FROM {NVTX} WHERE eventType = {MARK} "
        "AND text IS NULL AND textId IS NULL ORDER BY rowid"
    )
    numbers: dict[object, int] = defaultdict(count().__next__)
    with connect(export.path) as database:
        rows = [
            (start, thread, numbers[blob])
            for start, thread, blob in database.execute(query)
            if isinstance(start, int) and isinstance(thread, int)
        ]
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    payloads = [blob if isinstance(blob, bytes) else b"" for blob in numbers]
    return columns[0], columns[1], columns[2], payloads


def layouts_of(export: Export) -> dict[int, Layout]:
    """The layout of Python's backtraces by the number of its schema, which processes give it."""
    sizes = {schema: size for schema, size in export.rows(SCHEMAS, "schemaId", "payloadSize")}
    rows = export.rows(ENTRIES, "schemaId", "name", "type", "offset")
    entries = {(schema, name): (kind, offset or 0) for schema, name, kind, offset in rows}
    found = {}
    for schema in schemas_of(export):
        inner, frames_at = entries.get((schema, "Frames"), (None, None))
        places = [entries.get((schema, "Frames count"), (None, None))[1], frames_at]
        places += [sizes.get(inner)]
        places += [entries.get((inner, name), (None, None))[1] for name in PARTS]
        numbers = [place for place in places if isinstance(place, int) and 0 <= place < MOST_BYTES]
        if len(numbers) == len(places) and sizes[inner]:
            found[schema] = Layout(*numbers)
    return found


def frames_of(export: Export, payload: bytes, layouts: dict[int, Layout]) -> list[str]:
    """The frames in a payload, as Kineto spells them: FILE(LINE): FUNCTION; [] for another one."""
    found: list[str] = []
    try:
        layout = layouts.get(LONG.unpack_from(payload, SCHEMA_AT)[0])
        if layout is None:
            return found
        (frames,) = INT.unpack_from(payload, HEADER_BYTES + layout.count_at)
        for number in range(frames):
            at = HEADER_BYTES + layout.frames_at + number * layout.frame_bytes
            (function,) = LONG.unpack_from(payload, at + layout.function_at)
            (file,) = LONG.unpack_from(payload, at + layout.file_at)
            (line,) = INT.unpack_from(payload, at + layout.line_at)
            name = source_name(text(export, file), export.working_folder)
            found.append(f"{name}({line}): {text(export, function)}")
    except error:  # it is shorter than it says
        return []
    return found


def numbers_alone(payload: object, layouts: dict[int, Layout]) -> bytes | None:
    """The payload of a stack with zeros between its numbers; None for another one.

    What nsys leaves there was in the program's memory before.
    """
    if not isinstance(payload, bytes):
        return None
    try:
        layout = layouts.get(LONG.unpack_from(payload, SCHEMA_AT)[0])
        if layout is None:
            return None
        (frames,) = INT.unpack_from(payload, HEADER_BYTES + layout.count_at)
    except error:
        return None
    size = HEADER_BYTES + layout.frames_at + frames * layout.frame_bytes
    if frames < 0 or size > len(payload):
        return None
    content = np.frombuffer(payload[:size], np.uint8)
    return bytes(content & ones_in(layout, frames, size))


@cache
def ones_in(layout: Layout, frames: int, size: int) -> np.ndarray:
    """Bytes of ones where a payload with so many frames has its numbers."""
    mask = np.zeros(size, np.uint8)
    places = [(0, HEADER_BYTES), (HEADER_BYTES + layout.count_at, INT.size)]
    parts = [(layout.function_at, LONG.size), (layout.file_at, LONG.size)]
    parts.append((layout.line_at, INT.size))
    first = HEADER_BYTES + layout.frames_at
    starts = range(first, size, layout.frame_bytes)
    places += [(start + at, length) for start in starts for at, length in parts]
    for at, length in places:
        mask[at : at + length] = 0xFF
    return mask


def text(export: Export, key: int) -> str:
    return unescape(export.string(key))  # nsys writes <module> as HTML


def row_at(
    start_ns: np.ndarray, thread: np.ndarray, of_start_ns: np.ndarray, of_thread: np.ndarray
) -> np.ndarray:
    """The row that begins at each time on its thread, or -1."""
    row = np.full(len(start_ns), -1)
    for number in np.unique(thread).tolist():
        mine, others = np.flatnonzero(thread == number), np.flatnonzero(of_thread == number)
        if len(others):
            order = others[np.argsort(of_start_ns[others], kind="stable")]
            at = np.searchsorted(of_start_ns[order], start_ns[mine])
            near = order[np.minimum(at, len(order) - 1)]
            row[mine] = np.where(of_start_ns[near] == start_ns[mine], near, -1)
    return row
