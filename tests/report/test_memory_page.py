"""Reports and comparisons of memory snapshots, on the command line and as pages."""

import json
from pathlib import Path

import pytest

from profiling.verbs import compare, report
from profiling.verbs.run_program import show_memory
from tests.helpers.memory_snapshots import (
    MIB,
    Training,
    frame,
    in_main,
    out_of_memory,
    pickled,
)


@pytest.fixture
def snapshot(tmp_path):
    def written(training: Training, name: str = "snapshot.pickle"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pickled(training.snapshot()))
        return str(path)

    return written


def test_report_prints_the_answer_first_and_last(snapshot, capsys):
    report.main([snapshot(Training(leak=2 * MIB).make().run(6))])
    printed = capsys.readouterr().out
    answer = "train.py:55 (main) keeps 2.0 MiB more with each step. Peak 131.5 MiB in backward"
    assert printed.count(answer) == 2 or printed.count(answer[:70]) == 2
    assert "By kind at the peak" in printed and "What grows" in printed
    report.main([snapshot(Training().make().run(1))])
    assert "events · 1 step, by the ranges" in capsys.readouterr().out
    report.main([snapshot(out_of_memory())])
    printed = capsys.readouterr().out
    assert "What would have made room" in printed and "The allocation that failed" in printed


def test_files_have_all_of_it(snapshot, tmp_path, capsys):
    training = Training(leak=2 * MIB).make().run(6)
    training.kept.append(
        training.allocator.alloc(90 * MIB, in_main(9, frame("/me/<b>&.py", 3, "<i>")))
    )
    files = [tmp_path / name for name in ("r.json", "r.md", "r.html")]
    flags = ["--json", "--markdown", "--html"]
    report.main(
        [
            snapshot(training),
            *(w for pair in zip(flags, map(str, files), strict=True) for w in pair),
        ]
    )
    content = json.loads(files[0].read_text())
    assert content["peak"]["allocated_bytes"] == training.allocator.peak
    assert "By kind at the peak" in files[1].read_text()
    page = files[2].read_text()
    assert len(page) < 5_000_000 and "<b>&.py" not in page and "&lt;b&gt;&amp;.py" in page
    assert "/home/me" not in page and "train.py:44 in main" in page
    assert 'id="timeline"' in page and "http://" not in page.partition("plotly")[0]


def test_a_run_folder_has_its_newest_snapshot_or_capture(snapshot, tmp_path, capsys):
    training = Training().make().run(2)
    for rank in (0, 1):
        snapshot(training, f"profile/window-20-rank{rank}.memory.pickle")
    report.main([str(tmp_path)])
    out, err = capsys.readouterr()
    assert "All GPUs" in out and err.count("reading ") == 2
    (tmp_path / "profile" / "a.trace.json").write_text("{}")  # newer
    with pytest.raises(ValueError, match=r"a\.trace\.json"):
        report.main([str(tmp_path)])


def test_run_ends_with_the_sentence_about_the_peak(snapshot, tmp_path, capsys):
    path = snapshot(Training().make().run(2), "profile/window-5.memory.pickle")
    show_memory(tmp_path, [Path(path)])
    printed = capsys.readouterr().out
    assert "--html memory.html" in printed and "Peak 120.5 MiB in backward" in printed


@pytest.mark.parametrize("flag", [["--step", "x"], ["--ranks"], ["--manifest", __file__]])
def test_flags_about_times_are_refused(snapshot, flag):
    with pytest.raises(ValueError, match=f"^{flag[0]}: has no meaning for a memory snapshot"):
        report.main([snapshot(Training().make().run(2)), *flag])


@pytest.mark.parametrize("flag", [["--wandb", "mine"], ["--force"], ["--ranks"]])
def test_compare_refuses_flags_that_would_do_nothing(snapshot, flag):
    one = snapshot(Training().make().run(2))
    with pytest.raises(ValueError, match=f"^{flag[0]}: has no meaning for a memory snapshot"):
        compare.main([one, one, *flag])


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("none.pickle", "no such file or folder$"),
        (__file__, r"is no memory snapshot, but \S+ is one$"),
    ],
)
def test_a_snapshot_beside_something_else_is_refused(snapshot, other, said):
    one = snapshot(Training().make().run(2))
    for verb, *words in (
        (compare, one, other),
        (report, one, other),
        (report, other, one, "--fit"),
    ):
        with pytest.raises(ValueError, match=f"^{other}: {said}"):
            verb.main(words)


def test_compare_says_which_needs_less_and_where(snapshot, tmp_path, capsys):
    one = snapshot(Training().make().run(3), "one.pickle")
    more = snapshot(Training(activation=7 * MIB).make().run(3), "more.pickle")
    into = tmp_path / "c.json"
    assert compare.main([one, more, "--json", str(into), "--fail-on-regression", "5"]) == 1
    found = json.loads(into.read_text())
    assert found["verdict"] == "more" and found["kinds"][0]["name"] == "activations"
    assert {row["name"] for row in found["lines"][:2]} == {
        "model.py:71 (forward)",
        "model.py:88 (forward)",
    }
    capsys.readouterr()
    assert compare.main([more, one]) == 0
    assert capsys.readouterr().out.count("less at the peak") == 2  # the answer, first and last
    assert compare.main([one, one]) == 0
    assert "Equal peaks" in capsys.readouterr().out


def test_compare_takes_folders_that_have_snapshots_alone(snapshot, tmp_path, capsys):
    for name, training in (("one", Training()), ("more", Training(activation=7 * MIB))):
        (tmp_path / name).mkdir()
        snapshot(training.make().run(3), f"{name}/profile/window-1.memory.pickle")
    assert compare.main([str(tmp_path / "one"), str(tmp_path / "more")]) == 0
    printed = capsys.readouterr().out
    assert "more at the peak" in printed and "more against one" in printed
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match=r"none: has no snapshot of a run, but \S+one has nothing"):
        compare.main([str(tmp_path / "one"), str(tmp_path / "none")])
    (tmp_path / "none" / "metrics.jsonl").write_text("{}\n")
    lone = snapshot(Training().make().run(3), "lone.pickle")
    with pytest.raises(ValueError, match=r"none: has no snapshot of a run, but \S+pickle is one"):
        compare.main([lone, str(tmp_path / "none")])
    (tmp_path / "one" / "profile" / "a.trace.json").write_text("{}")
    with pytest.raises(ValueError, match=r"one: has captures beside its snapshots, but"):
        compare.main([str(tmp_path / "one"), str(tmp_path / "more")])


def test_compare_cannot_tell_where_a_peak_is_not_known(snapshot, tmp_path, capsys):
    plain = snapshot(Training().make().run(3), "plain.pickle")
    failed = snapshot(out_of_memory(limit=110 * MIB), "failed.pickle")
    assert compare.main([plain, failed, "--fail-on-regression", "5"]) == 3
    assert "Cannot tell: the candidate ran out of memory" in capsys.readouterr().out
    larger = snapshot(out_of_memory(), "larger.pickle")
    compare.main([plain, larger])  # a lower bound that is above the other's peak
    assert "more at the peak" in capsys.readouterr().out
    other = tmp_path / "x.txt"
    other.write_text("x")
    with pytest.raises(ValueError, match=r"x\.txt: is no memory snapshot"):
        compare.main([plain, str(other)])
