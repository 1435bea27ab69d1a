"""Step times without waiting for the GPU, and phases of the steps that are timed."""

import json
import os
from types import SimpleNamespace

import pytest
import torch
from _profiling_attach import phases as phases_module
from _profiling_attach import run_files
from _profiling_attach.laps import CAPTURED, FREE, Laps
from _profiling_attach.phases import EVERY, Phases
from _profiling_attach.recorder import Recorder
from _profiling_attach.window import Window
from torch.torch_version import TorchVersion

NO_GPU = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))


class Event:
    """A CUDA event: `at` in ms, passed once the GPU's clock is there."""

    clock = 0.0

    def __init__(self, at):
        self.at = at

    def query(self):
        return self.at <= Event.clock

    def synchronize(self):
        Event.clock = max(Event.clock, self.at)

    def elapsed_time(self, end):
        return end.at - self.at


@pytest.fixture
def on_gpu():
    laps = Laps(NO_GPU)
    laps.cuda, Event.clock, laps.last = object(), 0.0, Event(0.0)
    return laps


def test_laps_of_a_cpu_are_differences_of_its_clock():
    laps = Laps(NO_GPU)
    laps.last = 1_000_000
    laps.extend([2_500_000], FREE)
    laps.extend([3_000_000, 7_000_000], CAPTURED)
    assert laps.ms == [1.5, 0.5, 4.0] and laps.with_label(CAPTURED) == [0.5, 4.0]
    assert laps.with_label(FREE, first=1) == []


def test_laps_of_a_gpu_are_read_as_far_as_it_has_come_and_none_is_waited_for(on_gpu):
    on_gpu.extend([Event(2.0), Event(5.0)], FREE)
    on_gpu.extend([Event(9.0)], FREE)
    Event.clock = 5.5
    assert on_gpu.read() == 2 and on_gpu.ms == [2.0, 3.0, None]
    assert [event.at for event in on_gpu.passed] == [0.0, 2.0], "ends of no step that is to be read"
    assert on_gpu.read(wait=True) == 3 and on_gpu.ms == [2.0, 3.0, 4.0]


def test_a_lap_that_ends_inside_the_capture_of_a_graph_has_no_time(on_gpu):
    on_gpu.extend([Event(2.0), None, Event(9.0), Event(11.0)], FREE)
    assert on_gpu.read(wait=True) == 4
    assert on_gpu.ms == [2.0, None, None, 2.0] and len(on_gpu.labels) == 4
    assert on_gpu.with_label(FREE) == [2.0, 2.0]


class Gpu:
    """A torch whose events are passed at once; a step takes `step_ms`."""

    def __init__(self, step_ms):
        self.__version__ = TorchVersion("2.11.0+cu130")
        self.step_ms, self.ends, self.events = step_ms, 0, 0
        yes, no = lambda: True, lambda: False
        self.cuda = SimpleNamespace(
            is_available=yes, is_initialized=yes, is_current_stream_capturing=no
        )
        gpu = self

        class Recorded(Event):
            def __init__(self, device, enable_timing):
                super().__init__(None)
                gpu.events += 1
                assert (device, enable_timing) == ("cuda", True)

            def record(self):
                self.at = gpu.ends * gpu.step_ms
                Event.clock = self.at

        self.Event = Recorded

    def train(self, laps, steps):
        """End so many steps, ten at a look, as the recorder does."""
        for _ in range(steps // 10):
            ends = []
            for _ in range(10):
                self.ends += 1
                ends.append(laps.now())
            laps.extend(ends, FREE)


def trained_laps(step_ms, steps=1000):
    Event.clock, gpu = 0.0, Gpu(step_ms)
    laps = Laps(gpu)
    laps.last = laps.now()
    gpu.train(laps, 200)
    laps.read()
    laps.choose_stride()
    gpu.train(laps, steps)
    assert laps.read(wait=True) == 200 + steps
    return gpu, laps


@pytest.mark.parametrize("step_ms, stride", [(0.125, 47), (1.0, 7), (3.5, 1), (20.0, 1)])
def test_on_a_gpu_one_short_step_of_several_is_timed_and_right(step_ms, stride):
    gpu, laps = trained_laps(step_ms)
    timed = [step for step, ms in enumerate(laps.ms) if ms is not None]
    assert timed[:200] == [*range(200)], "the first are all timed"
    assert {ms for ms in laps.ms if ms is not None} == {step_ms}, "each is one step"
    assert len(timed) - 200 == pytest.approx(1000 / stride, abs=2)
    looks = {step % 10 for step in timed[200:]}
    assert len(looks) == 10, "also those in which a loop logs, each tenth"
    gpu.train(laps, 1000)
    laps.read()
    before = gpu.events
    gpu.train(laps, 1000)
    laps.read()
    assert gpu.events <= before + 1, "events are used again, those that end a timed step too"


def test_a_window_and_the_steps_behind_it_are_all_timed():
    gpu, laps = trained_laps(1.0)
    laps.time_every_step()
    gpu.train(laps, 100)
    laps.read()
    laps.choose_stride()
    gpu.train(laps, 100)
    laps.read()
    assert None not in laps.ms[1210:]
    laps.choose_stride()
    gpu.train(laps, 100)
    laps.read()
    assert laps.ms[-100:].count(None) > 80


def test_untimed_ends_are_noted_at_once_and_count_when_their_marks_come():
    optimizer, looks = object(), []
    gpu, laps = trained_laps(1.0)
    recorder = object.__new__(Recorder)
    recorder.settings = SimpleNamespace(step=None)
    recorder.begin_anew()
    recorder.laps, recorder.steps_to_look = laps, 30
    recorder.rule.chosen = recorder.quick_kind, recorder.quick_key = "optimizer", id(optimizer)
    recorder.rule.counts[recorder.rule.chosen] = 0
    recorder.quick_now = laps.now
    before, done = len(laps.ms), 0

    def look(done):
        looks.append(done)
        recorder.steps_to_look = 30

    def end_step():
        gpu.ends += 1
        recorder.mark("optimizer", optimizer)

    recorder.look = look
    while recorder.ends_to_come < 3:
        end_step()
        done += 1
        assert recorder.count("optimizer", optimizer) == done
    recorder.add_new_ends()  # as before a mark of a higher kind, or at the end
    assert len(laps.ms) == before + done and recorder.count("optimizer", optimizer) == done
    for _ in range(700):
        end_step()
    assert looks == [*range(before + 30, before + done + 701, 30)]
    recorder.add_new_ends()
    laps.read(wait=True)
    newest = laps.ms[before:]
    assert len(newest) == done + 700 and {*newest} == {1.0, None}
    assert len(newest) - newest.count(None) == pytest.approx(len(newest) / 7, abs=2)


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(ns=0)
    monkeypatch.setattr(phases_module.time, "perf_counter_ns", lambda: now.ns)
    return now


def pass_through(phases, clock, *names, ns=1_000_000):
    """Enter phases one inside the other, stay, and leave the outermost."""
    for name in names:
        phases.enter(name)
    clock.ns += ns
    phases.leave(names[0])


def test_phases_of_a_step_add_up_and_one_of_many_steps_is_timed(clock):
    phases = Phases()
    pass_through(phases, clock, "forward")
    pass_through(phases, clock, "forward", ns=3_000_000)
    phases.end_step(1)
    assert phases.ms == {"forward": [4.0]} and not phases.on
    pass_through(phases, clock, "forward")
    phases.end_step(2)
    assert phases.ms == {"forward": [4.0]}, "the second step was not timed"
    phases.end_step(EVERY)
    assert phases.on


def test_a_phase_that_an_error_left_open_ends_with_the_one_around_it(clock):
    phases = Phases()
    pass_through(phases, clock, "optimizer", "forward")
    assert phases.open == [] and phases.ns == {"optimizer": 1_000_000}
    phases.leave("optimizer")  # a second time
    assert phases.open == []


def test_a_phase_inside_one_of_its_name_counts_once(clock):
    phases = Phases()
    phases.enter("optimizer")
    pass_through(phases, clock, "optimizer")
    clock.ns += 500_000
    phases.leave("optimizer")
    assert phases.ns == {"optimizer": 1_500_000}


def test_ranges_are_opened_and_closed_in_order_while_a_window_is_open(clock):
    seen = []

    class Range:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            seen.append(f"+{self.name}")

        def __exit__(self, *error):
            seen.append(f"-{self.name}")

    phases = Phases()
    phases.ranges = Range
    pass_through(phases, clock, "backward")
    phases.enter("data")
    phases.enter("inner")
    phases.close_ranges()
    phases.leave("data")
    assert seen == ["+backward", "-backward", "+data", "+inner", "-inner", "-data"]


def test_no_window_opens_in_steps_that_ended_before_their_mark_was_known(monkeypatch):
    """A compiled step is known by 16 marks, of which the last alone is now."""
    opened, recorder = [], object.__new__(Recorder)
    recorder.is_past = False
    recorder.window, recorder.phases, recorder.settings = (
        object(),
        Phases(),
        SimpleNamespace(stop_after=None),
    )
    recorder.laps = SimpleNamespace(now=lambda: 3)
    recorder.rule = SimpleNamespace(chosen=("zero_grad", 1), counts_of=lambda kind: {}, counts={})
    recorder.follow_window = lambda window, done: opened.append(done)
    recorder.step_to_look_at = lambda done: done + 1
    monkeypatch.setattr(Recorder, "end_step", lambda self, moment: self.look(moment))
    recorder.end_steps([1, 2, 3], now=3)
    assert opened == [3] and not recorder.is_past


@pytest.mark.parametrize("step_s, look_steps", [(0.00025, 100), (0.0005, 50), (0.1, 10)])
def test_short_steps_are_looked_at_less_often_and_all_have_rows(
    tmp_path, monkeypatch, step_s, look_steps
):
    clock = SimpleNamespace(s=5.0)
    monkeypatch.setattr(run_files.time, "perf_counter", lambda: clock.s)
    settings = SimpleNamespace(folder=str(tmp_path), command=["train"])
    laps = Laps(NO_GPU)
    laps.last = 0
    recorder = SimpleNamespace(laps=laps, phases=Phases(), settings=settings, torch=torch)
    files = run_files.RunFiles(recorder)
    looks = []
    while len(laps.ms) < 5000:
        steps = files.look_steps - len(laps.ms) % files.look_steps
        ends_s = [len(laps.ms) * step_s + (step + 1) * step_s for step in range(steps)]
        laps.extend([round(end_s * 1e9) for end_s in ends_s], FREE)
        clock.s = 5.0 + ends_s[-1]
        files.write_rows(len(laps.ms))
        looks.append(steps)
    laps.extend([laps.last + 1] * 3, FREE)
    files.write_rows(len(laps.ms), at_end=True)
    assert looks[0] == 10 and looks[-1] == look_steps
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()[1:]]
    assert rows[-1]["iter"] == len(laps.ms) - 1
    for row in rows[:-1]:
        elapsed_s = (row["iter"] + 1) * step_s
        assert row["time/step_ms"] == pytest.approx(step_s * 1e3)
        assert elapsed_s - 1e-6 <= row["time/elapsed_s"] <= elapsed_s + look_steps * step_s


def test_what_trains_behind_the_end_of_the_process_is_not_looked_at():
    """Such as a handler of atexit that was registered before the first step."""
    optimizer, recorder = object(), object.__new__(Recorder)
    recorder.pid, recorder.laps = os.getpid(), SimpleNamespace(now=lambda: 1)
    recorder.window = recorder.files = None
    recorder.new_ends, recorder.ends_to_come, recorder.steps_to_look = [], 0, 5
    recorder.rule = SimpleNamespace(decide_at_end=lambda: ())
    recorder.quick_kind, recorder.quick_key = "optimizer", id(optimizer)
    recorder.quick_now = recorder.laps.now
    recorder.end()
    recorder.mark("optimizer", optimizer)
    assert recorder.off and recorder.new_ends == []


@pytest.mark.parametrize(("late_ms", "first"), [(1.0, 13), (2.0, 63)])
def test_a_window_waits_for_steady_steps_but_not_for_ever(late_ms, first):
    """The first half of ten steps takes 1 ms each, the second `late_ms`."""
    window, ms = Window(None, "nsys", None, 20), []
    laps = SimpleNamespace(ms=ms, read=lambda wait: None)
    while not window.is_due(len(ms), laps):
        ms.append(1.0 if len(ms) % 10 < 5 else late_ms)
    assert len(ms) == first
