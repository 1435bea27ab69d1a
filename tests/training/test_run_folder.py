"""Run folders: their owner, what becomes of an earlier run, and files that somebody deletes."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import torch

from cli.lock import NAME, Lock
from configs import files
from data.prepare import FEWEST_TOKENS
from tests.helpers.full_disk import files_no_larger_than
from tests.helpers.processes import read_until
from training.checks import check_job
from training.disk import checkpoint, previous_runs, run_folder
from training.disk.previous_runs import check_previous, make_way
from training.metrics import record

LONG = dict(max_iters=100_000, eval_interval=50, eval_iters=1, log_interval=5)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def run_at(folder: Path, rows: int, *files: str) -> Path:
    """A run's folder as far as previous_runs looks at it."""
    folder.mkdir(parents=True, exist_ok=True)
    row = json.dumps({"iter": 0, "train/loss": 1.0})
    (folder / "metrics.jsonl").write_text('{"run": {}}\n' + f"{row}\n" * rows)
    for name in ("config.yaml", *files):
        (folder / name).write_bytes(b"x" * 100_000)
    return folder


@pytest.mark.slow
def test_the_second_process_is_refused_before_its_data(command, start, tmp_path):
    """Starts the second from scratch, resumed, or as a job of a sweep; the first one's files are
    not touched."""
    out_dir = tmp_path / "out"
    first = start(command(**LONG))
    read_until(first, "iter 60:")
    owner = (out_dir / NAME).read_text().strip()
    assert owner.startswith(f"process {first.pid} on host {os.uname().nodename} since 20")
    first.send_signal(signal.SIGSTOP)  # the folder is its own all the same
    missing = dict(data_source="/missing.txt")  # not looked for
    more = {"seed": "1,2", "out_dir": f"{out_dir},{tmp_path}/other"}
    seconds = [
        start(words)
        for words in (
            command(**LONG, **missing),
            command(**LONG, init_from="resume"),
            command(**LONG, init_from="resume", eval_only=True),
            [*command(**LONG, out_dir=more["out_dir"]), "-m"],
        )
    ]
    for second in seconds:
        output = second.communicate(timeout=90)[0]
        assert second.returncode == 2, output
        (line,) = output.splitlines()
        assert f"out_dir={out_dir}: in use by {owner}; give another folder, or end" in line
    assert not (tmp_path / "other").exists()
    first.send_signal(signal.SIGCONT)
    first.send_signal(signal.SIGINT)
    assert first.wait(timeout=60) == 130
    assert "previous-1" not in names(out_dir) and NAME not in names(out_dir)
    runs = [line for line in (out_dir / "metrics.jsonl").open() if '"run"' in line]
    assert len(runs) == 1


@pytest.mark.slow
def test_after_sigkill_the_folder_is_free(command, start, tmp_path):
    process = start(command(**LONG))
    read_until(process, "step 50:")
    read_until(process, "iter 60:")
    process.kill()
    process.wait()
    (tmp_path / "out" / "ckpt.pt.tmp").write_bytes(b"half")
    again = start(command(init_from="resume", max_iters=55, log_interval=1))
    assert again.wait(timeout=90) == 0
    assert not [name for name in names(tmp_path / "out") if name.endswith((".tmp", ".lock"))]


def test_a_job_is_refused_without_a_trace(config, tmp_path):
    out_dir = tmp_path / "out"
    made = config()
    check_job(made)
    assert not out_dir.exists()
    for keys, message in (
        (dict(data_source="/missing.txt"), "^data_source=/missing.txt: No such file"),
        (dict(device="cuda:99"), "^device=cuda:99: "),
        (dict(attention="cudnn"), "^attention=cudnn: runs only on CUDA"),
        (dict(init_from="resume"), "ckpt.pt: there is no checkpoint"),
    ):
        with pytest.raises(ValueError, match=message):
            check_job(config(**keys))
        assert not out_dir.exists()
    with Lock(out_dir, "X"), pytest.raises(ValueError, match=f"^out_dir={out_dir}: in use by"):
        check_job(made)


def test_a_refused_data_source_leaves_no_folder(run, tmp_path):
    with pytest.raises(ValueError, match="^data_source="):
        run(data_source="/missing.txt", out_dir=str(tmp_path / "a" / "b"))
    assert names(tmp_path) == set()


# the run that lay there before


def test_its_size_is_told(tmp_path, caplog):
    caplog.set_level("INFO")
    folder = run_at(tmp_path / "out", 7, "ckpt.pt", "ckpt_best.pt")
    (folder / "mine.txt").touch()
    make_way(folder, "all")
    assert names(folder) == {"mine.txt", "previous-1"}
    assert caplog.messages == [
        f"out_dir={folder}: the earlier run in this folder (7 rows, 0.3 MB) is now in previous-1"
    ]
    run_at(folder, 7, "ckpt.pt")
    make_way(folder, "all")
    assert caplog.messages[-1] == (
        "2 earlier runs in this folder take 0.5 MB; keep_previous=N limits their number"
    )


@pytest.mark.parametrize(
    "rows, files, moved",
    [
        (0, (), False),
        (previous_runs.FEW_ROWS, (), False),
        (previous_runs.FEW_ROWS + 1, (), True),
        (0, ("ckpt.pt",), True),
        (0, ("ckpt_best.pt",), True),
        (1, ("profile/window-1.json",), True),
        (1, ("sample/profile/window-1.json",), True),
    ],
)
def test_a_start_that_was_thought_better_of_is_replaced(tmp_path, caplog, rows, files, moved):
    caplog.set_level("INFO")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    run_at(tmp_path, rows, *files)
    make_way(tmp_path, "all")
    assert names(tmp_path) == ({"previous-1"} if moved else set())
    assert len(caplog.messages) == 1 and ("is replaced" in caplog.messages[0]) != moved


@pytest.mark.parametrize(
    "keep, left", [("all", {1, 3, 4}), ("2", {3, 4}), ("1", {4}), ("0", set()), ("9", {1, 3, 4})]
)
def test_the_newest_are_kept(tmp_path, keep, left):
    """The numbers tell the newest, and go on behind the largest: a gap is no newer run."""
    for number in (1, 3):
        run_at(tmp_path / f"previous-{number}", number)
    run_at(tmp_path, 8)
    (tmp_path / "previous-x").mkdir()
    make_way(tmp_path, keep)
    assert names(tmp_path) == {f"previous-{number}" for number in left} | {"previous-x"}
    if 4 in left:
        assert '"train/loss"' in (tmp_path / "previous-4" / "metrics.jsonl").read_text()


def test_of_an_earlier_run_its_own_files_are_removed_and_nothing_else(tmp_path, caplog):
    caplog.set_level("INFO")
    thesis, elsewhere = tmp_path / "previous-1" / "thesis.txt", tmp_path / "elsewhere"
    thesis.parent.mkdir()
    thesis.write_text("all my work")
    mine = ("profile/window-1.json", "wandb/run-1/logs/debug.log", "ckpt_shards/8/__0_0.distcp")
    theirs = ("notes.md", "profile/pages/report.html", "data/train.txt")
    for name in (*mine, *theirs):
        path = tmp_path / "previous-2" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    run_at(tmp_path / "previous-2", 8, "ckpt.pt", "ckpt.pt.tmp")
    (elsewhere / "wandb").mkdir(parents=True)
    (elsewhere / "wandb" / "a.log").touch()
    run_at(tmp_path / "previous-3", 8)
    (tmp_path / "previous-3" / "wandb").symlink_to(elsewhere / "wandb")
    run_at(elsewhere, 8)
    (tmp_path / "previous-4").symlink_to(elsewhere)
    run_at(tmp_path, 8)
    make_way(tmp_path, "0")
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {
        "previous-1/thesis.txt",
        *(f"previous-2/{name}" for name in theirs),
        *("elsewhere/config.yaml", "elsewhere/metrics.jsonl", "elsewhere/wandb/a.log"),
    }
    assert not (tmp_path / "previous-3").exists() and not (tmp_path / "previous-5").exists()
    (kept,) = (line for line in caplog.messages if "no run wrote it" in line)
    assert all(f"previous-2/{name}" in kept for name in ("notes.md", "data"))
    run_at(tmp_path, 8)
    make_way(tmp_path, "0")  # what is left of it counts as no run
    assert thesis.read_text() == "all my work" and (tmp_path / "previous-2" / "notes.md").exists()


def test_files_of_others_that_are_in_the_way_are_moved_and_never_removed(tmp_path):
    """out_dir=. of a project that has a config.yaml of its own."""
    (tmp_path / "config.yaml").write_text("database: production\n")
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "mine.log").touch()
    make_way(tmp_path, "0")
    assert (tmp_path / "previous-1" / "config.yaml").read_text() == "database: production\n"
    assert (tmp_path / "previous-1" / "wandb" / "mine.log").exists()


def test_one_that_was_resumed_where_it_lies_is_kept(tmp_path, caplog):
    run_at(tmp_path, 8)
    for number in (1, 2):
        run_at(tmp_path / f"previous-{number}", number)
    with Lock(tmp_path / "previous-1", "X"):
        make_way(tmp_path, "0")
    assert names(tmp_path) == {"previous-1"}
    assert "previous-1: in use by process" in caplog.text and "so it is kept" in caplog.text


def test_a_run_is_not_started_over_where_that_is_refused(run, tmp_path):
    out_dir = run()
    before = {path.name: path.read_bytes() for path in out_dir.iterdir()}
    pattern = rf"^out_dir={out_dir}: contains a run \(8 rows, .* keep_previous=refuse; .*=resume"
    with pytest.raises(ValueError, match=pattern):
        run(keep_previous="refuse", data_source="/missing.txt")
    assert {path.name: path.read_bytes() for path in out_dir.iterdir()} == before
    run(keep_previous="refuse", init_from="resume", max_iters=9)
    check_previous(run_at(tmp_path / "few", 2), "refuse")


def test_keep_previous_is_a_number_or_a_word(config):
    for value in ("all", "refuse", "0", "12"):
        assert config(keep_previous=value).keep_previous == value
    for value in ("-1", "1.5", "none", ""):
        with pytest.raises(ValueError, match=f"^keep_previous={value}: must be all, refuse or"):
            config(keep_previous=value)


def test_a_folder_whose_name_has_two_lines_is_resumed(run, tmp_path):
    """The folder's name is in a comment of config.yaml."""
    out_dir = run(out_dir=f"{tmp_path}/a\nseed: 7", always_save_checkpoint=True)
    assert files.load(out_dir / "config.yaml")["seed"] == 1337


def test_nothing_is_moved_where_the_new_run_has_no_room(run, tmp_path):
    out_dir = run()
    before = {path.name: path.read_bytes() for path in out_dir.iterdir()}
    refused = pytest.raises(ValueError, match="config.yaml: cannot be written: File too large")
    with files_no_larger_than(500), refused:
        run()
    assert {path.name: path.read_bytes() for path in out_dir.iterdir()} == before


def test_what_a_killed_process_left_half_written_goes(run, tmp_path):
    out_dir = tmp_path / "out"
    out_dir.mkdir()
    for name in ("ckpt.pt.tmp", "ckpt_best.pt.tmp", "config.yaml.123.tmp", "mine.tmp", "a.1.tmp"):
        (out_dir / name).touch()
    run(max_iters=1)
    assert {name for name in names(out_dir) if name.endswith(".tmp")} == {"mine.tmp", "a.1.tmp"}


# what somebody deletes in the midst of a run


def deleting(monkeypatch, iteration: int, delete) -> None:
    """Calls delete() behind the row of this iteration."""
    trained = record.Record.log_training

    def then_delete(self, now, *rest):
        trained(self, now, *rest)
        if now == iteration:
            delete()

    monkeypatch.setattr(record.Record, "log_training", then_delete)


def trained_rows(out_dir: Path) -> list[int]:
    rows = [json.loads(line) for line in (out_dir / "metrics.jsonl").open()]
    assert "run" in rows[0]
    return [row["iter"] for row in rows if "train/loss" in row]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["deleted", "moved", "its files"])
def test_a_deleted_folder_is_made_again_with_all_rows(run, tmp_path, monkeypatch, capsys, how):
    out_dir = tmp_path / "out"

    def delete():
        if how == "moved":
            out_dir.rename(tmp_path / "elsewhere")
        elif how == "deleted":
            shutil.rmtree(out_dir)
        else:
            for path in out_dir.iterdir():
                path.unlink()

    deleting(monkeypatch, 5, delete)
    run(max_iters=10, eval_interval=4)
    assert trained_rows(out_dir) == list(range(10))
    files = {"ckpt.pt", "config.yaml", "environment.json", "metrics.jsonl"}
    assert names(out_dir) == files | {"summary.json", "step_times.json"}
    (warning,) = re.findall("^warning: .* deleted .*", capsys.readouterr().out, re.M)
    assert f"{out_dir}: deleted during the run: config.yaml, " in warning
    assert "ckpt.pt; written again with all rows; the next evaluation saves a checkpoint" in warning
    assert torch.load(out_dir / "ckpt.pt", weights_only=True)["iter_num"] in (8, 10)
    run(init_from="resume", max_iters=12)


def test_a_checkpoint_that_is_no_better_takes_the_place_of_a_deleted_one(
    run, tmp_path, monkeypatch
):
    import train

    losses = iter([5.0, 3.0, 4.0])
    found = {"eval/train_loss": 1.0}
    monkeypatch.setattr(train, "evaluate", lambda *_: found | {"val/loss": next(losses)})
    deleting(monkeypatch, 5, lambda: (tmp_path / "out" / "ckpt.pt").unlink())
    out_dir = run(max_iters=8)
    assert torch.load(out_dir / "ckpt.pt", weights_only=True)["iter_num"] == 8


def test_a_folder_deleted_behind_the_last_row_is_told_by_the_exit_code(run, tmp_path, monkeypatch):
    out_dir = tmp_path / "out"
    evaluated = record.Record.log_evaluation

    def then_delete(self, iteration, *rest):
        evaluated(self, iteration, *rest)
        if iteration == 8:
            self.run.progress.note_val_loss = lambda loss: False  # or it would save now
            shutil.rmtree(out_dir)

    monkeypatch.setattr(record.Record, "log_evaluation", then_delete)
    with pytest.raises(
        SystemExit, match="not on the disk: the checkpoint of iteration 8; there is no"
    ):
        run()
    assert trained_rows(out_dir) == list(range(8)) and "ckpt.pt" not in names(out_dir)


def test_a_resumed_run_s_earlier_rows_come_back_too(run, tmp_path, monkeypatch):
    run(max_iters=4)
    deleting(monkeypatch, 5, lambda: shutil.rmtree(tmp_path / "out"))
    assert trained_rows(run(max_iters=8, init_from="resume")) == list(range(8))


def test_a_deleted_folder_that_is_another_run_s_by_now_is_left_alone(run, tmp_path, monkeypatch):
    out_dir = tmp_path / "out"

    def take_its_place():
        shutil.rmtree(out_dir)
        out_dir.mkdir()
        (out_dir / "metrics.jsonl").write_text("another's")
        other.__enter__()

    other = Lock(out_dir, "X")
    deleting(monkeypatch, 5, take_its_place)
    with pytest.raises(SystemExit, match="deleted during the run, and out_dir=.*in use"):
        run()
    assert names(out_dir) == {"metrics.jsonl", NAME}
    assert (out_dir / "metrics.jsonl").read_text() == "another's"
    other.__exit__()


def test_nothing_is_saved_into_another_run_s_folder(run, tmp_path, monkeypatch):
    """Deleted and taken between the last row and a save, as that of a Ctrl-C."""
    out_dir = tmp_path / "out"
    other, save = Lock(out_dir, "X"), checkpoint.save

    def save_too_late(saved):
        shutil.rmtree(out_dir)
        other.__enter__()
        save(saved)

    monkeypatch.setattr(checkpoint, "save", save_too_late)
    with pytest.raises(SystemExit, match="deleted during the run, and out_dir=.*in use"):
        run()
    assert names(out_dir) == {NAME}
    other.__exit__()


def test_rows_wait_where_the_folder_cannot_be_made_again(run, tmp_path, monkeypatch, capsys):
    """A file in its place, for two rows: said once, and all rows come in the end."""
    out_dir = tmp_path / "out"

    def block():
        shutil.rmtree(out_dir)
        out_dir.touch()

    deleting(monkeypatch, 5, block)
    after = record.Record.log_training

    def then_free(self, now, *rest):
        after(self, now, *rest)
        if now == 8:
            out_dir.unlink()

    monkeypatch.setattr(record.Record, "log_training", then_free)
    run(max_iters=11, eval_interval=20)
    assert trained_rows(out_dir) == list(range(11))
    said = [line for line in capsys.readouterr().out.splitlines() if "deleted" in line]
    assert len(said) == 2 and "this path is a file" in said[0] and "written again" in said[1]


# a disk that is full to the end


@pytest.mark.slow
def test_a_full_disk_to_the_end_is_told_last_and_by_the_exit_code(command, start, tmp_path):
    """A limit on the size of files stands for the disk, from the row of iteration 60 on."""
    process = start(command(**LONG | dict(max_iters=300)), PYTHONUNBUFFERED="1")
    read_until(process, "iter 60:")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (3000, 3000))
    output = process.communicate(timeout=90)[0]
    out_dir = tmp_path / "out"
    assert process.returncode == 1, output
    last = output.splitlines()[-1]
    pattern = r"train.py: out_dir=\S+: not on the disk: the checkpoint of iteration 300 "
    pattern += r"\((\d) saves failed\), the last (\d+) lines of metrics.jsonl; "
    told = re.match(pattern + r"\S+/ckpt.pt is whole, of iteration 50$", last)
    assert told and 1 <= int(told[1]) <= 5, output
    assert output.count("not saved (") == 1 and "next:" not in output
    assert torch.load(out_dir / "ckpt.pt", weights_only=True)["iter_num"] == 50
    assert not [name for name in names(out_dir) if name.endswith(".tmp")]


def test_a_text_that_is_too_short_is_known_to_the_run_alone(config, tmp_path):
    """A mistake that `check_job` cannot know without preparing is the failure of one job."""
    (tmp_path / "short.txt").write_text("x" * (FEWEST_TOKENS - 1))
    check_job(config(data_source=str(tmp_path / "short.txt")))


def test_an_installation_inside_a_repository_has_no_commit_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "PROJECT", tmp_path / "venv/site-packages")
    run_folder.PROJECT.mkdir(parents=True)
    git = ["git", "-c", "user.name=me", "-c", "user.email=me@here", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "theirs"], check=True)
    assert run_folder.git_state() is None
    monkeypatch.setattr(run_folder, "PROJECT", tmp_path)
    state = run_folder.git_state()
    assert state and len(state["commit"]) == 40


def test_the_commit_is_that_of_the_checkout_and_a_new_file_differs_from_it(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "PROJECT", tmp_path)
    git = ["git", "-c", "user.name=me", "-c", "user.email=me@here", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    assert run_folder.git_state() is None  # no commit yet
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "ours"], check=True)
    commit = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    assert run_folder.git_state() == {"commit": commit, "dirty": False}
    (tmp_path / "train.py").write_text("pass\n")
    assert run_folder.git_state() == {"commit": commit, "dirty": True}


def test_the_checkout_s_state_is_asked_without_its_lock(tmp_path, monkeypatch):
    """A process killed in the midst of it would leave the lock, and git would refuse all work."""
    monkeypatch.setattr(run_folder, "PROJECT", tmp_path)
    git = ["git", "-c", "user.name=me", "-c", "user.email=me@here", "-C", str(tmp_path)]
    (tmp_path / "train.py").write_text("pass\n")
    for words in (["init", "-q"], ["add", "train.py"], ["commit", "-q", "-m", "ours"]):
        subprocess.run([*git, *words], check=True)
    os.utime(tmp_path / "train.py", (1, 1))  # git status would note it in the index
    index = (tmp_path / ".git/index").read_bytes()
    state = run_folder.git_state()
    assert state and state["dirty"] is False
    assert (tmp_path / ".git/index").read_bytes() == index
