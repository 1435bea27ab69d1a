"""benchmarks.repeat_capture: its result reads like one long window."""

import numpy as np
import pytest

from benchmarks.repeat_capture import RepeatConfig, main
from profiling.timeline.opening import iterations_of, open_capture
from tests.helpers.captures import small_trace, write_trace
from tests.paths import CAPTURES


def iteration_starts(trace):
    numbers = [trace.names[name] for name in trace.ranges.name.tolist()]
    return [name for name in numbers if name.startswith("iteration ")]


def test_an_export(tmp_path):
    source, out = CAPTURES / "flash_compile.sqlite.gz", tmp_path / "long.sqlite"
    main(RepeatConfig(capture=str(source), out=str(out), kernels=15_000))
    one, many = open_capture(source), open_capture(out)
    assert len(many.operations.start_ns) == 3 * len(one.operations.start_ns)
    assert len(many.calls.start_ns) == 3 * len(one.calls.start_ns)
    assert iteration_starts(many) == [f"iteration {number}" for number in range(100, 160)]
    assert (many.operations.call >= 0).all()
    delay = many.operations.start_ns - many.calls.start_ns[many.operations.call]
    assert delay.max() == (one.operations.start_ns - one.calls.start_ns[one.operations.call]).max()
    took = [t.operations.end_ns - t.operations.start_ns for t in (one, many)]
    assert 3 * took[0].sum() == took[1].sum()


def test_a_trace(tmp_path):
    source, out = write_trace(tmp_path / "x.json", small_trace()), tmp_path / "long.json"
    main(RepeatConfig(capture=str(source), out=str(out), kernels=9))
    one, many = open_capture(source), open_capture(out)
    assert np.count_nonzero(many.operations.kind == 0) == 10
    assert iterations_of(many) == {7, 8, 9, 10, 11}
    assert np.count_nonzero(many.operations.call >= 0) == 15
    assert len(set(many.operations.call.tolist())) == 16
    assert many.devices == one.devices
    assert sorted(tmp_path.iterdir()) == [out, source]


@pytest.mark.parametrize(
    "keys", [{"capture": "x"}, {"out": "x"}, {"capture": "x", "out": "x", "kernels": 0}]
)
def test_what_is_missing_is_named(keys):
    with pytest.raises(ValueError, match="out|capture|kernels"):
        RepeatConfig(**keys)


def test_a_capture_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        main(RepeatConfig(capture=str(tmp_path / "no"), out=str(tmp_path / "x")))
