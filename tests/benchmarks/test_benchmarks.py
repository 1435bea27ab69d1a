"""python -m benchmarks: the table of measurements, and the command line of each."""

import dataclasses
import importlib
import itertools
import sys
from typing import get_type_hints

import pytest

from benchmarks.__main__ import MEASUREMENTS, main
from benchmarks.measuring import measure_in_turns
from tests.paths import PROJECT

FOLDER = PROJECT / "benchmarks"
PARTS = {
    "__init__",
    "__main__",
    "damage",
    "damaged_files",
    "diagnoses",
    "measuring",
    "steps",
    "timed_training",
    "planted_train",
}  # no measurements themselves


@pytest.fixture(autouse=True)
def argv(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmarks"])


def test_every_measurement_is_in_the_table(capsys):
    assert set(MEASUREMENTS) == {path.stem for path in FOLDER.glob("*.py")} - PARTS
    main([])
    lines = capsys.readouterr().out.splitlines()
    for name, measurement in MEASUREMENTS.items():
        (row,) = (line for line in lines if line.startswith(f"{name} "))
        assert row.endswith(measurement.what) and ("needed" in row) == measurement.gpu
        assert any(line.split()[:4] == ["python", "-m", "benchmarks", name] for line in lines)


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_help_lists_the_keys_also_of_one_that_asks_for_some(name, capsys):
    module = importlib.import_module(f"benchmarks.{name}")
    keys = [field.name for field in dataclasses.fields(get_type_hints(module.main)["config"])]
    main([name, "--help"])
    said = capsys.readouterr().out
    assert f"python -m benchmarks {name}" in said
    assert max(map(len, module.__doc__.splitlines())) <= 100  # a command goes on behind a backslash
    assert all(f"  {key}=" in said for key in keys)
    assert {word.split("=")[0] for word in MEASUREMENTS[name].keys.split()} <= set(keys)


def test_turns_go_back_and_forth_so_that_a_drift_touches_all_alike():
    clock = itertools.count()
    assert measure_in_turns({"off": lambda: next(clock), "on": lambda: next(clock)}, 4) == {
        "off": [0, 3, 4, 7],
        "on": [1, 2, 5, 6],
    }


@pytest.mark.parametrize(
    "words, message",
    [
        (["aa_trial"], "aa_trial: no such measurement; did you mean aa_trials?"),
        (["span_overhead", "round=3"], "round: no such key; did you mean rounds?"),
        (["span_overhead", "rounds=1"], "rounds=1: must be at least 2"),
        (["aa_trials"], "records: name the results.json"),
        (["busy_pairs"], "folder: name a folder for the runs"),
        (["planted", "plants=typo"], "plants=typo: there are"),
        (["foreign", "series=6"], "series=6: there are 1, 2, 3, 4, 5"),
        (["foreign", "programs=vit_gd"], "programs=vit_gd: no such program; did you mean vit_gc?"),
    ],
)
def test_mistakes_are_named(words, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        main(words)
