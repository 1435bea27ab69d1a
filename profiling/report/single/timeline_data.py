"""The events of a capture as a page's timeline reads them: compact columns, names in a table.

Called by profiling.report.single.document; templates/timeline_data.js decodes it. A column is a
typed array, packed, in the narrowest type that holds it. Starts are stored as differences from
the previous start, so that four bytes suffice: 12 bytes an event, 20 for an operation.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypedDict

import numpy as np

from cli.plain import without_controls
from profiling.analysis.columns import concatenate_columns
from profiling.analysis.gpu_time.step_events import (
    MOST_LEVELS,
    CounterCurve,
    LaunchFacts,
    Slices,
    StepEvents,
)
from profiling.analysis.gpu_work.families import FAMILIES
from profiling.report.kernel_label import kernel_label
from profiling.report.packed import packed
from profiling.report.single.kernel_sources import Links
from profiling.report.text import shorten
from profiling.shared.causes import CAUSES, part_named
from profiling.timeline.trace import ANY_THREAD

TYPES = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "f64": "<f8"}  # Column.type -> numpy's
BITS = {"u8": 8, "u16": 16, "u32": 32}
HOST, CALL, WAIT, STEP, IDLE = "host", "call", "wait", "step", "idle"
KINDS = (HOST, CALL, "phase", IDLE, "stream")  # of rows, in the order of the columns
# what PyTorch's emit_nvtx appends to an operator's name, another number for each call
CALL_IDS = re.compile(r"(, seq = \d+)?, op_id = \d+")
# counters that most readers look for; the others are folded
FIRST_COUNTERS = (r"SMs? Active", r"Tensor Active", r"DRAM Read", r"DRAM Write", r"Power")
UNIT = re.compile(r"(?: Bandwidth| Throughput)? \[(?:Throughput )?(.+)\]$")
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


class Group(TypedDict):
    """Rows that fold into one line."""

    label: str | None  # of a line above them; "": the first row stays; None: they never fold
    rows: list[int]  # indices in `rows`
    curves: list[int]  # indices in `curves`
    folded: bool  # at first


class Clock(TypedDict):
    """The intervals over which counters were sampled."""

    start: int  # of the first one
    length: Column


class Curve(TypedDict):
    """A counter, with a value for each interval of its clock."""

    label: str
    unit: str
    clock: int  # index in `clocks`
    value: Column
    scale: float  # times `value`
    most: float  # top of its row


class Name(TypedDict):
    label: str
    whole: str  # empty where the label is all of it
    links: list[tuple[str, str]]  # (words, address) of the kernel's sources


class TimelineData(TypedDict):
    """The contents of the timeline. Times are in ns.

    An event's `start` is the difference from the start before it in its row; the first of a row is
    relative to `origin`. `call`, `phase`, `operator`, `line` and `geometry` have entries for the
    operations alone, which come last; all but geometry count from 1, and 0 means not captured.
    """

    origin: int  # the first event's start, since the begin of the window
    bounds: Column  # length of each step
    shown: Column  # 1 for a step whose events are included
    ahead: Column  # 1 for a step that the host had left before the GPU began it
    firstStep: int  # number of the first step
    median: int  # index of the median step
    slowest: int  # index of the slowest step
    names: list[Name]
    shades: list[str]  # colours of style.css and profiling.shared.causes
    called: dict[str, str]  # meaning of a shade, where that is not its name
    causes: dict[str, str]  # meaning of each cause of idle time
    hatches: dict[str, str]  # hatch of each, as plotly names it
    rows: list[Row]
    groups: list[Group]  # from top to bottom
    clocks: list[Clock]
    curves: list[Curve]
    start: Column
    duration: Column
    name: Column
    shade: Column
    call: Column  # number of the call among all calls in `rows`
    phase: Column  # number of the phase's name
    operator: Column  # number of the operator's name
    line: Column  # number of the name of the program's line
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
    gpu: int = 0  # index of the process and GPU that it belongs to


def timeline_data(events: StepEvents, sources: Links) -> TimelineData:
    of_gpus = [events, *events.others]
    names = NameTable(events.names, sources)
    rows = [row for gpu, each in enumerate(of_gpus) for row in drawn_rows(each, gpu, of_gpus[:gpu])]
    rows.sort(key=lambda row: KINDS.index(row.kind))
    curves, clocks = drawn_curves(of_gpus)
    begin_ns, starts = int(events.bounds_ns[0]), [row.slices.start_ns for row in rows]
    origin_ns = min((int(start_ns[0]) for start_ns in starts), default=begin_ns)
    deltas = [np.diff(start_ns, prepend=origin_ns) for start_ns in starts]
    name_columns = [names.indices_of(row) for row in rows]
    calls, launched = in_row_order(of_gpus, rows)
    geometries, geometry = distinct_geometries(launched)
    return {
        "origin": origin_ns - begin_ns,
        "bounds": packed_column(np.diff(events.bounds_ns)),
        "shown": packed_column(events.shown.astype(np.int64)),
        "ahead": packed_column(events.ahead.astype(np.int64)),
        "firstStep": events.first_number,
        "median": events.median,
        "slowest": events.slowest,
        "shades": list(SHADES),
        "called": {},
        "causes": {cause: part_named(cause).title for cause in CAUSES_OR_IDLE},
        "hatches": {cause: part_named(cause).colours.hatch or "/" for cause in CAUSES_OR_IDLE},
        "rows": [{"kind": r.kind, "label": r.label, "count": len(r.shade)} for r in rows],
        "groups": groups_of(of_gpus, rows),
        "clocks": clocks,
        "curves": curves,
        "start": packed_column(concatenate_columns(deltas)),
        "duration": packed_column(
            concatenate_columns([row.slices.end_ns - row.slices.start_ns for row in rows])
        ),
        "name": packed_column(concatenate_columns(name_columns)),
        "shade": packed_column(concatenate_columns([row.shade for row in rows])),
        "call": packed_column(calls + 1),
        "phase": packed_column(names.index(launched.phase) + 1),
        "operator": packed_column(names.index(launched.operator) + 1),
        "line": packed_column(names.index(launched.line) + 1),
        "geometry": packed_column(geometry),
        "geometries": geometries,
        "names": names.table(),
    }


def drawn_rows(events: StepEvents, gpu: int, above: Sequence[StepEvents]) -> list[DrawnRow]:
    """The rows of a process and a GPU, from top to bottom; those without events are left out.

    A process that also used a GPU `above` has its rows of the host there.
    """
    several = len(lanes(events.calls)) > 1
    calls = np.where(events.waits, SHADES.index(WAIT), SHADES.index(CALL))
    causes = np.array([SHADES.index(cause) for cause in CAUSES_OR_IDLE])  # index -1 is the last
    families = np.array([SHADES.index(family) for family in FAMILIES])
    host, step = (np.array([SHADES.index(name)]) for name in (HOST, STEP))
    on_host = [
        *rows_by_lane(
            gpu, HOST, events.ranges, one_shade(host, events.ranges), *range_labels(events)
        ),
        *rows_by_lane(
            gpu, CALL, events.calls, calls, *call_labels(len(lanes(events.calls)), several)
        ),
    ]
    return [
        *(on_host if events.process not in {each.process for each in above} else []),
        *rows_by_lane(
            gpu, "phase", events.projected, one_shade(step, events.projected), "GPU phase"
        ),
        *rows_by_lane(gpu, IDLE, events.gaps, causes[events.gaps.name], "GPU idle"),
        *rows_by_lane(gpu, "stream", events.operations, families[events.launched.family]),
    ]


def range_labels(events: StepEvents) -> list[str]:
    """A label for each lane of ranges that is not empty."""
    labels, above = [], list[int]()
    for lane in lanes(events.ranges):
        thread = events.range_threads[lane]
        where = f", thread {thread + 1}" if thread > 0 else ", any thread" * (thread == ANY_THREAD)
        deeper = "deeper" if above.count(thread) == MOST_LEVELS - 1 else "inside"
        labels.append((deeper if thread in above else "ranges") + where)
        above.append(thread)
    return labels


def groups_of(of_gpus: list[StepEvents], rows: list[DrawnRow]) -> list[Group]:
    """A group for each GPU, and two for its counters: those most looked for, and the others."""
    groups: list[Group] = []
    first = 0
    for gpu, events in enumerate(of_gpus):
        name = f"GPU {events.device}, process {events.process}" if len(of_gpus) > 1 else None
        places = [place for place, row in enumerate(rows) if row.gpu == gpu]
        groups.append({"label": name, "rows": places, "curves": [], "folded": False})
        count = len(events.counters)
        many = sum(rank_of(curve) < len(FIRST_COUNTERS) for curve in events.counters)
        for title, begin, end in (("counters", 0, many), ("other counters", many, count)):
            label = f"GPU {events.device}, {title}" if len(of_gpus) > 1 else title
            curves = list(range(first + begin, first + end))
            if curves:
                folded = title != "counters"
                groups.append({"label": label, "rows": [], "curves": curves, "folded": folded})
        first += count
    return groups


def rank_of(curve: CounterCurve) -> int:
    """The counter's place among those that most readers look for, or behind all of them."""
    places = (i for i, name in enumerate(FIRST_COUNTERS) if re.search(name, curve.name, re.I))
    return next(places, len(FIRST_COUNTERS))


def drawn_curves(of_gpus: list[StepEvents]) -> tuple[list[Curve], list[Clock]]:
    """(the counters of each GPU in turn, the clocks that they share)."""
    curves: list[Curve] = []
    clocks: dict[bytes, int] = {}
    packed: list[Clock] = []
    begin_ns = int(of_gpus[0].bounds_ns[0])
    for counter in (c for events in of_gpus for c in sorted(events.counters, key=rank_of)):
        key = counter.end_ns.tobytes()
        if key not in clocks:
            clocks[key] = len(clocks)
            length = packed_column(np.diff(counter.end_ns, prepend=counter.start_ns))
            packed.append({"start": counter.start_ns - begin_ns, "length": length})
        unit = UNIT.search(counter.name)
        most = float(counter.value.max()) or 1.0
        percent = unit is not None and unit[1] == "%"
        whole = most < 256 and np.array_equal(counter.value, counter.value.astype(np.int64))
        scale = 1.0 if whole else most / (2**16 - 1)
        value = packed_column(np.rint(counter.value / scale).astype(np.int64))
        curves.append(
            {
                "label": without_controls(UNIT.sub("", counter.name)),
                "unit": without_controls(unit[1]) if unit else "",
                "clock": clocks[key],
                "value": value,
                "scale": scale,
                "most": max(most, 100.0) if percent else most,
            }
        )
    return curves, packed


def call_labels(threads: int, several: bool) -> list[str]:
    if not several:
        return ["CUDA calls"]
    return [f"calls, thread {number}" for number in range(1, threads + 1)]


def one_shade(shade: np.ndarray, slices: Slices) -> np.ndarray:
    return np.repeat(shade, len(slices.start_ns))


def lanes(slices: Slices) -> list[int]:
    numbers: list[int] = np.unique(slices.lane).tolist()
    return numbers


def rows_by_lane(
    gpu: int, kind: str, slices: Slices, shade: np.ndarray, *labels: str
) -> list[DrawnRow]:
    """A row for each lane of the slices. Without labels a row is named after its stream."""
    rows_of_lanes = []
    for number, lane in enumerate(lanes(slices)):
        rows = np.flatnonzero(slices.lane == lane)
        label = labels[number] if labels else f"stream {lane}"
        rows_of_lanes.append(DrawnRow(kind, label, slices.rows(rows), shade[rows], rows, gpu))
    return rows_of_lanes


def in_row_order(of_gpus: list[StepEvents], rows: list[DrawnRow]) -> tuple[np.ndarray, LaunchFacts]:
    """(number of the call among all rows of calls, or -1; the other facts), by operation.

    Both are in the order of the rows.
    """
    call_rows = [row for row in rows if row.kind == CALL]
    places: dict[int | None, np.ndarray] = {}  # process -> number of each of its calls
    for row, first in zip(call_rows, accumulate(map(len_of, call_rows), initial=0), strict=False):
        events = of_gpus[row.gpu]
        place = places.setdefault(events.process, np.full(len(events.calls.name), -1))
        place[row.rows] = np.arange(first, first + len_of(row))
    parts = [
        (of_gpus[row.gpu].process, of_gpus[row.gpu].launched.rows(row.rows))
        for row in rows
        if row.kind == "stream"
    ]
    calls = [
        np.where(part.call >= 0, places[process][part.call], -1)
        if process in places
        else np.full(len(part.call), -1)
        for process, part in parts
    ]
    return concatenate_columns(calls), LaunchFacts.joined([part for _, part in parts])


def len_of(row: DrawnRow) -> int:
    return len(row.rows)


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
        return self.index(row.slices.name, CALL_IDS if row.kind == HOST else None)

    def index(self, name: np.ndarray, without: re.Pattern[str] | None = None) -> np.ndarray:
        """Places in the table for a column of indices in the capture's names; -1 stays -1.

        Names lose what matches `without`.
        """
        distinct, which = np.unique(name, return_inverse=True)
        found = [self.names[each] if each >= 0 else None for each in distinct.tolist()]
        shown = [text and without.sub("", text) if without else text for text in found]
        places = [-1 if text is None else self.add(text) for text in shown]
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
