"""Predicted peaks and tried ones: a table of made-up snapshots in place of a GPU's."""

import json

import pytest

from tests.helpers.memory_snapshots import Allocator, Training, pickled
from validation import memory_fit
from validation.memory_fit import FitConfig, Run, Trial, main, merged, runs_of, trials
from validation.packed_snapshots import pack
from validation.recorded_memory import KINDS, Tried


def training(batch: int) -> Training:
    """A training whose peak is 75 MiB and 5.625 MiB a sample."""
    return Training(Allocator(expandable=True), 8, 3 << 20, batch * 640 * 1024).make().run(3)


@pytest.fixture
def made_up(monkeypatch):
    """Trials of made-up programs; returns those that ran. One that says `fails` fails once."""
    ran = []
    runs = [Run("trainer", batch, 1024) for batch in (8, 16, 32)]
    other = Run("trainer", 64, 1024, "dtype=fails")
    found = [Trial("batch=32", runs[2], (runs[0], runs[1])), Trial("batch=64", other, (runs[1],))]
    monkeypatch.setattr(memory_fit, "trials", lambda: found)

    def run_one(run, small, out):
        ran.append(run.name)
        if run.keys and ran.count(run.name) == 1:
            return False
        made, peak = training(run.batch), training(run.batch).allocator.peak
        (out / f"{run.name}.pickle").write_bytes(pickled(made.snapshot()))
        pack(out / f"{run.name}.pickle", out / memory_fit.SNAPSHOTS)
        tried = {"gpu": "G", "memory_bytes": 1 << 36, "reserved_bytes": None}
        peak += 10 << 20 if run.keys else 0  # which is in no snapshot
        memory_fit.measured_at(out, run).write_text(json.dumps(tried | {"peak_bytes": peak}))
        return True

    monkeypatch.setattr(memory_fit, "run_one", run_one)
    return ran


def test_a_row_for_each_prediction_and_whether_the_json_is_exact(made_up, tmp_path, capsys):
    main(FitConfig(out=str(tmp_path), at_once=1))
    printed = capsys.readouterr().out
    assert (
        "| batch 32 | 255.0 MiB | 255.0 MiB to 255.0 MiB | 255.0 MiB | +0.00 % | yes |" in printed
    )
    assert "-2.25 % | no |" in printed and "2 of 2 predictions are within 3 %, the l" in printed
    assert "4 of 4 programs were run; 3 of 4 peaks in the JSON are" in printed
    assert "trainer-b64-c1024-dtype_fails: 456130560 bytes in the JSON, 466616320" in printed
    assert (tmp_path / "table.md").read_text() in printed
    lines = (tmp_path / "predicted.jsonl").read_text().splitlines()
    assert [json.loads(line)["tried"]["gpu"] for line in lines] == ["G", "G"]
    count = len(made_up)
    assert count == 5, "what failed was tried again"
    main(FitConfig(out=str(tmp_path)))
    assert len(made_up) == count, "nothing is measured twice"


def test_what_is_too_late_is_left_for_the_next_command(made_up, tmp_path, capsys):
    main(FitConfig(out=str(tmp_path), limit_s=1e-9))
    assert not made_up and "0 of 4 programs were run" in capsys.readouterr().out


def test_the_trials_are_enough_and_each_program_runs_once():
    found = trials()
    of_trainer = [trial for trial in found if trial.tried.kind == "trainer"]
    assert len(of_trainer) >= 12 and {trial.tried.kind for trial in found} == set(KINDS)
    names = [run.name for run in runs_of(found)]
    assert len(names) == len(set(names)) and sum("compile" in name for name in names) == 2
    assert merged("a=1 b=2", "b=3", "") == ["a=1", "b=3"]
    assert Tried(None, None, None, None).peak_bytes is None
