"""Pickles are read as data or not at all."""

import pickle
import random
import resource

import pytest

from profiling.timeline.pickled_data import read
from tests.helpers.flight_dumps import planted
from tests.helpers.planted_pickle import Planted


@pytest.fixture
def pickled():
    return pickle.dumps(planted(4)[0].content(), protocol=2)


def test_it_reads_what_python_reads(pickled):
    value = {"a": [1, -1, 255, 65_535, 2**31 - 1, 2**40, -(2**70)], "b": (None, True, False, 0.5)}
    value |= {
        "c": [],
        "d": {},
        "e": (),
        "f": "ä" * 300,
        "g": [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    }
    value |= {"many": [str(n) for n in range(1000)] * 2}
    for protocol in range(2, 6):
        assert read(pickle.dumps(value, protocol=protocol))[0] == value
    found, end = read(pickled + b"behind")
    assert found == pickle.loads(pickled) and end == len(pickled)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_no_code_runs(tmp_path, protocol):
    trap = tmp_path / "ran"
    with pytest.raises(ValueError, match="^(byte|is damaged)"):
        read(pickle.dumps({"entries": [Planted(f"touch {trap}")]}, protocol=protocol))
    assert not trap.exists()
    pickle.loads(pickle.dumps(Planted(f"touch {trap}"), protocol=protocol))
    assert trap.exists()  # so the trap was a real one


def test_a_damaged_file_is_an_error_or_other_data(pickled):
    generator = random.Random(0)
    refused = 0
    for cut in range(0, len(pickled), 7):
        with pytest.raises(ValueError, match="damaged at byte"):
            read(pickled[:cut])
    for _ in range(2000):
        damaged = bytearray(pickled)
        for _ in range(generator.randint(1, 4)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        try:
            read(bytes(damaged))
        except ValueError:
            refused += 1
    assert refused > 500


def test_a_number_in_a_file_reserves_no_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read(b"\x80\x02Nr\xff\xff\xff\xff.")[0] is None  # Python's own takes 64 GB for this one
    for long in (b"X\xff\xff\xff\x7f", b"\x8a\xff"):
        with pytest.raises(ValueError, match="damaged"):
            read(b"\x80\x02" + long + b".")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB
