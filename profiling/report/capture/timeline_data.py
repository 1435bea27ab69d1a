"""The events of a capture as a page's timeline reads them: compact columns, names in a table.

Called by profiling.report.capture.document; templates/timeline_data.js is the other side. A column
is a typed array in base64, in the narrowest type that holds it; starts are differences from the
start before, so that four bytes are enough: 12 bytes an event, 20 for an operation.
"""

from base64 import b64encode
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from cli.plain import without_controls
from profiling.analysis.columns import concatenate_columns
from profiling.analysis.gpu_time.step_events import LaunchFacts, Slices, StepEvents
from profiling.analysis.kernels.families import FAMILIES
from profiling.causes import CAUSES, part_named
from profiling.report.capture.kernel_sources import Links
from profiling.report.kernel_label import kernel_label
from profiling.report.text import shorten

TYPES = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "f64": "<f8"}  # Column.type -> numpy's
BITS = {"u8": 8, "u16": 16, "u32": 32}
HOST, CALL, WAIT, STEP, IDLE = "host", "call", "synchronization", "step", "idle"
MOST_LETTERS = 64  # of a label
CAUSES_OR_IDLE = (*CAUSES, IDLE)  # the last where nothing tells a cause
SHADES = tuple(dict.fromkeys((HOST, CALL, WAIT, STEP, *CAUSES_OR_IDLE, *FAMILIES)))


class Column(TypedDict):
    type: str  # of TYPES
    data: str  # base64, little-endian


class Row(TypedDict):
    kind: str  # host | call | phase | idle | stream
    label: str
    count: int  # of its events, which follow those of the row above


class Name(TypedDict):
    label: str
    whole: str  # empty where the label is all of it
    links: list[tuple[str, str]]  # (words, address) of its sources


class TimelineData(TypedDict):
    """Times in ns; those of events are differences, the first of a row from `origin`.

    `call`, `phase`, `operator` and `geometry` are of the operations alone, which come last; call,
    phase and operator begin at 1, and 0 is: not captured.
    """

    origin: int  # the first event's start, from the begin of the window on
    bounds: Column  # from one boundary of the steps to the next
    shown: Column  # 1: the step's events are here
    firstStep: int  # its number
    median: int  # which step, from 0
    slowest: int
    names: list[Name]
    shades: list[str]  # colours of style.css and profiling.causes
    called: dict[str, str]  # what a shade stands for, where that is not its name
    causes: dict[str, str]  # their meaning
    rows: list[Row]
    start: Column
    duration: Column
    name: Column
    shade: Column
    call: Column  # the how manieth of all calls in `rows`
    phase: Column  # name
    operator: Column  # name
    geometry: Column  # which of geometries
    geometries: list[list[int]]  # blocks, threads, registers, shared bytes, bytes; -1: none


@dataclass(frozen=True)
class DrawnRow:
    """A row of the timeline, its events by start."""

    kind: str
    label: str
    slices: Slices
    shade: np.ndarray  # of each event, index in SHADES
    rows: np.ndarray  # of each event, in the table that it comes from


def timeline_data(events: StepEvents, sources: Links) -> TimelineData:
    names = NameTable(events.names, sources)
    rows = drawn_rows(events)
    begin_ns, starts = int(events.bounds_ns[0]), [row.slices.start_ns for row in rows]
    origin_ns = min((int(start_ns[0]) for start_ns in starts), default=begin_ns)
    deltas = [np.diff(start_ns, prepend=origin_ns) for start_ns in starts]
    named = [names.of(row) for row in rows]
    order, launched = ordered(events, rows)
    geometries, geometry = distinct_geometries(launched)
    return {
        "origin": origin_ns - begin_ns,
        "bounds": packed(np.diff(events.bounds_ns)),
        "shown": packed(events.shown.astype(np.int64)),
        "firstStep": events.first_number,
        "median": events.median,
        "slowest": events.slowest,
        "shades": list(SHADES),
        "called": {},
        "causes": {cause: part_named(cause).meaning for cause in CAUSES_OR_IDLE},
        "rows": [{"kind": r.kind, "label": r.label, "count": len(r.shade)} for r in rows],
        "start": packed(concatenate_columns(deltas)),
        "duration": packed(
            concatenate_columns([row.slices.end_ns - row.slices.start_ns for row in rows])
        ),
        "name": packed(concatenate_columns(named)),
        "shade": packed(concatenate_columns([row.shade for row in rows])),
        "call": packed(np.where(launched.call >= 0, order[launched.call], -1) + 1),
        "phase": packed(names.index(launched.phase) + 1),
        "operator": packed(names.index(launched.operator) + 1),
        "geometry": packed(geometry),
        "geometries": geometries,
        "names": names.table(),
    }


def drawn_rows(events: StepEvents) -> list[DrawnRow]:
    """From above; empty ones are left out."""
    several = len(lanes(events.calls)) > 1
    calls = np.where(events.waits, SHADES.index(WAIT), SHADES.index(CALL))
    causes = np.array([SHADES.index(cause) for cause in CAUSES_OR_IDLE])  # index -1 is the last
    families = np.array([SHADES.index(family) for family in FAMILIES])
    host, step = (np.array([SHADES.index(name)]) for name in (HOST, STEP))
    return [
        *split("host", events.ranges, alike(host, events.ranges), "host phase", "inside"),
        *split("call", events.calls, calls, *call_labels(len(lanes(events.calls)), several)),
        *split("phase", events.projected, alike(step, events.projected), "GPU phase"),
        *split("idle", events.gaps, causes[events.gaps.name], "GPU idle"),
        *split("stream", events.operations, families[events.launched.family]),
    ]


def call_labels(threads: int, several: bool) -> list[str]:
    if not several:
        return ["CUDA calls"]
    return [f"calls, thread {number}" for number in range(1, threads + 1)]


def alike(shade: np.ndarray, slices: Slices) -> np.ndarray:
    return np.repeat(shade, len(slices.start_ns))


def lanes(slices: Slices) -> list[int]:
    return np.unique(slices.lane).tolist()


def split(kind: str, slices: Slices, shade: np.ndarray, *labels: str) -> list[DrawnRow]:
    """A row for each lane; the last of the labels is also that of the lanes behind it."""
    found = []
    for number, lane in enumerate(lanes(slices)):
        rows = np.flatnonzero(slices.lane == lane)
        label = labels[min(number, len(labels) - 1)] if labels else f"stream {lane}"
        found.append(DrawnRow(kind, label, slices.rows(rows), shade[rows], rows))
    return found


def ordered(events: StepEvents, rows: list[DrawnRow]) -> tuple[np.ndarray, LaunchFacts]:
    """(of each of events.calls its place in the rows, events.launched as the rows have it)."""
    calls = concatenate_columns([row.rows for row in rows if row.kind == "call"])
    place = np.zeros(max(len(calls), 1), np.int64)
    place[calls] = np.arange(len(calls))
    return place, events.launched.rows(
        concatenate_columns([r.rows for r in rows if r.kind == "stream"])
    )


def distinct_geometries(launched: LaunchFacts) -> tuple[list[list[int]], np.ndarray]:
    """(the distinct ones, which of them each operation has)."""
    columns = (
        *(launched.blocks, launched.threads, launched.registers),
        *(launched.shared_bytes, launched.bytes),
    )
    table = np.stack([column.astype(np.int64) for column in columns], axis=1)
    found, which = np.unique(table, axis=0, return_inverse=True)
    return found.tolist(), which.reshape(-1)


class NameTable:
    """The names that occur, each once; a capture holds many more."""

    def __init__(self, names: list[str], sources: Links) -> None:
        self.names, self.sources = names, sources
        self.place: dict[str, int] = {}
        self.kernels: set[str] = set()

    def of(self, row: DrawnRow) -> np.ndarray:
        """Of each of its events the place in the table."""
        if row.kind == "idle":
            places = [self.add(part_named(cause).meaning) for cause in CAUSES_OR_IDLE]
            return np.array(places)[row.slices.name]
        if row.kind == "stream":
            self.kernels |= {self.names[name] for name in np.unique(row.slices.name).tolist()}
        return self.index(row.slices.name)

    def index(self, name: np.ndarray) -> np.ndarray:
        """Places in the table of a column of indices in `names`; -1 stays."""
        found, which = np.unique(name, return_inverse=True)
        places = [self.add(self.names[each]) if each >= 0 else -1 for each in found.tolist()]
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


def packed(column: np.ndarray) -> Column:
    """In the narrowest type: two to the 32nd ns are 4.3 s, what is longer needs a float."""
    least, most = int(column.min(initial=0)), int(column.max(initial=0))
    fits = (name for name, bits in BITS.items() if least >= 0 and most < 2**bits)
    name = next(fits, "f64")
    data = column.astype(TYPES[name]).tobytes()
    return {"type": name, "data": b64encode(data).decode()}
