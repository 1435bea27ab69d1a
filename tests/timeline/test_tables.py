"""Tables built from a reader's columns."""

import numpy as np
import pytest

from profiling.timeline import opening
from profiling.timeline.reading import first_matching
from profiling.timeline.trace import Operations, Ranges

TIMES = {"start_ns": np.array([1, 5, 9]), "end_ns": np.array([2, 6, 10])}


def test_what_a_reader_does_not_have_is_unknown():
    table = Operations.from_columns(TIMES | {"device": np.zeros(3), "of another table": np.ones(3)})
    assert table is not None and table.start_ns.tolist() == [1, 5, 9]
    assert table.call.tolist() == table.bytes.tolist() == [-1, -1, -1]
    assert table.pageable.tolist() == [False] * 3
    types = (table.start_ns.dtype, table.kind.dtype, table.device.dtype, table.pageable.dtype)
    assert types == (np.int64, np.int8, np.int32, bool)
    assert Operations.from_columns(None) is None


def test_rows_are_chosen_by_index_or_mask():
    table = Ranges.from_columns(TIMES)
    assert table is not None and table.rows(np.array([2, 0])).end_ns.tolist() == [10, 2]
    assert table.rows(table.start_ns > 4).start_ns.tolist() == [5, 9]
    assert len(Ranges.empty().rows(np.empty(0, np.int64)).name) == 0


def test_a_number_that_does_not_fit_is_told_with_the_file(tmp_path, monkeypatch):
    (tmp_path / "x.sqlite").write_bytes(b"SQLite format 3\0")
    impossible = TIMES | {"device": np.array([0, 1, 2**31])}
    monkeypatch.setattr(
        opening.nsys_sqlite, "read", lambda path: Operations.from_columns(impossible)
    )
    with pytest.raises(ValueError, match=r"x\.sqlite: is damaged \(impossible device\)"):
        opening.open_capture(tmp_path / "x.sqlite")


@pytest.mark.parametrize("spread", [1, 1_000_003])
@pytest.mark.parametrize("seed", range(10))
def test_the_first_row_with_an_id_is_found_among_close_and_among_scattered_ids(seed, spread):
    random = np.random.default_rng(seed)
    process, number = random.integers(0, 3, 40), random.integers(-2, 12, 40)
    of_process, of_number = random.integers(0, 4, 30), random.integers(-2, 14, 30)
    pairs = list(zip(of_process.tolist(), of_number.tolist(), strict=True))
    expected = [
        pairs.index(pair) if pair[1] >= 0 and pair in pairs else -1
        for pair in zip(process.tolist(), number.tolist(), strict=True)
    ]
    row = first_matching(process, number * spread, of_process, of_number * spread)
    assert row.tolist() == expected
    nothing = np.empty(0, np.int64)
    assert first_matching(process, number, nothing, nothing).tolist() == [-1] * 40
