"""profiling.tools.py_spy: what py-spy writes as samples in the clock of the program."""

import pytest

from profiling.tools.py_spy import Args, Event, Wanted, in_clock_of, stacks

MS = 1_000_000
HOOK = "/x/attach/hook/_profiling_attach/python_samples.py"
BEGAN_NS = 1_700_000_000_000_000_000  # when py-spy did
STAIRS_NS = [BEGAN_NS + 100 * MS + 3 * MS * number for number in range(9)]
WANTED = Wanted(7, 41, 42, STAIRS_NS, ["/home/me/", "/home/me/lib/"])
PERIOD_NS = 5 * MS


def event(ph: str, ms: float, name: str, line: int = 1, file: str = "/home/me/train.py") -> Event:
    return Event(name, ph, 7, int(1000 * ms), Args(file, line))


def sampled(events: list[Event], seen_ms: list[float]):
    """The samples of these events before stairs that py-spy sees at these times."""
    last_ms = 100.0
    for height, ms in enumerate(seen_ms, 1):
        last_ms = ms
        events.append(event("B", ms, "climb", file=HOOK))
        assert height < len(STAIRS_NS)
    events += [event("E", last_ms + 5, "climb", file=HOOK) for _ in seen_ms]
    return in_clock_of(WANTED, list(stacks(events)), PERIOD_NS)


MIDDLES_MS = [101.5 + 3 * number for number in range(8)]  # of the stairs


def test_stairs_tell_the_offset_of_the_clock():
    late_ms = [0.9, -0.2, 0.3, 0.1, -1.2, 0.2, 1.1, 0.0]  # of the samples in their stairs
    seen_ms = [ms + late for ms, late in zip(MIDDLES_MS, late_ms, strict=True)]
    functions = [event("B", 10, "f"), event("E", 14, "f"), event("B", 14, "g")]
    samples = sampled([event("B", 10, "train"), *functions], seen_ms)
    assert [time_ns - BEGAN_NS for time_ns in samples.times_ns[:2]] == [
        pytest.approx(10 * MS, abs=0.5 * MS),
        pytest.approx(14 * MS, abs=0.5 * MS),
    ]
    assert (samples.pid, samples.tid) == (41, 42)


def test_a_stack_that_stays_is_a_sample_each_period_and_stairs_are_none():
    events = [event("B", 10, "f"), event("B", 12, "g"), event("E", 28, "g")]
    samples = sampled(events, MIDDLES_MS)
    names = [[samples.names[n] for n in samples.stacks[k]] for k in samples.stack]
    f, g = "train.py(1): f", "train.py(1): g"
    assert names[:4] == [[f], [f, g], [f, g], [f, g]]
    times_ns = [time_ns - BEGAN_NS for time_ns in samples.times_ns]
    assert times_ns[:4] == [10 * MS, 12 * MS, 17 * MS, 22 * MS]
    assert all("climb" not in name for name in samples.names) and max(times_ns) < 101.5 * MS


def test_a_function_is_one_with_the_line_that_was_seen_most():
    events = [event("B", 10, "train", 30)]
    for ms, line in ((10, 3), (20, 4), (30, 4), (40, 4)):
        events += [event("B", ms, "f", line), event("E", ms + 1, "f", line)]
    events.append(event("B", 60, "f", 9, "/home/me/lib/torch/f.py"))
    samples = sampled(events, MIDDLES_MS)
    assert samples.names == ["train.py(30): train", "train.py(4): f", "torch/f.py(9): f"]


def test_a_stack_that_is_read_while_it_changes_is_no_sample():
    events = [event("B", 10, "train"), event("B", 12, "f"), event("E", 30, "f")]
    # its outer functions are missing
    events += [event("E", 30, "train"), event("B", 30, "f"), event("E", 40, "f")]
    events += [event("B", 40, "train")]
    samples = sampled(events, MIDDLES_MS)
    assert [samples.names[numbers[0]] for numbers in samples.stacks] == ["train.py(1): train"] * 2
    assert not any(BEGAN_NS + 30 * MS < at < BEGAN_NS + 40 * MS for at in samples.times_ns)


def test_without_known_times_there_are_no_samples():
    events = [event(ph, ms, "f") for ms in range(20) for ph in "BE"]
    with pytest.raises(ValueError, match="20 stacks, and too few at known times"):
        sampled(events, [])
