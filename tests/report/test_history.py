"""`history`: kept baselines as table, CSV and page."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from profiling.analysis.difference.baseline import Machine, Sitting
from profiling.launch.experiment.baselines import keep
from profiling.verbs import history

MACHINE = Machine(None, "a CPU", 2, "2.13.0", None)
SITTING = Sitting(
    1, "main", "2026-01-05T10:00:00Z", "c" * 40, False, "2026-01-03T00:00:00Z",
    "python train.py --name '<b>'", 100, 20, [[1.0] * 5, [1.1] * 5], [2.0], 1.5, MACHINE, {}, [],
)  # fmt: skip


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A folder with sittings of two baselines; the newest measurement is of the oldest commit."""
    monkeypatch.chdir(tmp_path)
    older = replace(SITTING, commit="a" * 40, committed="2026-01-01T00:00:00Z", dirty=True)
    on_gpu = replace(SITTING, baseline="gpu", machine=replace(MACHINE, gpu="NVIDIA <H200>"))
    for sitting in (SITTING, replace(older, when="2026-01-06T10:00:00Z"), on_gpu):
        keep(Path(".profiling/baselines"), sitting)


def test_rows_are_in_the_order_of_commits_for_tools_that_find_change_points(kept, capsys):
    assert history.main(["--name", "main", "--csv", "h.csv"]) == 0
    rows = [*csv.DictReader(Path("h.csv").read_text().splitlines())]
    assert [(row["commit"][0], row["time"][:10]) for row in rows] == [
        ("a", "2026-01-01"),
        ("c", "2026-01-03"),
    ]
    assert rows[1]["value"] == "1.048809" and rows[1]["gpu"] == "" and rows[1]["cpu"] == "a CPU"
    assert "main: 1.05 -> 1.05 ms per step over 2 sittings of 2 commits" in capsys.readouterr().out


def test_table_json_and_page(kept, capsys):
    assert history.main([]) == 0
    out = capsys.readouterr().out
    assert "aaaaaaaaaa *" in out and "History: main, gpu" in out
    assert history.main(["--html", "h.html", "--json", "h.json"]) == 0
    assert [row["baseline"] for row in json.loads(Path("h.json").read_text())].count("gpu") == 1
    page = Path("h.html").read_text()
    assert "NVIDIA <H200>" not in page.partition('type="application/json"')[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere: no such folder; make one: .* baseline save NAME -- COMMAND"),
        (["a-file"], "a-file: is a file, not a folder"),
        (["--name", "x"], "there are gpu, main"),
    ],
)
def test_what_is_not_there_is_said(kept, words, said):
    Path("a-file").touch()
    with pytest.raises(ValueError, match=said):
        history.main(words)


def test_folders_of_others_hold_no_baselines(kept):
    Path("empty/.git").mkdir(parents=True)
    with pytest.raises(ValueError, match="^empty: has no baseline; make one"):
        history.main(["empty"])
    Path("runs/out-run").mkdir(parents=True)
    Path("runs/out-run/environment.json").write_text("{}")
    with pytest.raises(ValueError, match="^runs: has no baseline; make one"):
        history.main(["runs"])


def test_a_damaged_file_is_named_and_a_kept_one_stays(kept):
    file = next(Path(".profiling/baselines/gpu").iterdir())
    with pytest.raises(ValueError, match=f"{file.name}: this command reads "):
        history.main(["--json", str(file)])
    file.write_text("{}")
    with pytest.raises(ValueError, match=f"{file.name}: is damaged"):
        history.main([])
