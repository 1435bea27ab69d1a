"""Tables of benchmarks, validation and soak tests, and the command line of each program."""

import dataclasses
import importlib
import itertools
import sys
from typing import get_type_hints

import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.measuring import measure_in_turns
from tests.paths import PROJECT
from tests.soak.__main__ import SOAK
from validation.__main__ import VALIDATION

FOLDERS = (BENCHMARKS, VALIDATION, SOAK)
PROGRAMS = [(folder, name) for folder in FOLDERS for name in folder.programs]


@pytest.fixture(autouse=True)
def argv(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["program"])


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_program_is_in_the_table(capsys, folder):
    entry = "def trials(" if folder is SOAK else "def main("
    modules = PROJECT.joinpath(*folder.name.split(".")).glob("*.py")
    programs = {path.stem for path in modules if f"\n{entry}" in path.read_text("utf-8")}
    assert set(folder.programs) == programs - {"lives"}
    folder.run([])
    lines = capsys.readouterr().out.splitlines()
    for name, program in folder.programs.items():
        (row,) = (line for line in lines if line.startswith(f"{name} "))
        assert row.endswith(program.what) and ("needed" in row) == program.gpu
        assert any(line.split()[:4] == ["python", "-m", folder.name, name] for line in lines)


@pytest.mark.parametrize("folder, name", PROGRAMS, ids=lambda each: getattr(each, "name", each))
def test_help_lists_the_keys_also_of_one_that_asks_for_some(folder, name, capsys):
    module = importlib.import_module(f"{folder.name}.{name}")
    keys = [
        field.name for field in dataclasses.fields(get_type_hints(folder.main_of(module))["config"])
    ]
    folder.run([name, "--help"])
    printed = capsys.readouterr().out
    assert module.__doc__ in printed and max(map(len, module.__doc__.splitlines())) <= 100
    assert all(f"  {key}=" in printed for key in keys)
    assert {word.split("=")[0] for word in folder.programs[name].keys.split()} <= set(keys)


def test_turns_go_back_and_forth_so_that_a_drift_touches_all_alike():
    clock = itertools.count()
    assert measure_in_turns({"off": lambda: next(clock), "on": lambda: next(clock)}, 4) == {
        "off": [0, 3, 4, 7],
        "on": [1, 2, 5, 6],
    }


@pytest.mark.parametrize(
    "folder, words, message",
    [
        (VALIDATION, ["aa_trial"], "aa_trial: no such program; did you mean aa_trials?"),
        (BENCHMARKS, ["span_overhead", "round=3"], "round: no such key; did you mean rounds?"),
        (BENCHMARKS, ["span_overhead", "rounds=1"], "rounds=1: must be at least 2"),
        (VALIDATION, ["aa_trials"], "records: name the results.json"),
        (VALIDATION, ["busy_pairs"], "folder: name a folder for the runs"),
        (VALIDATION, ["planted", "plants=typo"], "plants=typo: no such name; there are"),
        (VALIDATION, ["planted_ranks", "plants=typo"], "plants=typo: no such name; there are"),
        (
            VALIDATION,
            ["foreign", "series=16"],
            "series=16: there are 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
        ),
        (
            VALIDATION,
            ["foreign", "programs=vit_gd"],
            "programs=vit_gd: no such name; did you mean vit_gc?",
        ),
        (SOAK, ["kills", "count=0"], "count=0: must be at least 1"),
    ],
)
def test_mistakes_are_named(folder, words, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        folder.run(words)
