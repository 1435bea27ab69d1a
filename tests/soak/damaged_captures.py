"""Damaged captures: each is read as a trace that holds together, or refused in one line.

The damage is random, from a seed: bytes flipped, the end cut off, cells of an export and values of
a trace replaced by hostile ones. `fuzz` does the same to whole command lines.
"""

import gzip
import json
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

from profiling.timeline.opening import open_capture
from profiling.timeline.trace import Trace
from tests.helpers.captures import content_of_small_export, small_trace
from tests.soak.damage import (
    alter_export,
    change_cells,
    change_tables,
    cut_off,
    damaged_value,
    flip_bytes,
)
from tests.soak.trials import Trial

PAGE = 1024  # bytes; the first has the header and schema, which SQLite itself leans on
Damage = Callable[[random.Random], bytes]


@cache
def export() -> bytes:
    return content_of_small_export()


@cache
def trace() -> bytes:
    return json.dumps(small_trace()).encode()


def damaged_values(chance: random.Random) -> bytes:
    changed = damaged_value(json.loads(trace()), chance)
    return json.dumps(changed).encode(errors="surrogatepass")


KINDS: dict[str, Damage] = {
    "bytes of an export": lambda chance: flip_bytes(export(), chance),
    "first page of an export": lambda chance: flip_bytes(export()[:PAGE], chance) + export()[PAGE:],
    "beginning of an export": lambda chance: cut_off(export(), chance),
    "cells of an export": lambda chance: alter_export(
        export(), lambda database: change_cells(database, chance)
    ),
    "tables of an export": lambda chance: alter_export(
        export(), lambda database: change_tables(database, chance)
    ),
    "bytes of a trace": lambda chance: flip_bytes(trace(), chance),
    "beginning of a trace": lambda chance: cut_off(trace(), chance),
    "values of a trace": damaged_values,
    "bytes of a packed export": lambda chance: flip_bytes(gzip.compress(export()), chance),
    "beginning of a packed export": lambda chance: cut_off(gzip.compress(export()), chance),
    "bytes of a packed trace": lambda chance: flip_bytes(gzip.compress(trace()), chance),
    "beginning of a packed trace": lambda chance: cut_off(gzip.compress(trace()), chance),
}


def trials(count: int, seed: int, limit_s: float) -> Iterator[Trial]:
    """Yield trials of the kinds in turn; none is ended at the limit."""
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", DeprecationWarning)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        for number in range(seed, seed + count):
            kind = list(KINDS)[number % len(KINDS)]
            yield trial(kind, number, Path(folder))


def trial(kind: str, seed: int, folder: Path) -> Trial:
    path = folder / "capture"
    path.write_bytes(KINDS[kind](random.Random(seed)))
    try:
        return Trial(seed, kind, "refused" if opened(path) is None else "read")
    except Exception as error:
        return Trial(seed, kind, "failed", f"{kind}: {type(error).__name__}: {error}")


def opened(path: Path) -> Trace | None:
    """Trace in the file, checked; None where the file was refused in one line that names it."""
    try:
        trace = open_capture(path)
    except ValueError as error:
        said = str(error)
        assert path.name in said and "\n" not in said and len(said) < 1000, said
        return None
    check(trace)
    return trace


def check(trace: Trace) -> None:
    """Assert what the analysis relies on."""
    for table in (trace.operations, trace.calls, trace.ranges, trace.operators):
        if table is None:
            continue
        assert (table.start_ns <= table.end_ns).all() and (np.diff(table.start_ns) >= 0).all()
        assert ((table.end_ns - table.start_ns) >= 0).all()  # no overflow
        assert len({len(column) for column in vars(table).values()}) == 1
        assert ((table.name >= 0) & (table.name < len(trace.names))).all()
    assert all(isinstance(name, str) for name in trace.names)
    if trace.operations is not None:
        calls = 0 if trace.calls is None else len(trace.calls.start_ns)
        assert ((trace.operations.call >= -1) & (trace.operations.call < calls)).all()
    if trace.allocations is not None:
        assert (np.diff(trace.allocations.time_ns) >= 0).all()
