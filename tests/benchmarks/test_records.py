"""Benchmark records: its processes and commands, what is kept when it stops, the tables."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarks import energy, records
from benchmarks.__main__ import BENCHMARKS
from benchmarks.energy import Reading, energy_readings, mean_power_w, poll
from benchmarks.record_commands import command, with_names
from benchmarks.record_tables import OURS, THEIRS, Record, Run, Trial, tables
from benchmarks.records import RecordsConfig, run_trial, trials, with_speed
from benchmarks.timed_training import TimedTraining
from profiling.analysis.bench.bench_records import Evaluation
from profiling.launch import process
from profiling.launch.bench.printed import Row, Training
from profiling.recording.nvml import ENERGY, READINGS
from tests.helpers.forked import FORKING

RUN = Run(
    trial=Trial("char", OURS, 0, 11),
    command=["train.py", "recipe=fast", "out_dir=OUT/runs/char-ours-1"],
    began="2026-11-26T12:00:00Z",
    wall_s=7.5,
    reached_s=6.25,
    reached_at=400,
    best_val_loss=1.4526,
    last_val_loss=1.4526,
    step_ms=4.25,
    rows_ms=[4.0, 4.25, 4.5],
    evaluations=[Evaluation(400, 6.25, 1.4526)],
)
MACHINE = {
    "python": "3.12.3", "packages": {"torch": "2.13.0", "triton": None}, "git": None, "cuda": None,
    "driver": "580.1", "gpus": [{"name": "NVIDIA H200"}], "cpu_cores": 16,
}  # fmt: skip
CONFIG = """
dtype: bfloat16
batch_size: 12
block_size: 1024
gradient_accumulation_steps: 1
in_force:
  {device: NVIDIA H200, parameters: 124000000, flops_per_token: 800000000, vocab_size: 50257,
   data: text}
"""


def test_both_sides_take_turns_behind_processes_that_fill_the_caches():
    config = RecordsConfig(against="x", seeds="11,12", batches="12,32")
    assert [trial.name for trial in trials(config)] == [
        "prepare-ours-1", "prepare-nanoGPT-1",
        "char-ours-1", "char-nanoGPT-1", "char-nanoGPT-2", "char-ours-2",
        "124m-12-ours-1", "124m-12-nanoGPT-1", "124m-32-ours-1", "124m-32-nanoGPT-1",
        "124m-32-nanoGPT-2", "124m-32-ours-2", "124m-12-nanoGPT-2", "124m-12-ours-2",
    ]  # fmt: skip
    seeds = {(trial.side, trial.seed) for trial in trials(config) if trial.part != "prepare"}
    assert seeds == {(OURS, 11), (OURS, 12), (THEIRS, None)}
    assert len(trials(replace(config, against="", parts="char"))) == 3


def test_commands_are_whole_trainings_of_nanogpts_experiment_and_ours(tmp_path):
    config = RecordsConfig(against=str(tmp_path))
    folder, ours = command(Trial("char", OURS, 0, 11), config, tmp_path)
    assert ours == [
        "train.py", "config/shakespeare_char.yaml", "recipe=fast", "offline_fallback=false",
        "wandb.mode=disabled", "seed=11", f"out_dir={tmp_path}/runs/char-ours-1",
    ]  # fmt: skip
    folder, theirs = command(Trial("char", THEIRS), config, tmp_path)
    assert folder == tmp_path and theirs == [
        "train.py", "config/train_shakespeare_char.py",
        f"--out_dir={tmp_path}/runs/char-nanoGPT-1",
    ]  # fmt: skip
    assert "--max_iters=20" in command(Trial("prepare", THEIRS), config, tmp_path)[1]


def test_commands_of_124m_read_the_same_tokens_in_the_same_batches(tmp_path):
    config = RecordsConfig(against=str(tmp_path), tokens=str(tmp_path / "tokens"))
    _, ours = command(Trial("124m", OURS, 0, 11, 32), config, tmp_path)
    _, theirs = command(Trial("124m", THEIRS, 0, None, 32), config, tmp_path)
    shared = [f"dataset={tmp_path}/tokens", "batch_size=32", "max_iters=400"]
    assert set(shared) | {"seed=11", "attention=triton", "compile_scope=model"} <= set(ours)
    assert {f"--{word}" for word in [*shared, "gradient_accumulation_steps=1"]} <= set(theirs)
    named = with_names(theirs, config, tmp_path)
    assert "--dataset=TOKENS" in named and "--out_dir=OUT/runs/124m-32-nanoGPT-1" in named


def test_tokens_that_are_not_given_are_random_and_the_same_each_time(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.record_commands.RANDOM_TOKENS", {"train": 100, "val": 50})
    trial, seen = Trial("124m", OURS, 0, 11, 12), []
    for _ in range(2):
        command(trial, RecordsConfig(), tmp_path)
        seen.append((tmp_path / "tokens" / "train.bin").read_bytes())
        shutil.rmtree(tmp_path / "tokens")
    assert seen[0] == seen[1] and len(seen[0]) == 200


@pytest.fixture
def ended(monkeypatch):
    """Names of the trials that were run; a function in `failing` decides which fail."""
    names, failing = [], set()

    def run_trial(trial, config, out):
        names.append(trial.name)
        if trial.name in failing:
            raise ValueError(f"{trial.name}: ended with exit code 1")
        return replace(RUN, trial=trial)

    monkeypatch.setattr(records, "run_trial", run_trial)
    return names, failing


def test_what_failed_is_named_and_the_same_command_goes_on(tmp_path, ended, capsys):
    names, failing = ended
    failing.add("124m-12-ours-1")
    words = ["records", "parts=124m", "seeds=11,12", "batches=12", f"out={tmp_path}"]
    with pytest.raises(SystemExit, match=r"records: failed: 124m-12-ours-1; the logs are in .*"):
        BENCHMARKS.run(words)
    assert names == ["124m-12-ours-1", "124m-12-ours-2"]
    assert len(capsys.readouterr().err.splitlines()) == 2
    failing.clear()
    BENCHMARKS.run(words)
    assert names[2:] == ["124m-12-ours-1"]
    BENCHMARKS.run([*words, "seeds=11,12,13"])
    assert names[3:] == ["124m-12-ours-3"]
    kept = json.loads((tmp_path / "records.json").read_text("utf-8"))
    assert [run["trial"]["seed"] for run in kept["runs"]] == [12, 11, 13]
    assert (tmp_path / "records.md").read_text("utf-8") in capsys.readouterr().out
    with pytest.raises(ValueError, match="has a record with other iterations, loss; name another"):
        BENCHMARKS.run([*words, "loss=1.5", "iterations=500"])


def test_no_process_starts_that_would_end_too_late(tmp_path, ended, capsys):
    names, _ = ended
    words = ["records", "parts=124m", "seeds=11,12", "batches=12", f"out={tmp_path}"]
    BENCHMARKS.run([*words, "limit_s=89"])
    assert names == [] and "2 processes are left" in capsys.readouterr().err
    assert not (tmp_path / "records.json").exists()
    BENCHMARKS.run([*words, "limit_s=95"])  # the first took 7.5 s, so there is room for another
    assert len(names) == 2


def test_another_text_gives_no_record(tmp_path, text_file, project_data):
    words = ["records", "parts=char", f"text={text_file}", f"out={tmp_path}/out"]
    with pytest.raises(ValueError, match=r"text=.*: is not tiny Shakespeare"):
        BENCHMARKS.run(words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "word, message",
    [
        ("parts=char,gpt", "parts=gpt: no such part; use char,124m"),
        ("seeds=a", "seeds=a: not numbers by comma"),
        ("batches=0", "batches=0: not numbers by comma"),
        ("against=nowhere", "against=nowhere: no checkout of nanoGPT"),
        ("text=nowhere", "text=nowhere: no such file"),
    ],
)
def test_mistakes_are_named_before_a_folder_is_made(word, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        BENCHMARKS.run(["records", word, f"out={tmp_path}/out"])
    assert not list(tmp_path.iterdir())


def test_tables_say_what_was_not_reached_and_what_is_not_known():
    never = replace(
        RUN, trial=Trial("char", THEIRS), reached_s=None, reached_at=None, last_val_loss=1.7
    )
    steps = replace(RUN, trial=Trial("124m", OURS, 0, 11, 12), mfu=0.533, energy_per_token_j=1e-3)
    record = Record({"loss": 1.47}, MACHINE, "86c4", None, {}, [RUN, never, steps])
    lines = tables(record).splitlines()
    assert "| ours | 1 of 1 | 6.25 (6.25, 6.25) | 7.50 (7.50, 7.50) |" in "\n".join(lines)
    assert "| nanoGPT | 0 of 1 | not reached | 7.50 (7.50, 7.50) | 1.7000" in "\n".join(lines)
    assert "| char-ours-1 | 11 | 6.25 | 400 | 7.50 | 1.4526 | 1.4526 | 4.25 |" in lines
    assert "| char-nanoGPT-1 | its own | not reached | not reached | 7.50 |" in "\n".join(lines)
    assert "| 124m-12-ours-1 | 11 | 4.25 (4.00, 4.50) | 53.3 | 1.000 | not known | 7.50 |" in lines
    assert "- GPU: NVIDIA H200; driver 580.1; CUDA not known; 16 CPU cores" in lines
    assert "- Commit: not known" in lines


def test_a_loss_counts_below_the_limit_alone(tmp_path, monkeypatch):
    (tmp_path / "logs").mkdir()
    losses = [4.2, 1.47, 1.4699, 1.5]

    def time_training(*_):
        evaluations = [Evaluation(at, at / 10, loss) for at, loss in enumerate(losses)]
        return TimedTraining(0.0, 9.0, 4.0, Training([], evaluations))

    monkeypatch.setattr(records, "time_training", time_training)
    run = run_trial(Trial("char", OURS, 0, 11), RecordsConfig(), tmp_path)
    assert (run.reached_at, run.reached_s) == (2, 0.2)
    assert (run.best_val_loss, run.last_val_loss) == (1.4699, 1.5)
    losses[2] = 1.48
    run = run_trial(Trial("char", OURS, 0, 11), RecordsConfig(), tmp_path)
    assert (run.reached_at, run.reached_s) == (None, None)
    losses[2] = float("nan")
    with pytest.raises(ValueError, match="char-ours-1: its validation loss is not finite"):
        run_trial(Trial("char", OURS, 0, 11), RecordsConfig(), tmp_path)


def test_mfu_and_energy_are_of_the_steps_behind_the_warm_up(tmp_path):
    """One step takes 12,288 tokens in 20 ms at 700 W; before the warm-up the power is another."""
    for name in ("124m-12-ours-1", "124m-12-nanoGPT-1"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / "124m-12-ours-1" / "config.yaml").write_text(CONFIG)
    (tmp_path / "runs" / "124m-12-ours-1" / "summary.json").write_text(
        '{"perf/energy_per_token_j": 0.002}'
    )
    rows = [Row(number, number / 50, 20.0, False) for number in range(0, 401, 10)]
    timed = TimedTraining(100.0, 10.0, 20.0, Training(rows, []))
    readings = [Reading(100 + tenth / 10, tenth * (70 if tenth > 19 else 1)) for tenth in range(90)]
    run = replace(RUN, trial=Trial("124m", OURS, 0, 11, 12), step_ms=20.0)
    ours = with_speed(run, timed, readings, tmp_path, 100)
    assert ours.power_w == pytest.approx(700)
    assert ours.energy_per_token_j == pytest.approx(700 * 0.02 / 12_288)
    assert ours.own_energy_per_token_j == 0.002
    assert ours.mfu == pytest.approx(8e8 * 12_288 / 0.02 / 989.4e12, rel=1e-3)
    theirs = replace(run, trial=Trial("124m", THEIRS, 0, None, 12), step_ms=40.0)
    beside = with_speed(theirs, timed, [], tmp_path, 100)
    assert beside.mfu == pytest.approx(ours.mfu / 2) and beside.own_energy_per_token_j is None
    assert (beside.power_w, beside.energy_per_token_j) == (None, None)
    other = replace(run, trial=Trial("124m", THEIRS, 0, None, 32))
    assert with_speed(other, timed, readings, tmp_path, 100) == other  # no run of ours has 32


def test_power_is_from_new_value_to_new_value_of_the_counter(monkeypatch):
    values = iter([5.0, 5.0, 5.0, 12.0, 12.0, 20.0])
    monkeypatch.setitem(READINGS, ENERGY, lambda gpu: next(values))
    monkeypatch.setattr(energy, "handle_of", lambda uuid: uuid)
    for name in ("nvmlInit", "nvmlShutdown"):
        monkeypatch.setattr(energy.pynvml, name, lambda: None)
    polls = iter([False] * 6 + [True])
    readings = []
    poll("uuid", readings, SimpleNamespace(wait=lambda s: next(polls)))
    assert [reading.joules for reading in readings] == [5.0, 12.0, 20.0]
    with energy_readings(None) as none:
        pass
    assert none == [] and mean_power_w(none, 0.0, 1.0) is None
    known = [Reading(0.0, 0.0), Reading(1.0, 50.0), Reading(2.0, 350.0), Reading(3.0, 900.0)]
    assert mean_power_w(known, 0.5, 2.5) == 300.0


def test_a_driver_without_a_counter_is_named(monkeypatch, capsys):
    def refuse():
        raise energy.NVMLError(energy.pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(energy.pynvml, "nvmlInit", refuse)
    with energy_readings("uuid") as readings:
        pass
    assert readings == [] and "no energy: NVML answers" in capsys.readouterr().err


@pytest.mark.slow
def test_small_processes_are_trained_and_kept(tmp_path, text_file, project_data, monkeypatch):
    monkeypatch.setattr(process, "subprocess", FORKING)
    words = ["small=true", "seeds=1", "batches=2", "iterations=60", "warm_up=20", "loss=9"]
    BENCHMARKS.run(["records", *words, f"text={text_file}", f"out={tmp_path}"])
    kept = json.loads((tmp_path / "records.json").read_text("utf-8"))
    prepare, char, steps = kept["runs"]
    assert prepare["trial"]["part"] == "prepare" and len(prepare["rows_ms"]) >= 1
    assert 0 < char["reached_s"] < char["wall_s"] and char["reached_at"] == 0
    assert char["evaluations"][-1]["iteration"] == 400
    assert len(steps["rows_ms"]) == 3 and steps["mfu"] is None and steps["power_w"] is None
    assert "TEXT" in " ".join(char["command"]) and str(tmp_path) not in " ".join(char["command"])
    logs = {path.name for path in (tmp_path / "logs").iterdir()}
    assert logs == {"prepare-ours-1.log", "char-ours-1.log", "124m-2-ours-1.log"}
