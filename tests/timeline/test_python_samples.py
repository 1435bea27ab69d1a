"""profiling.timeline.python_samples: samples of Python's stack as ranges."""

import numpy as np
import pytest

from profiling.timeline import python_samples
from profiling.timeline.chrome_events import PythonSamples
from profiling.timeline.chrome_json import read
from profiling.timeline.python_samples import ranges_of
from profiling.timeline.reading import Names
from tests.helpers.captures import event, small_trace, write_trace

NAMES = ["train.py(1): <module>", "train.py(4): read_rows", "json/__init__.py(9): loads"]
BASE_NS = 1_000_000
FIRST_NS = 1_005_000


def sampled(stacks, stack, times_ns, names=NAMES):
    return PythonSamples(41, 7, names, stacks, times_ns, stack)


def as_rows(columns, names):
    texts = list(names.numbers)
    return [
        (texts[name], start, end)
        for name, start, end in zip(
            columns["name"], columns["start_ns"].tolist(), columns["end_ns"].tolist(), strict=True
        )
    ]


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch):
    monkeypatch.setattr(python_samples, "LEAST", 2)


def test_a_sample_stands_for_the_time_since_the_one_before():
    names = Names()
    times_ns = [FIRST_NS + 1000 * n for n in range(5)]
    samples = sampled([[0], [0, 1], [0, 1, 2]], [0, 1, 2, 1, 0], times_ns)
    columns = ranges_of(samples, names, BASE_NS)
    assert as_rows(columns, names) == [
        (NAMES[0], 5000, 9000),
        (NAMES[1], 5000, 8000),
        (NAMES[2], 6000, 7000),
    ]
    assert set(columns["thread"].tolist()) == {41 << 32 | 7}


def test_a_function_that_ended_between_two_samples_is_two_ranges():
    names = Names()
    samples = sampled([[0, 1], [0]], [0, 0, 1, 0], [FIRST_NS + n for n in (0, 10, 20, 30)])
    rows = as_rows(ranges_of(samples, names, BASE_NS), names)
    assert [row[1:] for row in rows if row[0] == NAMES[1]] == [(5000, 5010), (5020, 5030)]


def test_a_stack_that_is_another_from_its_outermost_function_on_is_another():
    names = Names()
    samples = sampled([[0, 2], [1, 2]], [0, 0, 1], [FIRST_NS, FIRST_NS + 10, FIRST_NS + 20])
    rows = as_rows(ranges_of(samples, names, BASE_NS), names)
    assert [row[1:] for row in rows if row[0] == NAMES[2]] == [(5000, 5010), (5010, 5020)]


def test_few_samples_say_nothing(monkeypatch):
    monkeypatch.undo()
    for count, says in ((14, False), (15, True)):
        samples = sampled([[0]], [0] * count, [FIRST_NS + n for n in range(count)])
        assert (ranges_of(samples, Names(), BASE_NS) is not None) == says


@pytest.mark.parametrize(
    ("stacks", "stack"),
    [([[0]], [0, 1]), ([[3]], [0, 0]), ([[-1]], [0, 0]), ([[0]], [0])],
)
def test_numbers_that_fit_nothing_are_damage(tmp_path, stacks, stack):
    trace = small_trace()
    trace["python_samples"] = {
        "pid": 41,
        "tid": 7,
        "names": NAMES,
        "stacks": stacks,
        "times_ns": [FIRST_NS, FIRST_NS + 10],
        "stack": stack,
    }
    with pytest.raises(ValueError, match="is damaged"):
        read(write_trace(tmp_path / "x.trace.json", trace))


def test_a_trace_counts_from_its_own_time(tmp_path):
    trace = {
        "schemaVersion": 1,
        "python_samples": {
            "pid": 41,
            "tid": 42,
            "names": NAMES,
            "stacks": [[0, 1]],
            "times_ns": [FIRST_NS, FIRST_NS + 2000],
            "stack": [0, 0],
        },
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": [event("cpu_op", "aten::mul", 5.0, 2.0)],
    }
    found = read(write_trace(tmp_path / "x.trace.json", trace))
    assert found.frames is None
    assert found.sampled.start_ns.tolist() == [5000, 5000]
    assert found.sampled.end_ns.tolist() == [7000, 7000]
    assert np.array_equal(np.unique(found.sampled.thread), np.unique(found.operators.thread))
