"""Thousands of damaged captures: each is read, or refused with a ValueError of one line.

The damage is random, from a seed: bytes flipped, the end cut off, cells of an export and values of
a trace replaced by hostile ones. `python -m benchmarks fuzz` does the same to whole command lines.
"""

import gzip
import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.damage import (
    alter_export,
    change_cells,
    change_tables,
    cut_off,
    damaged_value,
    flip_bytes,
)
from profiling.timeline.opening import open_capture
from profiling.timeline.trace import Trace
from tests.helpers.captures import content_of_small_export, small_trace

pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def opened(path: Path) -> Trace | None:
    """The trace, checked; None where the file was refused as it should be."""
    try:
        trace = open_capture(path)
    except ValueError as error:
        said = str(error)
        assert path.name in said and "\n" not in said and len(said) < 1000
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


def survive(path: Path, times: int, damage: Callable[[random.Random], bytes]) -> int:
    """How many of the damaged files could be read."""
    read = 0
    for seed in range(times):
        path.write_bytes(damage(random.Random(seed)))
        try:
            read += opened(path) is not None
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    return read


@pytest.fixture(scope="module")
def export() -> bytes:
    return content_of_small_export()


@pytest.fixture(scope="module")
def trace() -> bytes:
    return json.dumps(small_trace()).encode()


@pytest.mark.slow
def test_bytes_of_an_export(tmp_path, export):
    read = survive(tmp_path / "x.sqlite", 600, lambda chance: flip_bytes(export, chance))
    assert 0 < read < 600


@pytest.mark.slow
def test_the_first_page_of_an_export(tmp_path, export):
    """The page holds the header and schema, which SQLite itself leans on."""
    page = 1024

    def damage(chance: random.Random) -> bytes:
        return flip_bytes(export[:page], chance) + export[page:]

    assert survive(tmp_path / "x.sqlite", 300, damage) < 300


def test_the_beginning_of_an_export(tmp_path, export):
    assert survive(tmp_path / "x.sqlite", 150, lambda chance: cut_off(export, chance)) < 150


@pytest.mark.slow
def test_cells_of_an_export(tmp_path, export):
    def damage(chance: random.Random) -> bytes:
        return alter_export(export, lambda database: change_cells(database, chance))

    assert 0 < survive(tmp_path / "x.sqlite", 700, damage) < 700


@pytest.mark.slow
def test_tables_of_an_export(tmp_path, export):
    def damage(chance: random.Random) -> bytes:
        return alter_export(export, lambda database: change_tables(database, chance))

    assert 0 < survive(tmp_path / "x.sqlite", 200, damage) <= 200


@pytest.mark.slow
def test_bytes_of_a_trace(tmp_path, trace):
    read = survive(tmp_path / "x.json", 1500, lambda chance: flip_bytes(trace, chance))
    assert 0 < read < 1500


def test_the_beginning_of_a_trace(tmp_path, trace):
    assert survive(tmp_path / "x.json", 500, lambda chance: cut_off(trace, chance)) == 0


@pytest.mark.slow
def test_values_of_a_trace(tmp_path, trace):
    def damage(chance: random.Random) -> bytes:
        changed = damaged_value(json.loads(trace), chance)
        return json.dumps(changed).encode(errors="surrogatepass")

    assert 0 < survive(tmp_path / "x.json", 1500, damage) < 1500


@pytest.mark.parametrize("kind", ["export", "trace"])
def test_bytes_of_what_is_packed(tmp_path, kind, request):
    packed = gzip.compress(request.getfixturevalue(kind))
    path = tmp_path / "x.gz"
    read = survive(path, 150, lambda chance: flip_bytes(packed, chance))
    assert read < 150
    assert survive(path, 50, lambda chance: cut_off(packed, chance)) == 0


def test_nothing_but_errors_is_raised_under_strict_warnings(tmp_path, export):
    """Uses that numpy deprecates are to become errors; either way the file is refused."""
    path = tmp_path / "x.sqlite"
    query = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'text' WHERE rowid = 2"
    path.write_bytes(alter_export(export, lambda database: database.execute(query)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert opened(path) is None
