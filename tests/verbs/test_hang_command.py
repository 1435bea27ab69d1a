"""`python -m profiling hang`: one screen, records, an exit code; mistakes in one line."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from cli.lock import Lock
from profiling.shared.run_files import REQUEST
from profiling.verbs import hang
from tests.helpers.flight_dumps import planted
from tests.paths import PROJECT


@pytest.fixture
def out_dir(tmp_path):
    """A run of four ranks, one of which skipped an all-reduce."""
    for rank in (ranks := planted(4)):
        if rank.rank != 1:
            rank.call(8, done=False)
    folder = tmp_path / "out"
    for rank in ranks:
        rank.write(folder / "profile", 700, note=rank.rank == 1, stack=["data/x.py:7 in draw"])
    return folder


def test_one_screen(out_dir, capsys):
    assert hang.main([str(out_dir)]) == 1
    said = capsys.readouterr().out
    assert len(said.splitlines()) <= 40 and max(map(len, said.splitlines())) <= 80
    words = " ".join(said.split())
    assert "ranks 0, 2-3 have waited in it for 692.0 s, rank 1 has not entered it" in words
    assert "sizes and types [1376] Float" in words and "step/step.py:90 in average_gra" in words
    assert "rank 1 (pid 4243 on node) at data/x.py:7 in draw" in words
    assert "1 not in it all_reduce 7 04:40:06" in words and "py-spy dump --pid" in words


def test_all_of_it_as_json_and_markdown(out_dir, tmp_path, capsys):
    files = [tmp_path / "hang.json", tmp_path / "hang.md"]
    assert hang.main([str(out_dir), "--json", str(files[0]), "--markdown", str(files[1])]) == 1
    record = json.loads(files[0].read_text())
    assert record["answer"] == "hang" and record["stuck"][0]["absent"] == [1]
    assert record["ranks"][1]["stack"] == ["data/x.py:7 in draw"]
    assert "| ranks | state |" in files[1].read_text()
    assert "all_reduce 8 of group 0 (default_pg) hangs" in capsys.readouterr().out


def test_nothing_hangs(tmp_path, capsys):
    for rank in planted(2):
        rank.write(tmp_path, 9)
    assert hang.main([str(tmp_path)]) == 0
    assert (
        "nothing hangs: every collective that was entered has finished"
    ) in capsys.readouterr().out


def test_names_in_a_dump_do_nothing_to_a_terminal(tmp_path, capsys):
    (rank,) = planted(2)[:1]
    rank.call(8, "\x1b]0;mine\x07all_reduce[bold]", done=False)
    rank.write(tmp_path, 700)
    assert hang.main([str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "\x1b]0;" not in said and "all_reduce[bold]" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere: no such file or folder; give the out_dir"),
        (["a", "b", "--now"], "--now: works on one run"),
        (["train.py"], "train.py: the name does not say which rank"),
        (["."], "no dump of a flight recorder"),
        ([".", "--now"], "no run is in progress in this folder"),
    ],
)
def test_mistakes(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "trained-rank0"):  # the latter is in the folder of run -- COMMAND
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=message) as error:
        hang.main(words)
    assert "\n" not in str(error.value)


def test_a_damaged_file_is_left_out_in_a_line(out_dir, capsys):
    path = out_dir / "profile" / "flight-rank3"
    path.write_bytes(path.read_bytes()[:300])
    assert hang.main([str(out_dir), "--json", "-"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["notes"][0].startswith(f"left out: {path}: not a dump of a flight recorder: ")
    assert said["no_dump"] == [3] and said["stuck"][0]["absent"] == [1]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_waited_for(tmp_path, make):
    make(tmp_path / "flight-rank0")
    with pytest.raises(ValueError, match="flight-rank0: is not a file$"):
        hang.main([str(tmp_path)])


def test_nothing_but_damaged_files_is_a_line_and_exit_code_2(out_dir):
    for path in sorted((out_dir / "profile").iterdir(), reverse=True):
        path.write_bytes(path.read_bytes()[:300])
    command = [sys.executable, "-m", "profiling", "hang", str(out_dir)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert (
        done.stderr.count("\n") == 1 and f"{path}: not a dump of a flight recorder" in done.stderr
    )


def test_an_output_onto_a_dump_is_refused(out_dir):
    (out_dir / "metrics.jsonl").write_text("")
    dump = out_dir / "profile" / "flight-rank0.json"
    dump.symlink_to(out_dir / "profile" / "flight-rank0")
    with pytest.raises(ValueError, match="belongs to the run"):
        hang.main([str(out_dir), "--json", str(dump)])


@pytest.mark.slow
def test_now_waits_for_all_ranks_and_leaves_older_dumps_out(tmp_path, capsys):
    ranks = planted(2, backend="gloo")
    folder = tmp_path / "profile"
    planted(3)[2].write(folder, 9)  # of a larger run, long ago

    def answer() -> None:
        while not (folder / REQUEST).exists():
            time.sleep(0.05)
        for rank in ranks:
            rank.write(folder, time.time() - 1_795_322_400 + 1, note=True)
            time.sleep(0.7)

    thread = threading.Thread(target=answer)
    for rank in ranks:
        rank.entries.clear()
        rank.call(time.time() - 1_795_322_400)
    thread.start()
    with Lock(tmp_path, str(tmp_path)):
        assert hang.main([str(tmp_path), "--now"]) == 0
    thread.join()
    assert "nothing hangs" in capsys.readouterr().out and not (folder / REQUEST).exists()


@pytest.mark.slow
def test_now_says_so_where_nobody_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(hang, "PATIENCE_S", 0.6)
    (tmp_path / "profile").mkdir()
    with Lock(tmp_path, str(tmp_path)), pytest.raises(ValueError, match="no rank answered in 1 s"):
        hang.main([str(tmp_path), "--now"])
