"""Pipes, devices and links to themselves wherever a path is given: one line that names them."""

import importlib
import os
from pathlib import Path

import pytest

from cli.errors import user_errors
from cli.files import check_place, is_pipe
from configs import files
from configs.compose import compose_jobs
from data import prepare
from profiling.shared.json_records import JsonObject, read_json

PLACES = ("fifo", "/dev/zero", "loop")


@pytest.fixture(autouse=True)
def special_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    os.mkfifo("fifo.yaml")
    Path("loop").symlink_to("loop")
    Path("other").symlink_to("other")


def refusal(call, capsys):
    """The line on stderr of what ends with exit code 2."""
    with pytest.raises(SystemExit) as ended, user_errors():
        call()
    lines = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("report", []),
        ("report", ["other"]),  # of several ranks
        ("compare", ["other"]),
        ("log", []),
        ("log", ["--run", "loop"]),
        ("export", ["--perfetto", "x.json"]),
        ("scrub", ["-o", "x.json"]),
        ("dashboard", []),
        ("hang", []),
        ("trigger", []),
    ],
)
def test_a_verb_refuses_it_and_names_it(capsys, place, verb, words):
    module = importlib.import_module(f"profiling.verbs.{verb}")
    line = refusal(lambda: module.main([place, *words]), capsys)
    assert any(name in line for name in (place, *words)), line


@pytest.mark.parametrize("place", PLACES)
def test_a_text_is_refused_by_its_key(capsys, place):
    assert place in refusal(lambda: prepare.main([place]), capsys)
    assert f"data_source={place}: " in refusal(
        lambda: prepare.main([f"data_source={place}"]), capsys
    )
    assert f"dataset={place}: " in refusal(lambda: prepare.main([f"dataset={place}"]), capsys)


def test_a_configuration_file_is_refused_where_it_is_looked_for_and_where_it_is_read(capsys):
    assert files.find("fifo.yaml") is None
    assert "fifo.yaml: a device or a pipe, not a YAML file" in files.missing_message("fifo.yaml")
    Path("loop.yaml").symlink_to("loop.yaml")
    assert "loop.yaml: " in refusal(lambda: compose_jobs(Path("loop.yaml"), [], False), capsys)


def test_a_record_that_is_a_pipe_is_not_waited_for():
    for place in ("fifo", "/dev/zero"):
        with pytest.raises(ValueError, match=f"{place}: is a device or a pipe"):
            read_json(Path(place), JsonObject)
        with pytest.raises(ValueError, match=f"{place}: is a device or a pipe"):
            check_place(Path(place))
    assert not any(map(is_pipe, map(Path, ("loop", "nowhere", "."))))
