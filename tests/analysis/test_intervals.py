"""Sets of intervals, against a set of integers."""

import numpy as np
import pytest

from profiling.analysis.columns import Intervals, are_outermost, depths, union
from profiling.analysis.gpu_time import host_activity


def random_set(random: np.random.Generator, count: int) -> tuple[Intervals, set[int]]:
    start = random.integers(0, 200, count)
    end = start + random.integers(0, 12, count)
    return union(start, end), {
        i for a, b in zip(start.tolist(), end.tolist(), strict=True) for i in range(a, b)
    }


def points(intervals: Intervals) -> set[int]:
    pairs = zip(intervals.start_ns.tolist(), intervals.end_ns.tolist(), strict=True)
    return {i for a, b in pairs for i in range(a, b)}


@pytest.mark.parametrize("seed", range(20))
def test_sets_of_intervals_are_sets_of_points(seed):
    random = np.random.default_rng(seed)
    (a, of_a), (b, of_b) = random_set(random, 20), random_set(random, 5 * (seed % 4))
    window = set(range(50, 150))
    assert points(a) == of_a
    assert points(a.union(b)) == of_a | of_b
    assert points(a.gaps(50, 150)) == window - of_a
    assert points(a.intersection(b, 50, 150)) == of_a & of_b & window
    assert points(a.clip(50, 150)) == of_a & window
    assert a.ns_before(np.array([0, 77, 300])).tolist() == [
        0,
        len([i for i in of_a if i < 77]),
        len(of_a),
    ]
    assert a.ns_within(np.array([20]), np.array([90])) == len([i for i in of_a if 20 <= i < 90])
    assert np.all(a.start_ns[1:] > a.end_ns[:-1])


@pytest.mark.parametrize(("start_ns", "end_ns"), [(5, 5), (7, 3), (0, 0), (20, 30), (10, 12)])
def test_nothing_is_left_of_a_set_in_an_empty_period_or_beside_it(start_ns, end_ns):
    clipped = union(np.array([2]), np.array([10])).clip(start_ns, end_ns)
    assert len(clipped.start_ns) == len(clipped.end_ns) == 0


@pytest.mark.parametrize("seed", range(5))
def test_intervals_that_are_close_become_one(seed):
    random = np.random.default_rng(seed)
    start = random.integers(0, 200, 30)
    end = start + random.integers(0, 6, 30)
    gaps, joined = union(start, end).gaps(0, 200), union(start, end, apart_ns=3)
    long = gaps.end_ns - gaps.start_ns > 3
    assert joined.gaps(0, 200, 3).start_ns.tolist() == gaps.start_ns[long].tolist()
    assert joined.gaps(0, 200, 3).end_ns.tolist() == gaps.end_ns[long].tolist()
    assert np.all(joined.start_ns[1:] - joined.end_ns[:-1] > 3)


def test_the_outermost_of_nested_intervals_are_those_of_depth_0():
    start, end = np.array([0, 1, 3, 9, 9, 10, 12]), np.array([9, 3, 3, 20, 11, 11, 12])
    outermost = are_outermost(start, end)
    assert outermost.tolist() == (depths(start, end) == 0).tolist()
    assert outermost.tolist() == [True, False, False, True, False, False, False]
    assert len(are_outermost(start[:0], end[:0])) == 0


@pytest.mark.parametrize("seed", range(5))
def test_long_pauses_are_the_long_gaps_between_calls(seed, monkeypatch):
    monkeypatch.setattr(host_activity, "LONG_NS", 4)
    random = np.random.default_rng(seed)
    start = np.sort(random.integers(-10, 190, 20))
    end = start + random.integers(1, 12, 20)
    pauses = host_activity.long_pauses(union(start, end), 50, 150)
    gaps = union(start, end).gaps(50, 150)
    long = gaps.end_ns - gaps.start_ns > 4
    assert pauses.start_ns.tolist() == gaps.start_ns[long].tolist()
    assert pauses.end_ns.tolist() == gaps.end_ns[long].tolist()
