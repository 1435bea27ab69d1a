"""Ranks of programs that are not ours: their faults, their processes, and the judgement."""

from dataclasses import replace

import pytest
import torch

from profiling.shared.json_records import to_json
from tests.helpers.clock import FakeClock
from validation import foreign_ranks, frameworks, rank_groups, rank_programs
from validation.foreign_ranks import (
    ForeignRanksConfig,
    captures,
    chosen,
    main,
    missing_requirement,
    take_reports,
    with_amount,
)
from validation.judged_ranks import NONE, Judged, Measured, cells_of, counts_of, judged_as
from validation.planted_ranks import RanksDiagnosis
from validation.rank_groups import Group
from validation.rank_programs import LATE, Planted

LATE_HOST = RanksDiagnosis(
    plant="fsdp-host-1", planted="cpu", late_rank=1, tool="nsys", verdict="straggler", rank=1,
    because="cpu", costs_ms=14.0, true_ms=20.0, evidence=[], between_ms=(13.0, 21.0),
)  # fmt: skip
BALANCED = replace(
    LATE_HOST, planted="balanced", late_rank=None, verdict="balanced", rank=None, because=None,
    costs_ms=0.1, true_ms=0.0, between_ms=None,
)  # fmt: skip


def test_a_cause_can_be_argued_for_and_a_rank_cannot():
    assert judged_as(LATE_HOST, "host") == "yes"
    assert judged_as(replace(LATE_HOST, because="host"), "host") == "arguably"
    assert judged_as(replace(LATE_HOST, because="data"), "host") == "no"
    assert judged_as(replace(LATE_HOST, because="host", rank=0), "host") == "no"
    assert judged_as(replace(BALANCED, verdict="unknown"), "unknown") == "arguably"
    named = replace(BALANCED, verdict="straggler", rank=0, because="cpu")
    assert judged_as(named, "unknown,cpu") == "no"
    assert judged_as(replace(BALANCED, verdict=None), "") == "no"  # cannot be read


def test_rows_and_counts():
    late = Judged("fsdp", "host", "nsys", [19.0, 20.0, 22.0], [LATE_HOST])
    assert " | ".join(cells_of(late)) == (
        "fsdp | host | nsys | 1 | cpu | rank 1, cpu | 14.00 | 13.00 to 21.00 | "
        "20.00 (19.00, 22.00) | yes | yes"
    )
    named = replace(BALANCED, verdict="straggler", rank=0, because="cpu")
    none = Judged("fsdp", NONE, "nsys", [0.0], [BALANCED, BALANCED, named])
    assert cells_of(none)[5:] == ["balanced 2, rank 0, cpu 1", "–", "–", "–", "no", "–"]
    unread = replace(LATE_HOST, verdict=None, rank=None, because=None, costs_ms=None)
    far = replace(LATE_HOST, because="host", between_ms=(13.0, 15.0))
    others = [Judged("fsdp", "host", "nsys", [], [each]) for each in (unread, far)]
    assert counts_of([late, none, *others]) == [
        "rank and cause 1 of 3",
        "1 more can be argued for",
        "slow link 0 of 0",
        "nobody named where no rank is late 2 of 3",
        "cost within 15 % or in its range 1 of 2",
    ]
    measured = Measured("fsdp", "a GPU", 20.0, {NONE: [10.0, 11.0], "host": [30.0, 32.0]})
    assert measured.costs_ms("host") == [20.0, 21.0] and measured.costs_ms("link") == []


def test_only_the_late_rank_has_the_fault_that_a_command_names(monkeypatch):
    for rank, waited_s in ((LATE, 0.02), (0, 0.0)):
        clock = FakeClock()
        monkeypatch.setattr(rank_programs, "time", clock)
        monkeypatch.setenv("RANK", str(rank))
        planted = Planted()
        commands = planted.follow(["loader 20.0 torch 8 of-rank{rank}.json\n", "none 0 time 3 2\n"])
        assert next(commands) == f"torch 8 of-rank{rank}.json"
        planted.load(0.5)
        planted.load(0.5)
        planted.before_update()
        assert clock.now_s == pytest.approx(waited_s)
        assert next(commands) == "time 3 2"
        planted.load()
        assert clock.now_s == pytest.approx(waited_s)
    assert list(planted.follow(["end\n", "host 1 time 3 2"])) == []


def test_reports_get_the_names_of_their_windows(tmp_path):
    names = captures("fsdp", NONE)
    assert names[:3] == ["fsdp-none-1", "fsdp-products-1", "fsdp-none-2"] and len(names) == 8
    group = type("Group", (), {"reports": tmp_path / "made", "ranks": 2, "log": "the log"})
    group.reports.mkdir()
    for rank in (0, 1):
        for number in (1, 2):
            (group.reports / f"nsys-rank{rank}.{number}.nsys-rep").write_text(f"{rank} {number}")
    with pytest.raises(ValueError, match="4 reports of 3 windows of 2 ranks; see the log"):
        take_reports(group, names[:3], tmp_path)
    taken = {report.name: report.read_text() for report in take_reports(group, names[:2], tmp_path)}
    assert taken["fsdp-products-1.nsys-rank0.nsys-rep"] == "0 2" and len(taken) == 4
    for rank in (0, 1):  # nsys does not number a single report
        (group.reports / f"nsys-rank{rank}.nsys-rep").write_text(f"{rank}")
    taken = {
        report.name: report.read_text() for report in take_reports(group, ["fsdp-link-1"], tmp_path)
    }
    assert taken == {f"fsdp-link-1.nsys-rank{rank}.nsys-rep": f"{rank}" for rank in (0, 1)}


RANK = """
import socket, sys
lines = socket.socket(socket.AF_UNIX)
lines.connect(sys.argv[2])
lines = lines.makefile("rw")
print("ready", file=lines, flush=True)
for line in lines:
    if "broken" in line:
        break
    if line != "end\\n":
        print(len(line), file=lines, flush=True)
"""


def test_ranks_answer_until_they_end(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_groups, "PROGRAM", ["-c", RANK])
    with Group("fsdp", 1, tmp_path / "fsdp.log", {}) as group:
        group.start()
        assert group.ask("none 0 time 3 2") == 16
        with pytest.raises(ValueError, match="^fsdp: ended without an answer; see .*fsdp.log"):
            group.ask("broken")
        group.finish()
        assert group.process.returncode == 0
    monkeypatch.setattr(rank_groups, "PROGRAM", ["-c", "pass"])
    with (
        Group("fsdp", 1, tmp_path / "fsdp.log", {}) as group,
        pytest.raises(ValueError, match="did not start"),
    ):
        group.start()


def test_without_gpus_what_was_measured_is_judged(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    config = ForeignRanksConfig(str(tmp_path), programs="fsdp,accelerate", tools="torch")
    main(config)
    assert "fsdp is left out: PyTorch sees 0 of 2 GPUs" in capsys.readouterr().err
    measured = Measured("fsdp", "2 x H100", 20.0, {NONE: [20.0]})
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "fsdp.json").write_text(to_json(measured))
    monkeypatch.setattr(
        foreign_ranks,
        "judge",
        lambda out, each, ranks: [Judged(each.program, NONE, "nsys", [], [BALANCED])],
    )
    monkeypatch.setattr(foreign_ranks, "is_captured", lambda *_: True)
    main(config)
    printed = capsys.readouterr()
    assert "| fsdp | none | nsys | – | balanced |" in printed.out and not printed.err
    monkeypatch.setattr(foreign_ranks, "is_captured", lambda out, name, *_: name == "fsdp")
    main(config)
    assert capsys.readouterr().err == "accelerate is left out: PyTorch sees 0 of 2 GPUs\n"


def test_windows_without_a_file_of_each_rank_are_left_out_and_counted(
    monkeypatch, tmp_path, capsys
):
    measured = Measured("fsdp", "2 x H100", 20.0, {NONE: [20.0], "host": [40.0]})
    for folder in ("measured", "captures"):
        (tmp_path / folder).mkdir()
    (tmp_path / "measured" / "fsdp.json").write_text(to_json(measured))
    for name in ("none-1.torch-rank0", "none-2.torch-rank0", "none-2.torch-rank1"):
        (tmp_path / "captures" / f"fsdp-{name}.json.xz").touch()
    (tmp_path / "captures" / "fsdp-host-1.torch-rank1.json.xz").touch()
    monkeypatch.setattr(foreign_ranks, "diagnose", lambda name, *_: replace(BALANCED, plant=name))
    rows = foreign_ranks.judge(tmp_path, measured, 2)
    assert [each.plant for row in rows for each in row.diagnoses] == ["fsdp-none-2"]
    with pytest.raises(SystemExit):  # the command says that it did not judge all
        main(ForeignRanksConfig(str(tmp_path), programs="fsdp", tools="torch"))
    assert "left out: 8 windows lack a rank's file" in capsys.readouterr().out


def test_what_lacks_something_is_left_out(monkeypatch, tmp_path):
    config = ForeignRanksConfig(str(tmp_path), small=True)
    assert (
        missing_requirement("nanogpt", config) == "give nanogpt=FOLDER"
        and missing_requirement("fsdp", config) == ""
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert missing_requirement("fsdp", replace(config, small=False)) == "PyTorch sees 1 of 2 GPUs"
    monkeypatch.setattr(frameworks, "is_installed", lambda name: name != "accelerate")
    assert missing_requirement("accelerate", config) == "pip install accelerate"
    with pytest.raises(ValueError, match="^tools=ncu: not one of nsys, torch$"):
        chosen("torch,ncu")
    assert with_amount("loader", 20) == "loader 20.0" and with_amount("link", 20) == "link 0.0"
