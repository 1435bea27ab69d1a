"""Some steps of all ranks on one clock, as a page's timeline reads them. Called by document.

Each rank has two rows: one with what its GPU computes and copies, one with its collectives, split
into wait and transfer. As in a capture's timeline, single.timeline_data packs the columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cli.plain import without_controls
from profiling.analysis.columns import concatenate_columns
from profiling.analysis.gpu_time.step_events import chosen_steps, shown_steps
from profiling.analysis.ranks.rank_records import RankRow
from profiling.analysis.ranks.summary import RanksAnalysis
from profiling.report.packed import unpacked
from profiling.report.single.timeline_data import WAIT, TimelineData, packed_column
from profiling.timeline.reading import Names

TRANSFER = "communication"  # name of a colour


@dataclass(frozen=True)
class Row:
    label: str
    start_ns: np.ndarray
    end_ns: np.ndarray
    name: np.ndarray  # indices in the page's table of names
    shade: np.ndarray  # indices in SHADES


SHADES = ("compute", "copy", WAIT, TRANSFER)


def timeline_of(analysis: RanksAnalysis, steps: tuple[int, int] | None = None) -> TimelineData:
    """The timeline of the steps that all ranks have, as many as a page has room for.

    `steps` are the numbers of the first and last to show instead. Raises ValueError for steps that
    not all ranks have, and for several with too many events.
    """
    first = analysis.ranks[0]
    chosen = np.flatnonzero(analysis.costs.steps_of(first))
    bounds_ns = np.append(first.bounds_ns[chosen], first.bounds_ns[chosen[-1] + 1])
    names, length = Names(), np.diff(bounds_ns)
    numbers = shown_ranks(analysis.report.ranks)
    rows = [row for number in numbers for row in rows_of(analysis, number, names)]
    median = int(np.argmin(np.abs(length - np.median(length))))
    slowest = int(np.argmax(length))
    counts = sum((np.histogram(row.start_ns, bounds_ns)[0] for row in rows), np.zeros(len(length)))
    first_number = int(analysis.costs.iterations[0])
    shown = shown_steps(counts, median, slowest)
    if steps:
        shown = chosen_steps(counts.astype(np.int64), first_number, *steps)
    rows = [in_shown_steps(row, bounds_ns, shown) for row in rows]
    starts = [row.start_ns for row in rows]
    origin_ns = min((int(start[0]) for start in starts if len(start)), default=int(bounds_ns[0]))
    nothing = packed_column(np.empty(0, np.int64))
    return {
        "origin": origin_ns - int(bounds_ns[0]),
        "bounds": packed_column(length),
        "shown": packed_column(shown.astype(np.int64)),
        "ahead": packed_column(np.zeros(len(length), np.int64)),
        "firstStep": first_number,
        "median": median,
        "slowest": slowest,
        "shades": list(SHADES),
        "called": {WAIT: "waiting", TRANSFER: "transfer"},
        "causes": {},
        "hatches": {},
        "rows": [{"kind": "rank", "label": r.label, "count": len(r.start_ns)} for r in rows],
        "groups": [
            {"label": "", "rows": [2 * n, 2 * n + 1], "curves": [], "folded": False}
            for n in range(len(numbers))
        ],
        "clocks": [],
        "curves": [],
        "start": packed_column(
            concatenate_columns([np.diff(start, prepend=origin_ns) for start in starts])
        ),
        "duration": packed_column(concatenate_columns([row.end_ns - row.start_ns for row in rows])),
        "name": packed_column(concatenate_columns([row.name for row in rows])),
        "shade": packed_column(concatenate_columns([row.shade for row in rows])),
        "call": nothing,
        "phase": nothing,
        "operator": nothing,
        "line": nothing,
        "geometry": nothing,
        "geometries": [],
        "names": [
            {"label": without_controls(name), "whole": "", "links": []} for name in names.numbers
        ],
    }


def rows_of(analysis: RanksAnalysis, number: int, names: Names) -> list[Row]:
    """The two rows of a rank, on the clock of the first rank."""
    rank, offset_ns = analysis.ranks[number], analysis.clocks.offset_ns[number]
    slices = rank.slices
    shades = np.array([SHADES.index(part) for part in slices.parts], np.int64)
    computing = Row(
        f"rank {rank.rank}",
        slices.start_ns - offset_ns,
        slices.end_ns - offset_ns,
        names.numbers_of(slices.names)[slices.name],
        shades[slices.name],
    )
    return [computing, collectives_row(analysis, number, names)]


def collectives_row(analysis: RanksAnalysis, number: int, names: Names) -> Row:
    """A rank's collectives, each as a wait and a transfer; an unmatched one as a transfer alone."""
    rank, waits = analysis.ranks[number], analysis.costs.waits
    collectives = rank.collectives
    wait_ns = np.zeros(len(collectives.start_ns), np.int64)
    matched = waits.matched.row[:, number]
    there = (matched >= 0) & ~np.isnan(waits.wait_ns[:, number])
    wait_ns[matched[there]] = waits.wait_ns[there, number].astype(np.int64)
    start_ns = collectives.start_ns - analysis.clocks.offset_ns[number]
    end_ns = collectives.end_ns - analysis.clocks.offset_ns[number]
    waited = np.flatnonzero(wait_ns > 0)
    starts = concatenate_columns([start_ns[waited], start_ns + wait_ns])
    ends = concatenate_columns([(start_ns + wait_ns)[waited], end_ns])
    waiting = np.arange(len(starts)) < len(waited)
    kind = concatenate_columns([collectives.kind[waited], collectives.kind])
    waits_of, transfers = (
        names.numbers_of([f"{name}, {what}" for name in collectives.names])
        for what in ("waiting", "transfer")
    )
    name = np.where(waiting, waits_of[kind], transfers[kind])
    shade = np.where(waiting, SHADES.index(WAIT), SHADES.index(TRANSFER))
    order = np.argsort(starts, kind="stable")
    label = f"rank {rank.rank}, collectives"
    return Row(label, starts[order], ends[order], name[order], shade[order])


def in_shown_steps(row: Row, bounds_ns: np.ndarray, shown: np.ndarray) -> Row:
    """The row with only those slices that begin in a shown step."""
    step = np.searchsorted(bounds_ns, row.start_ns, side="right") - 1
    inside = (step >= 0) & (step < len(shown)) & np.append(shown, False)[step]
    columns = row.start_ns, row.end_ns, row.name, row.shade
    return Row(row.label, *(column[inside] for column in columns))


def steps_note(data: TimelineData) -> str:
    """A sentence to append that says how many steps are drawn; empty where all are."""
    shown = np.frombuffer(unpacked(data["shown"]["data"]), np.uint8)
    if shown.all():
        return ""
    numbers = data["firstStep"] + np.flatnonzero(shown)
    return (
        f" {len(numbers)} of {len(shown)} steps are shown, between {numbers[0]} and "
        f"{numbers[-1]}; report --steps FIRST-LAST chooses others."
    )


MOST = 32  # ranks that are drawn


def shown_ranks(rows: Sequence[RankRow]) -> list[int]:
    """Indices in `rows` of the ranks to draw: all, or those that wait least and most."""
    if len(rows) <= MOST:
        return list(range(len(rows)))
    order = sorted(range(len(rows)), key=lambda n: rows[n].communication.lost_wait_ms or 0.0)
    half = MOST // 2
    return sorted([*order[:half], *order[-half:]])


def shown_note(rows: Sequence[RankRow]) -> str:
    """A sentence to append that says which ranks are drawn; empty where all are."""
    if len(rows) <= MOST:
        return ""
    return f" Shown are {MOST} of {len(rows)} ranks: those that wait the least and the most."
