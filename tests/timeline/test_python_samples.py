"""profiling.timeline.python_samples: samples of Python's stack as ranges."""

import numpy as np
import pytest

from profiling.shared.python_samples import PythonSamples
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


def test_each_function_of_a_sample_is_a_row_at_its_time():
    names = Names()
    columns = ranges_of(
        sampled([[0], [0, 1, 2]], [0, 1, 0], [FIRST_NS + n for n in (0, 10, 20)]), names, BASE_NS
    )
    assert as_rows(columns, names) == [
        (NAMES[0], 5000, 5001),
        (NAMES[0], 5010, 5011),
        (NAMES[1], 5010, 5011),
        (NAMES[2], 5010, 5011),
        (NAMES[0], 5020, 5021),
    ]
    assert set(columns["thread"].tolist()) == {41 << 32 | 7}


@pytest.mark.parametrize(
    ("stacks", "stack"),
    [([[0]], [0, 1]), ([[3]], [0, 0]), ([[-1]], [0, 0]), ([[0]], [0, -1]), ([[0]], [0])],
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
    assert found.sampled.start_ns.tolist() == [5000, 5000, 7000, 7000]
    assert np.array_equal(np.unique(found.sampled.thread), np.unique(found.operators.thread))
