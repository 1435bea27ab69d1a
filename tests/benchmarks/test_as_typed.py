"""Benchmark as_typed: real processes on a CPU, the caches, the table."""

import pytest

from benchmarks import as_typed
from benchmarks.__main__ import BENCHMARKS
from benchmarks.as_typed import THEIRS, AsTypedConfig, Pair, Process, command, row
from profiling.launch import process
from tests.helpers.forked import FORKING

TINY = "device=cpu compile=false n_layer=1 n_head=1 n_embd=8 block_size=16 batch_size=2 dropout=0"


def test_both_sides_train_and_evaluate_alike(tmp_path):
    config = AsTypedConfig(words="dropout=0", against=str(tmp_path), theirs="config/x.py --a=1")
    _, ours = command("attention=slow", config, tmp_path / "out")
    folder, theirs = command(THEIRS, config, tmp_path / "out")
    assert ours[:4] == [
        "train.py", "config/shakespeare_char.yaml", "attention=slow", "dropout=0",
    ]  # fmt: skip
    assert folder == tmp_path and theirs[:3] == ["train.py", "config/x.py", "--a=1"]
    for key in ("max_iters=1000", "eval_interval=1000", "log_interval=10"):
        assert key in ours and f"--{key}" in theirs


def test_a_row_has_the_median_and_the_spread():
    pairs = [Pair(Process(30.0, 5.0, 1.5), Process(20.0, 5.5, 1.5)) for _ in range(2)]
    pairs.append(Pair(Process(33.0, 5.25, 1.4), Process(19.0, 5.25, 1.6)))
    assert row("a=1", pairs) == (
        "| a=1 | 5.25 (5.00, 5.50) | 30.0 (30.0, 33.0) | 20.0 (19.0, 20.0) | 1.500 (1.400, 1.600) |"
    )


def test_a_first_process_finds_no_cache_and_the_second_its_own(tmp_path, monkeypatch):
    seen = []

    def run_training(name, config, out, environ):
        places = [tmp_path / environ[variable] for variable in as_typed.CACHES]
        seen.append([place.exists() for place in places])
        for place in places:
            place.mkdir(parents=True, exist_ok=True)
        return Process(1.0, 1.0, 1.0)

    monkeypatch.setattr(as_typed, "run_training", run_training)
    BENCHMARKS.run(["as_typed", "rounds=2", "ways=attention=flash", f"out={tmp_path}"])
    assert seen == [[False, False], [True, True]] * 2


def test_a_command_that_was_stopped_goes_on(tmp_path, monkeypatch, capsys):
    ended = []

    def run_training(name, *_):
        if len(ended) == 3:  # within the second pair
            ended.append("stopped")
            raise KeyboardInterrupt
        ended.append(name)
        return Process(float(len(ended)), 1.0, 1.0)

    monkeypatch.setattr(as_typed, "run_training", run_training)
    words = ["as_typed", "rounds=2", "ways=a=1; b=2", f"out={tmp_path}"]
    with pytest.raises(KeyboardInterrupt):
        BENCHMARKS.run(words)
    BENCHMARKS.run(words)
    assert ended == ["a=1", "a=1", "b=2", "stopped", *["b=2"] * 4, *["a=1"] * 2]
    assert "| a=1 | 1.00 (1.00, 1.00) | 5.0 (1.0, 9.0) |" in capsys.readouterr().out
    BENCHMARKS.run(words)
    assert len(ended) == 10
    (tmp_path / as_typed.RECORD).write_text("{\n")
    with pytest.raises(ValueError, match=r"pairs\.jsonl: line 1 is damaged"):
        BENCHMARKS.run(words)


@pytest.mark.slow
def test_real_processes_are_timed(tmp_path, text_file, capsys, monkeypatch):
    monkeypatch.setattr(process, "subprocess", FORKING)
    words = f"{TINY} data_source={text_file} eval_iters=1"
    keys = [f"words={words}", "ways=attention=slow", "iterations=60", "warm_up=20", "rounds=1"]
    BENCHMARKS.run(["as_typed", *keys, f"out={tmp_path}/out"])
    last = capsys.readouterr().out.splitlines()[-1]
    name, *cells = last.strip("| ").split(" | ")
    step_ms, first_s, second_s, loss = (float(cell.split()[0]) for cell in cells)
    assert name == "attention=slow" and 0 < step_ms < 1e3 * first_s and second_s > 0 and loss > 0


@pytest.mark.parametrize(
    "word, message",
    [
        ("against=nowhere", "against=nowhere: no checkout of nanoGPT"),
        ("warm_up=990", "warm_up=990: leaves less than 20 of 1000"),
        ("rounds=0", "rounds=0: must be at least 1"),
    ],
)
def test_a_mistake_is_named(word, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        BENCHMARKS.run(["as_typed", word, f"out={tmp_path}/out"])
