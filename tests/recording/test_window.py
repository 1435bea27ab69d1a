"""Opening and closing of a window, with a recorder that only takes notes and a clock of the test.

Real recorders: test_spans.py (cudart), test_capture.py (torch.profiler).
"""

import json
from contextlib import contextmanager

import pytest
import torch

from configs.profiling import ProfileConfig, plan_windows
from model import attend
from profiling.recording import layers
from profiling.recording.recording import FREE_LAPS, NoRecording, Recording
from profiling.recording.schedule import PATIENCE_STEPS, SETTLE_STEPS, Schedule, is_stable
from profiling.recording.spans import Spans
from profiling.recording.window import Window
from profiling.shared.manifest import CapturedWindow, Manifest
from training.step.clock import HISTORY, HostClock


class Notes:
    """A recorder."""

    return_codes = nsys_attached = None

    def __init__(self, fails: str = ""):
        self.calls, self.fails = [], fails

    def note(self, name: str) -> None:
        self.calls.append(name)
        if name == self.fails:
            raise RuntimeError(f"{name}\nfailed")

    def prepare(self):
        self.note("prepare")

    def start(self):
        self.note("start")
        self.multithreading = torch.autograd.set_multithreading_enabled(True).prev

    def stop(self, stem):
        self.note("stop")
        return [stem.with_name(stem.name + ".notes")]

    def close(self):
        self.note("close")


class Loop:
    """A loop that does with a window what the trainer's does."""

    def __init__(
        self, folder, first=0, max_iters=100, eval_interval=50, fails="", captures=True, **profile
    ):
        self.profile = ProfileConfig(kind="nsys", **profile)
        self.folder, self.first, self.max_iters = folder, first, max_iters
        self.recorder, self.clock, spans = Notes(fails), HostClock(self.profile.steps), Spans()
        recording = NoRecording()
        if captures:
            run = Manifest(schema_version=1, kind="nsys", window=CapturedWindow(), config={})
            model = torch.nn.Linear(2, 2)
            recording = Recording(self.recorder, self.profile, spans, model, folder, run)
        schedule = Schedule(self.profile, first, max_iters, eval_interval)
        self.window = Window(self.profile, schedule, recording, spans, self.clock)
        self.labels = []

    def run(self, work=lambda iteration: None) -> list[int]:
        """The iterations that were captured."""
        with self.window:
            for iteration in range(self.first, self.max_iters):
                with self.window.iteration(iteration):
                    work(iteration)
                    self.clock.lap(self.window.label)
                    self.labels.append((iteration, self.window.label))
        return [iteration for iteration, label in self.labels if label == "captured"]

    def manifest(self, number=1):
        return json.loads((self.folder / f"window-{number}.json").read_text())


def test_a_window_is_exactly_its_iterations(tmp_path):
    loop = Loop(tmp_path, start="10", steps=7)
    assert loop.run() == list(range(10, 17))
    assert loop.recorder.calls[:3] == ["prepare", "start", "stop"]
    assert loop.recorder.multithreading is False  # backward on the calling thread, in it alone
    assert torch.autograd.set_multithreading_enabled(True).prev is True
    manifest = loop.manifest()
    assert manifest["window"] == {
        "first_iteration": 10,
        "last_iteration": 16,
        "steps": 7,
        "steps_asked": 7,
        "moved_from": None,
        "complete": True,
        "ended_by": None,
        "errors": [],
    }
    laps = {when: len(manifest["step_ms"][when]["laps"]) for when in manifest["step_ms"]}
    assert laps == {"before": 10, "captured": 7, "after": FREE_LAPS}
    assert manifest["files"] == ["window-1.notes"] and manifest["overhead_percent"] is not None
    assert len(loop.clock.read().ms) == 93


def test_the_manifest_is_there_before_the_step_times_after_it(tmp_path):
    loop, seen = Loop(tmp_path, start="10", steps=5), {}
    loop.run(lambda i: seen.update({i: loop.manifest()["step_ms"]["after"]}) if i > 14 else None)
    without = [iteration for iteration, after in seen.items() if after is None]
    assert without == list(range(15, 15 + FREE_LAPS))


@pytest.mark.parametrize(
    "start, expected",
    [(30, 30), (31, 50), (49, 50), (50, 50), (0, 0), (99, 100)],
)
def test_a_window_with_an_evaluation_moves_behind_it(start, expected):
    """Evaluations come before iterations 0, 50, 100."""
    (planned,) = plan_windows(ProfileConfig(steps=20), start, eval_interval=50)
    assert (planned.asked, planned.first) == (start, expected)


def test_moving_is_said_and_recorded(tmp_path, caplog):
    caplog.set_level("INFO")
    loop = Loop(tmp_path, start="45", steps=10)
    assert loop.run() == list(range(50, 60))
    assert "moved from iteration 45 to after an evaluation" in caplog.text
    assert loop.manifest()["window"]["moved_from"] == 45


def test_several_windows(tmp_path):
    loop = Loop(tmp_path, start="5", steps=5, windows=3, every=20)
    assert loop.run() == [*range(5, 10), *range(25, 30), *range(45, 50)]
    assert [loop.manifest(n)["window"]["first_iteration"] for n in (1, 2, 3)] == [5, 25, 45]


def test_windows_that_are_moved_do_not_overlap():
    windows = plan_windows(ProfileConfig(steps=20, windows=3, every=20), 40, eval_interval=50)
    assert [window.first for window in windows] == [50, 70, 100]


def test_iterations_count_from_the_run_s_beginning_after_a_resume(tmp_path, caplog):
    loop = Loop(tmp_path, first=30, start="20", steps=5, windows=2, every=20)
    assert loop.run() == list(range(40, 45))
    assert "the run continues at iteration 30; the window at 20 is skipped" in caplog.text
    again = Loop(tmp_path, first=50, start="60", steps=5)
    again.run()
    assert again.manifest(1)["window"]["first_iteration"] == 40  # not overwritten
    assert again.manifest(2)["window"]["first_iteration"] == 60


def test_an_exception_closes_the_window(tmp_path):
    def work(iteration):
        if iteration == 13:
            raise KeyboardInterrupt

    loop = Loop(tmp_path, start="10", steps=20)
    with pytest.raises(KeyboardInterrupt):
        loop.run(work)
    assert loop.recorder.calls == ["prepare", "start", "stop", "close", "close"]
    window = loop.manifest()["window"]
    assert (window["steps"], window["last_iteration"], window["complete"]) == (3, 12, False)
    assert window["ended_by"].startswith("KeyboardInterrupt")
    assert torch.autograd.set_multithreading_enabled(True).prev is True


def test_closing_early_is_recorded_and_training_goes_on(tmp_path):
    loop = Loop(tmp_path, start="10", steps=20)
    loop.run(lambda i: loop.window.close("interrupted") if i == 15 else None)
    window = loop.manifest()["window"]
    assert (window["steps"], window["ended_by"]) == (5, "interrupted")
    assert loop.recorder.calls.count("stop") == 1 and loop.labels[-1][0] == 99


@pytest.mark.parametrize("step", ["prepare", "start", "stop", "close"])
def test_training_survives_its_profiler(tmp_path, caplog, step):
    loop = Loop(tmp_path, start="10", steps=5, fails=step)
    loop.run()
    assert loop.labels[-1] == (99, None)
    assert f"profile=nsys: RuntimeError: {step} failed" in caplog.text
    if step != "close":
        window = loop.manifest()["window"]
        assert window["errors"] == [f"RuntimeError: {step} failed"]
        assert window["complete"] is False


def test_training_survives_layers_that_cannot_be_ranged(tmp_path, caplog, monkeypatch):
    monkeypatch.setitem(layers.FUNCTIONS, "renamed_in_model", "a layer")
    loop = Loop(tmp_path, start="10", steps=5, detail="layers")
    assert loop.run() == list(range(10, 15)) and loop.labels[-1] == (99, None)
    window = loop.manifest()["window"]
    assert window["complete"] is False and "renamed_in_model" in window["errors"][0]
    assert loop.recorder.calls[:3] == ["prepare", "start", "stop"], "phases are captured"
    assert layers.model_module.attend is attend, "what had been ranged is as before"


def test_training_survives_layers_that_cannot_be_left(tmp_path, monkeypatch):
    @contextmanager
    def layer_ranges(model, spans):
        yield
        raise RuntimeError("a hook was gone")

    monkeypatch.setattr("profiling.recording.recording.layer_ranges", layer_ranges)
    loop = Loop(tmp_path, start="10", steps=5, detail="layers")
    loop.run()
    assert loop.labels[-1] == (99, None)
    assert loop.manifest()["window"]["errors"] == ["RuntimeError: a hook was gone"]
    assert torch.autograd.set_multithreading_enabled(True).prev is True


def test_a_window_longer_than_the_clock_s_usual_memory(tmp_path):
    steps = HISTORY + 500
    loop = Loop(tmp_path, start="10", steps=steps, max_iters=steps + 100, eval_interval=10_000)
    loop.run()
    assert len(loop.manifest()["step_ms"]["captured"]["laps"]) == steps


def test_a_full_disk_is_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    loop = Loop(tmp_path / "file" / "profile", start="10", steps=5)
    assert loop.run() == list(range(10, 15))
    assert "NotADirectoryError" in caplog.text and loop.labels[-1][0] == 99


def test_a_compilation_inside_is_recorded(tmp_path, caplog):
    def work(iteration):
        if iteration == 12:
            torch._dynamo.utils.counters["stats"]["unique_graphs"] += 1

    loop = Loop(tmp_path, start="10", steps=5)
    loop.run(work)
    assert loop.manifest()["compiled_inside"]["graphs"] == 1
    assert "torch.compile compiled 1 graphs inside the window" in caplog.text


def test_a_rank_that_is_not_captured_labels_its_laps_alike(tmp_path):
    loop = Loop(tmp_path, start="10", steps=5, captures=False)
    assert loop.run() == list(range(10, 15))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("profile", [{}, {"windows": 2, "every": 15}, {"steps": 2}])
def test_ranks_that_capture_and_those_that_do_not_count_as_many_waits(tmp_path, profile):
    """A row gathers them, and gloo ends the process where one rank sends more than another."""
    waits = []
    for captures in (True, False):
        keys = {"start": "10", "steps": 5} | profile
        loop = Loop(tmp_path / f"{captures}", captures=captures, **keys)
        loop.clock.synchronises = True
        rows = []

        def work(iteration, loop=loop, rows=rows):
            if iteration % 10 == 0:
                rows.append(len(loop.clock.read().synchronised_ms))
            with loop.clock.synchronisation():
                pass

        loop.run(work)
        waits.append(rows)
    assert waits[0] == waits[1] and sum(waits[0]) > 60


def test_the_tracer_of_torch_is_on_some_iterations_before(tmp_path):
    loop = Loop(tmp_path, start="10", steps=5)
    loop.profile.kind, loop.profile.warmup = "torch", 3
    loop.run()
    prepared = [iteration for iteration, label in loop.labels if label == "prepared"]
    assert prepared == [7, 8, 9]
    assert len(loop.manifest()["step_ms"]["before"]["laps"]) == 7
    assert len(loop.clock.read().ms) == 100 - 5 - 3  # neither these nor those are step times


def settled_schedule(laps_ms, compiles_until=0, agreed=bool) -> tuple[Schedule, int]:
    schedule = Schedule(ProfileConfig(kind="nsys"), 0, 10_000, 10_000, agreed)
    for iteration in range(1, 1000):
        if schedule.wants_laps(iteration):
            if iteration <= compiles_until:
                torch._dynamo.utils.counters["stats"]["unique_graphs"] += 1
            schedule.decide_if_stable(iteration, laps_ms(iteration))
        if schedule.next():
            return schedule, schedule.next().first
    raise AssertionError("never settled")


def test_auto_opens_when_step_times_are_stable():
    falling = [100.0 - 3 * lap for lap in range(30)] + [10.0] * 1000
    _, first = settled_schedule(lambda iteration: falling[:iteration])
    assert first == 40


def test_auto_waits_for_the_last_compilation():
    _, first = settled_schedule(lambda iteration: [10.0] * iteration, compiles_until=50)
    assert first == 60


NOISY = [10.0 + (iteration // 5 % 2) * 5 for iteration in range(1000)]


def test_auto_does_not_wait_for_ever(caplog):
    _, first = settled_schedule(lambda iteration: NOISY[:iteration])
    assert first == PATIENCE_STEPS and "still varies" in caplog.text


def test_auto_that_is_stable_at_last_does_not_say_otherwise(caplog):
    laps = [*NOISY[: PATIENCE_STEPS - SETTLE_STEPS], *[10.0] * 1000]
    _, first = settled_schedule(lambda iteration: laps[:iteration])
    assert first == PATIENCE_STEPS and "still varies" not in caplog.text


def test_auto_with_a_restless_rank_elsewhere(caplog):
    """This rank is stable; the ranks wait together, and say together why they stop waiting."""
    _, first = settled_schedule(lambda iteration: [10.0] * iteration, agreed=lambda stable: False)
    assert first == PATIENCE_STEPS and "still varies" in caplog.text


def test_auto_opens_where_all_ranks_agree():
    asked = []

    def agreed(answer: bool) -> bool:
        asked.append(answer)
        return len(asked) > 3

    _, first = settled_schedule(lambda iteration: [10.0] * iteration, agreed=agreed)
    assert first == 4 * SETTLE_STEPS and all(asked)


def test_the_ranks_wait_for_each_other_once_all_record(tmp_path):
    loop = Loop(tmp_path, start="10", steps=2)
    loop.window.schedule.all_agree = lambda answer: loop.recorder.note("agreed")
    loop.run()
    assert loop.recorder.calls[:4] == ["prepare", "start", "agreed", "stop"]


def test_what_the_loop_owes_is_done_before_a_window_opens_and_before_it_closes(tmp_path):
    loop = Loop(tmp_path, start="10", steps=5)
    loop.window.write_pending = lambda: loop.recorder.note("settle")
    loop.run()
    assert loop.recorder.calls[:6] == ["settle", "prepare", "settle", "start", "settle", "stop"]


def test_auto_in_a_loop(tmp_path, monkeypatch):
    monkeypatch.setattr("profiling.recording.schedule.is_stable", lambda laps: len(laps) == 10)
    loop = Loop(tmp_path, steps=20)
    assert loop.run() == list(range(10, 30))


def test_a_window_that_no_longer_fits_is_not_opened(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("profiling.recording.schedule.is_stable", lambda laps: True)
    loop = Loop(tmp_path, first=85, steps=20, eval_interval=1000)
    assert loop.run() == []
    assert "1 of 1 windows do not fit before max_iters=100" in caplog.text


def test_stable_means_equal_medians():
    assert is_stable([10.0] * SETTLE_STEPS)
    assert is_stable([10, 10, 99, 10, 10, 10.5, 10.5, 99, 10.5, 10.5])
    assert not is_stable([10.0] * 5 + [12.0] * 5)
    assert not is_stable([10.0] * (SETTLE_STEPS - 1))
