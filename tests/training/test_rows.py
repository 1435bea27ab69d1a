"""Rows that are written an iteration late, as on a GPU: the same rows, in the same places.

The device that runs ahead is a fake: what it copies is there at once, but its row is written late.
"""

import json
import os
import signal
from pathlib import Path

import pytest
import torch

from configs.profiling import ProfileConfig
from profiling.recording.recording import Recording
from tests.helpers.clock import GivenClock
from tests.helpers.late_rows import copy_at_once
from tests.helpers.spoilt_gradient import spoil_gradient
from training.disk import checkpoint
from training.metrics import rows
from training.metrics.tracker import Tracker
from training.step.step import Step

MEASURED = ("time/", "perf/", "cpu/", "profile/step_ms", "memory/")  # differ from run to run


@pytest.fixture
def late(monkeypatch):
    """late(): from here on runs are as on a device that runs ahead."""

    def switch() -> None:
        monkeypatch.setattr(rows, "runs_ahead", lambda device: True)
        monkeypatch.setattr(rows, "copy_scalars", copy_at_once)

    return switch


@pytest.fixture
def events(monkeypatch):
    """Lists what the run does, in order: iterations launched, rows, evaluations, checkpoints."""
    seen: list[str] = []
    update, log, save = Step.update, Tracker.log, checkpoint.save

    def updated(self, lr):
        update(self, lr)
        seen.append("launch")

    def logged(self, row):
        seen.append(f"{'row' if 'lr' in row else 'evaluation'} {row['iter']}")
        log(self, row)

    def saved(run):
        seen.append(f"save {run.progress.iteration}")
        save(run)

    monkeypatch.setattr(Step, "update", updated)
    monkeypatch.setattr(Tracker, "log", logged)
    monkeypatch.setattr(checkpoint, "save", saved)
    return seen


def rows_of(out_dir: Path) -> list[dict]:
    """The lines of metrics.jsonl in order; of what differs from run to run whether it is there."""
    found = []
    for line in (out_dir / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        row.pop("run", None)
        found.append(
            {
                key: value is None if key.startswith(MEASURED) else value
                for key, value in row.items()
            }
        )
    return found


def times(out_dir: Path) -> list[bool]:
    """Tells of each iteration whether its time is known."""
    found = json.loads((out_dir / "step_times.json").read_text())
    return [ms is not None for ms in found["ms"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        {"log_interval": 1},
        {"log_interval": 3, "max_iters": 20},
        {"log_interval": 4, "max_iters": 21, "always_save_checkpoint": True},
        {"log_interval": 1, "gradient_accumulation_steps": 2, "dropout": 0.1},
        pytest.param(
            {
                "log_interval": 2,
                "max_iters": 30,
                "eval_interval": 30,
                "profile": ProfileConfig(kind="torch", start="10", steps=7, windows=2, every=10),
            },
            marks=pytest.mark.slow,
        ),
    ],
    ids=["each", "third", "fourth", "micro-steps", "windows"],
)
def test_rows_and_their_order_are_those_of_a_device_that_does_not_run_ahead(
    keys, run, late, tmp_path
):
    now = run(**keys, out_dir=str(tmp_path / "now"))
    late()
    later = run(**keys, out_dir=str(tmp_path / "later"))
    assert rows_of(later) == rows_of(now) and len(rows_of(now)) > 8
    assert times(later) == times(now)


def test_a_row_is_written_behind_the_next_launch_and_before_what_follows_it(run, late, events):
    late()
    run(max_iters=6, eval_interval=4, log_interval=3, always_save_checkpoint=True)
    assert [event for event in events if event != "launch"] == [
        *("evaluation 0", "row 0", "row 3", "evaluation 4", "save 4", "evaluation 6", "save 6"),
    ]
    assert events[events.index("row 0") - 2 :][:2] == ["launch", "launch"]
    before = events[: events.index("row 3")]
    assert before.count("launch") - events[: events.index("row 0")].count("launch") == 2
    assert events[events.index("row 3") + 1] == "evaluation 4"


@pytest.mark.slow
def test_a_row_is_written_before_a_window_opens_and_before_it_closes(
    run, late, events, monkeypatch
):
    opened, closed = Recording.open, Recording.close

    def open_window(self):
        events.append("open")
        opened(self)

    def close_window(self, *args):
        events.append("close")
        closed(self, *args)

    monkeypatch.setattr(Recording, "open", open_window)
    monkeypatch.setattr(Recording, "close", close_window)
    late()
    profile = ProfileConfig(kind="torch", start="9", steps=7)
    run(max_iters=20, eval_interval=20, log_interval=2, profile=profile)
    before = events[: events.index("open")]
    assert before[-1] == "row 8" and before.count("launch") == 9
    before = events[: events.index("close")]
    assert before[-1] == "row 14" and before.count("launch") == 16


def test_without_such_a_device_a_row_is_written_at_once(run, events):
    run(max_iters=4, eval_interval=4)
    begin = events.index("evaluation 0")
    assert [event for event in events[begin:] if not event.startswith("save")] == [
        "evaluation 0",
        *(word for i in range(4) for word in ("launch", f"row {i}")),
        "evaluation 4",
    ]


def test_times_are_those_up_to_the_row(run, late, monkeypatch):
    laps, waited = [], []

    def trained(self, iteration, lr, readings, found, *rest, trained=rows.Record.log_training):
        laps.append((iteration, len(found.ms)))
        waited.extend([rest[-1], self.run.train_batches.waited_s])
        trained(self, iteration, lr, readings, found, *rest)

    monkeypatch.setattr(rows.Record, "log_training", trained)
    late()
    run(max_iters=13, eval_interval=20, log_interval=5)
    assert laps == [(0, 1), (5, 5), (10, 5)]
    assert waited == sorted(set(waited)) and waited[0] > 0, "a batch was drawn behind each row"


def test_a_clock_reads_laps_up_to_a_row_and_waits_for_none_behind_it():
    clock = GivenClock([0, *range(100)], synchronises=False)
    for _ in range(3):
        clock.lap()
    row = clock.count()
    clock.lap("captured")
    clock.start()  # makes laps of all so far
    clock.lap()
    clock.lap()
    assert clock.read(row).ms == [0, 1e3, 1e3] and len(clock.marked) == 2
    laps = clock.read(2)
    assert (laps.ms, laps.captured_ms) == ([1e3], [1e3]) and len(clock.marked) == 1
    assert clock.read().ms == [1e3] and clock.count() == 0 and clock.read().ms == []


def test_ctrl_c_writes_the_row_before_it_saves_and_a_resume_goes_on(
    run, late, events, monkeypatch, losses, tmp_path
):
    keys = dict(eval_interval=100, log_interval=3, dropout=0.1)
    straight = run(max_iters=9, out_dir=str(tmp_path / "straight"), **keys)
    late()
    launched = []

    def update(self, lr, update=Step.update):
        update(self, lr)
        launched.append(lr)
        if len(launched) == 7:  # iteration 6, whose row is owed
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Step, "update", update)
    events.clear()
    with pytest.raises(SystemExit, match="130"):
        run(max_iters=9, **keys)
    assert events[-2:] == ["row 6", "save 7"]
    out_dir = run(max_iters=9, init_from="resume", **keys)
    assert losses(out_dir) == losses(straight)


@pytest.mark.slow
@pytest.mark.parametrize("log_interval, launched", [(1, 12), (7, 16), (1000, 16)])
def test_a_gradient_that_is_no_number_ends_the_run_an_iteration_later_and_costs_no_weight(
    run, late, monkeypatch, tmp_path, log_interval, launched
):
    keys = dict(eval_interval=8, always_save_checkpoint=True)
    straight = run(max_iters=10, out_dir=str(tmp_path / "straight"), **keys)
    expected = torch.load(straight / "ckpt.pt", weights_only=True)
    steps = spoil_gradient(monkeypatch, call=11)
    late()
    words = r"gradients are not finite since iteration 10; .*ckpt.pt is the last good checkpoint"
    with pytest.raises(SystemExit, match=words):
        run(max_iters=24, log_interval=log_interval, **keys)
    assert torch.load(tmp_path / "out" / "ckpt.pt", weights_only=True)["iter_num"] == 8
    last = steps[-1].model.state_dict()
    torch.testing.assert_close(last, expected["model"], rtol=0, atol=0)
    assert len(steps) == launched


def test_a_loss_that_is_no_number_has_its_row_and_no_checkpoint_is_made_of_it(run, late):
    out_dir = run(max_iters=4, always_save_checkpoint=True)
    late()
    with pytest.raises(SystemExit, match="loss is nan at iteration .*last good checkpoint"):
        run(init_from="resume", learning_rate=1e30, max_iters=50, always_save_checkpoint=True)
    assert torch.load(out_dir / "ckpt.pt", weights_only=True)["iter_num"] == 4
    assert rows_of(out_dir)[-1]["train/loss"] is None


def fail_at(monkeypatch, number: int) -> None:
    forward, calls = Step.forward, []

    def failing(self, x, y):
        calls.append(x)
        if len(calls) == number:
            raise ValueError("batch_size=4: out of memory")
        return forward(self, x, y)

    monkeypatch.setattr(Step, "forward", failing)
    monkeypatch.setattr("training.step.warm_up.say_how_long", lambda *_: None)  # it steps, too


def test_an_error_leaves_no_row_behind(run, late, monkeypatch, tmp_path):
    late()
    fail_at(monkeypatch, 4)
    with pytest.raises(ValueError, match="out of memory"):
        run(eval_interval=100)
    assert [row["iter"] for row in rows_of(tmp_path / "out") if "lr" in row] == [0, 1, 2]


def test_a_row_that_cannot_be_read_any_more_does_not_hide_the_error(
    run, late, monkeypatch, tmp_path
):
    late()

    def broken(scalars):
        def read():
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

        return read

    fail_at(monkeypatch, 2)
    monkeypatch.setattr(rows, "copy_scalars", broken)
    with pytest.raises(ValueError, match="out of memory"):
        run(eval_interval=100)


def test_a_cpu_has_nothing_to_do_while_a_row_is_written():
    assert rows.runs_ahead(torch.device("cuda", 0))
    assert not rows.runs_ahead(torch.device("cpu"))


LATE = """
import train
from configs import command_line
from tests.helpers.late_rows import copy_at_once
from training.metrics import rows

rows.runs_ahead, rows.copy_scalars = lambda device: True, copy_at_once
{more}
command_line.run(train.train)
"""

ONE_FAILS = """
import os
from training.step import warm_up
from training.step.step import Step

warm_up.say_how_long = lambda *_: None  # it steps, too
losses = []

def backward(self, loss, backward=Step.backward):
    losses.append(loss)
    if os.environ["RANK"] == "1" and len(losses) == 4:
        raise ValueError("batch_size=4: out of memory")
    backward(self, loss)

Step.backward = backward
"""


def late_script(folder: Path, more: str = "") -> Path:
    path = folder / "late_rows.py"
    path.write_text(LATE.format(more=more))
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [{}, {"profile": "torch", "profile.start": 5, "profile.steps": 3}],
    ids=["rows", "a window of one rank"],
)
def test_several_ranks_owe_rows_too(keys, together, command, tmp_path):
    """The ranks come to a row together, also where one of them alone captures a window."""
    shared = dict(gradient_accumulation_steps=2, max_iters=11, log_interval=2, **keys)
    now, _ = together(2, out_dir=str(tmp_path / "now"), **shared)
    found = [rows_of(tmp_path / "now")]
    together(2, late_script(tmp_path), out_dir=str(tmp_path / "later"), **shared)
    found.append(rows_of(tmp_path / "later"))
    assert [row["iter"] for row in found[0] if "lr" in row] == [0, 2, 4, 6, 8, 10]
    assert found[1] == found[0]


@pytest.mark.slow
def test_an_error_of_one_rank_does_not_wait_for_the_others_with_the_row_it_owes(together, tmp_path):
    """Row 2, in iteration 3: the other rank waits for gradients, and comes to no row."""
    script = late_script(tmp_path, ONE_FAILS)
    keys = dict(gradient_accumulation_steps=2, max_iters=8, log_interval=2)
    with pytest.raises(AssertionError, match=r"iter 0:(?s:.*)error: batch_size=4: out of memory"):
        together(2, script, **keys)
