"""Rows of records by id: HASH is a record, HASH/kernel a table of it, HASH/kernel/17 a row."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from profiling.agent.answer import Answer, Cell, Name, Row
from profiling.agent.names import FIELDS
from profiling.analysis.difference.comparison_records import Comparison
from profiling.analysis.memory.memory_records import MemoryComparison, MemoryReport
from profiling.analysis.ranks.rank_records import RanksReport
from profiling.analysis.records import Report
from profiling.analysis.runs.folder import RunFolder
from profiling.analysis.scale.scale_records import Scale
from profiling.analysis.whatif.whatif_records import WhatIf

Record = (
    Report | RanksReport | MemoryReport | RunFolder | Comparison | MemoryComparison | WhatIf | Scale
)
Rows = Sequence[object]

REPORT: dict[str, Callable[[Report], Rows]] = {
    "step": lambda report: [report.window.step_ms],
    "typical": lambda report: [report.typical] if report.typical else [],
    "kernel": lambda report: report.kernels,
    "launch": lambda report: report.launches or [],
    "line": lambda report: report.lines.lines if report.lines else [],
    "prediction": lambda report: report.what_if.predictions if report.what_if else [],
    "family": lambda report: report.families,
    "api": lambda report: report.api,
    "os_call": lambda report: report.os_calls or [],
    "memop": lambda report: report.memops,
    "copy": lambda report: report.copies or [],
    "overlap": lambda report: report.overlap or [],
    "range": lambda report: report.ranges,
    "gap": lambda report: report.idle.gaps if report.idle else [],
    "operator": lambda report: report.operators or [],
    "operator_work": lambda report: report.operator_work or [],
    "counter": lambda report: report.gpu_metrics or [],
    "roofline": lambda report: report.roofline.families if report.roofline else [],
    "gain": lambda report: report.bottleneck.ranked,
    "finding": lambda report: report.health.findings,
    "queue": lambda report: [report.launch_queue] if report.launch_queue else [],
}
RANKS: dict[str, Callable[[RanksReport], Rows]] = {
    "rank": lambda report: report.ranks,
    "collective": lambda report: report.collectives,
    "straggler": lambda report: [report.straggler] if report.straggler else [],
    "finding": lambda report: report.findings,
}
MEMORY: dict[str, Callable[[MemoryReport], Rows]] = {
    "kind": lambda report: report.kinds,
    "line": lambda report: report.lines,
    "module": lambda report: report.modules,
    "block": lambda report: report.largest,
    "phase": lambda report: report.phases,
    "step": lambda report: report.steps,
    "leak": lambda report: report.leaks,
    "pinned": lambda report: report.pinned,
    "failure": lambda report: [report.out_of_memory] if report.out_of_memory else [],
    "free": lambda report: report.out_of_memory.frees if report.out_of_memory else [],
    "device": lambda report: report.devices if len(report.devices) > 1 else [],
}
COMPARISON: dict[str, Callable[[Comparison], Rows]] = {
    "bucket": lambda comparison: comparison.buckets or [],
    "family": lambda comparison: comparison.families or [],
    "range": lambda comparison: comparison.ranges or [],
    "kernel": lambda comparison: comparison.kernels.changed,
    "added": lambda comparison: comparison.kernels.added,
    "removed": lambda comparison: comparison.kernels.removed,
}


def tables(record: Record) -> dict[str, Rows]:
    """The tables of a record that have rows, by their kind."""
    match record:
        case Report():
            found = {kind: rows(record) for kind, rows in REPORT.items()}
        case RanksReport():
            found = {kind: rows(record) for kind, rows in RANKS.items()}
        case MemoryReport():
            found = {kind: rows(record) for kind, rows in MEMORY.items()}
        case MemoryComparison():
            found = {"kind": record.kinds, "line": record.lines}
        case Comparison():
            found = {kind: rows(record) for kind, rows in COMPARISON.items()}
        case WhatIf() | Scale():
            found = {"prediction": record.predictions}
        case RunFolder():
            found = {}
    return {kind: rows for kind, rows in found.items() if rows}


def rows_at(record: Record, key: str, place: Sequence[str]) -> Answer:
    """Answer with the rows at `place`: a kind, or a kind and a number.

    Raises ValueError for a place that the record does not have.
    """
    known = tables(record)
    if not place:
        return Answer(f"{key} has {', '.join(known) or 'no rows'}.", evidence=ids(key, known))
    kind, *number = place
    if kind not in known:
        raise ValueError(f"{key}/{kind}: no such rows; there are {', '.join(known) or 'none'}")
    rows = known[kind]
    if not number:
        return Answer(f"{len(rows)} rows.", rows=numbered(key, kind, rows))
    if len(number) > 1 or not number[0].isdigit() or int(number[0]) >= len(rows):
        raise ValueError(f"{key}/{'/'.join(place)}: give a number from 0 to {len(rows) - 1}")
    index = int(number[0])
    return Answer(f"Row {index} of {len(rows)}.", rows=[numbered(key, kind, rows)[index]])


def ids(key: str, kinds: Mapping[str, Rows]) -> list[str]:
    return [f"{key}/{kind}" for kind in kinds]


def numbered(key: str, kind: str, rows: Rows, fields: str = "") -> list[Row]:
    """The rows with their ids, and with the `fields` that are named, or all."""
    made: list[Row] = []
    for index, row in enumerate(rows):
        cells = flat(row)
        chosen = {name: cells.get(name) for name in fields.split()} if fields else cells
        made.append(dict(id=f"{key}/{kind}/{index}", **chosen))
    return made


def flat(row: object) -> dict[str, Cell]:
    """Fields of a record as cells; one inside another has a dot in its name."""
    found: dict[str, Cell] = {}

    def add(prefix: str, value: object, named: bool) -> None:
        if isinstance(value, dict):
            for key, inside in value.items():
                add(f"{prefix}.{key}" if prefix else key, inside, key in FIELDS)
        elif isinstance(value, list | tuple):
            for index, inside in enumerate(value):
                add(f"{prefix}.{index}", inside, named)
        elif isinstance(value, str):
            found[prefix] = Name(value) if named else value
        elif value is None or isinstance(value, int | float):
            found[prefix] = value

    add("", msgspec.to_builtins(row), False)
    return found
