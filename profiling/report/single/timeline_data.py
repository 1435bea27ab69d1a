"""The events of a capture as a page's timeline reads them: compact columns, names in a table.

Called by profiling.report.single.document; templates/timeline_data.js decodes it. A column is a
typed array, packed, in the narrowest type that holds it. Starts are stored as differences from
the previous start, so that four bytes suffice: 12 bytes an event, 20 for an operation.
"""

from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from cli.plain import without_controls
from profiling.analysis.columns import concatenate_columns
from profiling.analysis.gpu_time.step_events import LaunchFacts, Slices, StepEvents
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.report.kernel_label import kernel_label
from profiling.report.packed import packed
from profiling.report.single.kernel_sources import Links
from profiling.report.text import shorten
from profiling.shared.causes import CAUSES, part_named

TYPES = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "f64": "<f8"}  # Column.type -> numpy's
BITS = {"u8": 8, "u16": 16, "u32": 32}
HOST, CALL, WAIT, STEP, IDLE = "host", "call", "synchronization", "step", "idle"
MOST_LETTERS = 64  # longest label
CAUSES_OR_IDLE = (*CAUSES, IDLE)  # the last one for idle time without a known cause
SHADES = tuple(dict.fromkeys((HOST, CALL, WAIT, STEP, *CAUSES_OR_IDLE, *FAMILIES)))


class Column(TypedDict):
    type: str  # key of TYPES
    data: str  # little-endian, as profiling.report.packed packs it


class Row(TypedDict):
    kind: str  # host | call | phase | idle | stream
    label: str
    count: int  # number of its events, which follow those of the row above


class Name(TypedDict):
    label: str
    whole: str  # empty where the label is all of it
    links: list[tuple[str, str]]  # (words, address) of the kernel's sources


class TimelineData(TypedDict):
    """The contents of the timeline. Times are in ns.

    An event's `start` is the difference from the start before it in its row; the first of a row is
    relative to `origin`. `call`, `phase`, `operator` and `geometry` have entries for the operations
    alone, which come last; call, phase and operator count from 1, and 0 means not captured.
    """

    origin: int  # the first event's start, since the begin of the window
    bounds: Column  # length of each step
    shown: Column  # 1 for a step whose events are included
    firstStep: int  # number of the first step
    median: int  # index of the median step
    slowest: int  # index of the slowest step
    names: list[Name]
    shades: list[str]  # colours of style.css and profiling.shared.causes
    called: dict[str, str]  # meaning of a shade, where that is not its name
    causes: dict[str, str]  # meaning of each cause of idle time
    rows: list[Row]
    start: Column
    duration: Column
    name: Column
    shade: Column
    call: Column  # number of the call among all calls in `rows`
    phase: Column  # number of the phase's name
    operator: Column  # number of the operator's name
    geometry: Column  # index in geometries
    geometries: list[list[int]]  # blocks, threads, registers, shared bytes, bytes; -1: none


@dataclass(frozen=True)
class DrawnRow:
    """A row of the timeline, with its events sorted by start."""

    kind: str
    label: str
    slices: Slices
    shade: np.ndarray  # index in SHADES of each event
    rows: np.ndarray  # row of each event in the table that it comes from


def timeline_data(events: StepEvents, sources: Links) -> TimelineData:
    names = NameTable(events.names, sources)
    rows = drawn_rows(events)
    begin_ns, starts = int(events.bounds_ns[0]), [row.slices.start_ns for row in rows]
    origin_ns = min((int(start_ns[0]) for start_ns in starts), default=begin_ns)
    deltas = [np.diff(start_ns, prepend=origin_ns) for start_ns in starts]
    name_columns = [names.indices_of(row) for row in rows]
    order, launched = in_row_order(events, rows)
    geometries, geometry = distinct_geometries(launched)
    return {
        "origin": origin_ns - begin_ns,
        "bounds": packed_column(np.diff(events.bounds_ns)),
        "shown": packed_column(events.shown.astype(np.int64)),
        "firstStep": events.first_number,
        "median": events.median,
        "slowest": events.slowest,
        "shades": list(SHADES),
        "called": {},
        "causes": {cause: part_named(cause).title for cause in CAUSES_OR_IDLE},
        "rows": [{"kind": r.kind, "label": r.label, "count": len(r.shade)} for r in rows],
        "start": packed_column(concatenate_columns(deltas)),
        "duration": packed_column(
            concatenate_columns([row.slices.end_ns - row.slices.start_ns for row in rows])
        ),
        "name": packed_column(concatenate_columns(name_columns)),
        "shade": packed_column(concatenate_columns([row.shade for row in rows])),
        "call": packed_column(np.where(launched.call >= 0, order[launched.call], -1) + 1),
        "phase": packed_column(names.index(launched.phase) + 1),
        "operator": packed_column(names.index(launched.operator) + 1),
        "geometry": packed_column(geometry),
        "geometries": geometries,
        "names": names.table(),
    }


def drawn_rows(events: StepEvents) -> list[DrawnRow]:
    """The rows of the timeline, from top to bottom; those without events are left out."""
    several = len(lanes(events.calls)) > 1
    calls = np.where(events.waits, SHADES.index(WAIT), SHADES.index(CALL))
    causes = np.array([SHADES.index(cause) for cause in CAUSES_OR_IDLE])  # index -1 is the last
    families = np.array([SHADES.index(family) for family in FAMILIES])
    host, step = (np.array([SHADES.index(name)]) for name in (HOST, STEP))
    return [
        *rows_by_lane(
            "host", events.ranges, one_shade(host, events.ranges), "host phase", "inside"
        ),
        *rows_by_lane("call", events.calls, calls, *call_labels(len(lanes(events.calls)), several)),
        *rows_by_lane("phase", events.projected, one_shade(step, events.projected), "GPU phase"),
        *rows_by_lane("idle", events.gaps, causes[events.gaps.name], "GPU idle"),
        *rows_by_lane("stream", events.operations, families[events.launched.family]),
    ]


def call_labels(threads: int, several: bool) -> list[str]:
    if not several:
        return ["CUDA calls"]
    return [f"calls, thread {number}" for number in range(1, threads + 1)]


def one_shade(shade: np.ndarray, slices: Slices) -> np.ndarray:
    return np.repeat(shade, len(slices.start_ns))


def lanes(slices: Slices) -> list[int]:
    numbers: list[int] = np.unique(slices.lane).tolist()
    return numbers


def rows_by_lane(kind: str, slices: Slices, shade: np.ndarray, *labels: str) -> list[DrawnRow]:
    """A row for each lane of the slices. Lanes beyond the last label have that label too."""
    rows_of_lanes = []
    for number, lane in enumerate(lanes(slices)):
        rows = np.flatnonzero(slices.lane == lane)
        label = labels[min(number, len(labels) - 1)] if labels else f"stream {lane}"
        rows_of_lanes.append(DrawnRow(kind, label, slices.rows(rows), shade[rows], rows))
    return rows_of_lanes


def in_row_order(events: StepEvents, rows: list[DrawnRow]) -> tuple[np.ndarray, LaunchFacts]:
    """(the place of each of events.calls in the rows, events.launched in the rows' order)."""
    calls = concatenate_columns([row.rows for row in rows if row.kind == "call"])
    place = np.zeros(max(len(calls), 1), np.int64)
    place[calls] = np.arange(len(calls))
    return place, events.launched.rows(
        concatenate_columns([r.rows for r in rows if r.kind == "stream"])
    )


def distinct_geometries(launched: LaunchFacts) -> tuple[list[list[int]], np.ndarray]:
    """(the distinct launch geometries, the index of each operation's among them)."""
    columns = (
        *(launched.blocks, launched.threads, launched.registers),
        *(launched.shared_bytes, launched.bytes),
    )
    table = np.stack([column.astype(np.int64) for column in columns], axis=1)
    distinct, which = np.unique(table, axis=0, return_inverse=True)
    return distinct.tolist(), which.reshape(-1)


class NameTable:
    """The page's table of names: those that occur, each once. A capture holds many more."""

    def __init__(self, names: list[str], sources: Links) -> None:
        self.names, self.sources = names, sources
        self.place: dict[str, int] = {}
        self.kernels: set[str] = set()

    def indices_of(self, row: DrawnRow) -> np.ndarray:
        """The place in the table of the name of each event in the row."""
        if row.kind == "idle":
            places = [self.add(part_named(cause).title) for cause in CAUSES_OR_IDLE]
            return np.take(np.array(places), row.slices.name)
        if row.kind == "stream":
            self.kernels |= {self.names[name] for name in np.unique(row.slices.name).tolist()}
        return self.index(row.slices.name)

    def index(self, name: np.ndarray) -> np.ndarray:
        """Places in the table for a column of indices in the capture's names; -1 stays -1."""
        distinct, which = np.unique(name, return_inverse=True)
        places = [self.add(self.names[each]) if each >= 0 else -1 for each in distinct.tolist()]
        return np.array(places, np.int64)[which.reshape(-1)]

    def add(self, name: str) -> int:
        return self.place.setdefault(name, len(self.place))

    def table(self) -> list[Name]:
        return [self.row(name) for name in self.place]

    def row(self, name: str) -> Name:
        label = kernel_label(name) if name in self.kernels else shorten(name, MOST_LETTERS)
        label, whole = without_controls(label), without_controls(name)
        links = self.sources.get(name, [])
        return {"label": label, "whole": whole if whole != label else "", "links": links}


def packed_column(column: np.ndarray) -> Column:
    """The column in its narrowest type; a time beyond 4.3 s, 2**32 ns, makes it float64."""
    least, most = int(column.min(initial=0)), int(column.max(initial=0))
    fits = (name for name, bits in BITS.items() if least >= 0 and most < 2**bits)
    name = next(fits, "f64")
    data = column.astype(TYPES[name]).tobytes()
    return {"type": name, "data": packed(data)}
