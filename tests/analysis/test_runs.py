"""Run folders read back: columns, training time, lost or half-written rows; groups, spread."""

import json
from pathlib import Path

import numpy as np
import pytest

from profiling.analysis.runs.folder import (
    NoRowsYet,
    find_run_folders,
    read_run,
    read_runs,
    run_names,
)
from profiling.analysis.runs.groups import (
    compare_speed,
    loss_that_all_reach,
    sections_of,
    split_command,
    spread_of,
    time_to_loss,
)
from profiling.report.dashboard.words import BY_CHANCE, certainty, headline
from tests.helpers.folders import STEP_MS, rows_of_start, step_row, with_rows, write_run


def groups_of(*folders):
    return sections_of([read_run(folder) for folder in folders])


def test_a_run_that_the_trainer_wrote(run, rows):
    out_dir = run(attention="slow", eval_interval=4, max_iters=8, log_interval=2)
    found = read_run(out_dir)
    written = rows(out_dir)
    val = found.columns["val/loss"]
    assert val.iteration.tolist() == [0, 4, 8]
    assert val.value.tolist() == [written[i]["val/loss"] for i in (0, 4, 8)]
    assert found.columns["train/loss"].iteration.tolist() == [0, 2, 4, 6]
    assert "perf/mfu" not in found.columns, "null on a CPU: absent, not 0"
    assert found.config["attention"] == "slow" and found.summary["iterations"] == 8
    assert found.notes == [] and found.captures == []


def test_training_time_is_the_sum_of_mean_step_times(tmp_path):
    rows = [step_row(0, 100.0), {"iter": 10, "val/loss": 3.0}, step_row(10, 20.0, lr=1e-3)]
    found = read_run(with_rows(tmp_path / "run", *rows))
    # iteration 0 took 100 ms, 1 to 10 took 20 ms each; the evaluation came before iteration 10
    assert found.columns["lr"].elapsed_s.tolist() == pytest.approx([0.3])
    assert found.columns["val/loss"].elapsed_s.tolist() == pytest.approx([0.28])


def test_wall_time_where_the_run_logged_it(tmp_path):
    rows = [
        {"iter": 0, "val/loss": 4.0, "time/elapsed_s": 20.0},
        step_row(0, 100.0) | {"time/elapsed_s": 21.0},
        {"iter": 1, "val/loss": 3.0, "time/elapsed_s": 25.0},
        step_row(1, 100.0, lr=1.0) | {"time/elapsed_s": 25.5},
    ]
    found = read_run(with_rows(tmp_path / "run", *rows))
    assert found.time_axis == "wall time"
    assert found.columns["val/loss"].elapsed_s.tolist() == [20.0, 25.0], "of the evaluation's row"
    assert found.columns["val/loss"].training_s.tolist() == pytest.approx([0.0, 0.1])
    assert found.columns["lr"].elapsed_s.tolist() == [25.5]
    assert "time/elapsed_s" not in found.columns, "an axis, and no metric"


def test_one_run_without_wall_time_takes_it_from_all(tmp_path):
    folders = [
        write_run(tmp_path / "new", "flash", start_s=30.0),
        write_run(tmp_path / "old", "slow"),
    ]
    alone = read_runs(folders[:1])[0]
    assert [run.time_axis for run in alone] == ["wall time"]
    assert alone[0].columns["val/loss"].elapsed_s[0] == 30.0
    both = read_runs(folders)[0]
    assert [run.time_axis for run in both] == ["training time"] * 2
    assert [run.columns["val/loss"].elapsed_s[0] for run in both] == [0.0, 0.0]
    assert sections_of(both)[0].time_axis == "training time"


def test_auto_is_called_what_it_came_to(tmp_path):
    for name in ("slow", "flash"):
        folder = write_run(tmp_path / name, name)
        text = (folder / "config.yaml").read_text()
        assert text.startswith(f"attention: {name}\n")
        (folder / "config.yaml").write_text(
            text.replace(f"attention: {name}\n", "attention: auto\n", 1)
        )
    (section,) = groups_of(tmp_path / "slow", tmp_path / "flash")
    assert [group.label for group in section.groups] == ["slow", "flash"]
    assert section.differs == ["attention"]


def test_rows_under_a_profiler_count_as_time_and_not_as_step_times(tmp_path):
    rows = [step_row(i, 10.0) for i in range(8)]
    whole = {"iter": 8, "time/step_ms": None, "perf/tokens_per_s": None, "lr": 1.0}
    part = step_row(9, 30.0) | {"profile/captured_steps": 3}
    found = read_run(with_rows(tmp_path / "run", *rows, whole, part))
    assert found.step_ms.tolist() == [10.0] * 3, "without the first five and those captured"
    assert found.columns["lr"].elapsed_s.tolist() == pytest.approx([0.09])


def test_a_resumed_run_takes_back_what_was_lost(tmp_path):
    before = [step_row(i, 10.0, lr=1.0) for i in range(10)]
    after = [{"run": {}, "iter": 6}, *(step_row(i, 10.0, lr=2.0) for i in range(6, 9))]
    found = read_run(with_rows(tmp_path / "run", *before, *after))
    assert found.columns["lr"].iteration.tolist() == list(range(9))
    assert found.columns["lr"].value.tolist() == [1.0] * 6 + [2.0] * 3
    assert len(found.step_ms) == 1, "the first five rows of each start settle"


def test_a_half_written_last_line_is_left_out_and_said(tmp_path):
    folder = write_run(tmp_path / "run")
    whole = read_run(folder)
    with open(folder / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"iter": 400, "train/lo')
    found = read_run(folder)
    assert found.notes == [f"{folder}/metrics.jsonl: the last line is incomplete and was left out"]
    assert np.array_equal(found.columns["train/loss"].value, whole.columns["train/loss"].value)


@pytest.mark.parametrize("line", ["{broken", "[1]", '{"lr": 1}', '{"iter": "x"}', "\x00\xff"])
def test_a_damaged_line_is_named_with_its_number(tmp_path, line):
    folder = with_rows(tmp_path / "run", step_row(0, 1.0))
    text = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(f"{text}{line}\n{json.dumps(step_row(1, 1.0))}\n")
    with pytest.raises(
        ValueError, match=r"run/metrics.jsonl:3: this line was not written by training: .*; remove"
    ):
        read_run(folder)


def test_numbers_that_are_none_are_absent(tmp_path):
    """Nor those whose squares and sums would be none."""
    values = float("nan"), 1e308, -(10**400)
    rows = ({"iter": i, "lr": value} for i, value in enumerate(values, start=1))
    folder = with_rows(tmp_path / "run", step_row(0, 1.0, lr=None), *rows)
    assert "lr" not in read_run(folder).columns


def test_run_folders_are_found_below_a_folder_without_the_previous_ones(tmp_path):
    for name in ("a", "b/c", "a/previous-1"):
        write_run(tmp_path / name, rows=1)
    assert find_run_folders([tmp_path]) == [tmp_path / "a", tmp_path / "b/c"]
    previous = tmp_path / "a/previous-1"
    assert find_run_folders([previous, tmp_path / "a"]) == [previous, tmp_path / "a"]
    assert find_run_folders([tmp_path / "a", tmp_path / "b/../a"]) == [tmp_path / "a"], "once each"


def test_a_folder_without_metrics_is_named(tmp_path):
    with pytest.raises(ValueError, match="no metrics.jsonl in this folder or below"):
        find_run_folders([tmp_path])
    with pytest.raises(ValueError, match="nowhere: no such folder"):
        find_run_folders([tmp_path / "nowhere"])
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="file: is a file, not a folder; give the out_dir"):
        find_run_folders([tmp_path / "file"])


def test_a_run_without_rows_is_left_out_unless_it_is_the_only_one(tmp_path):
    empty, whole = with_rows(tmp_path / "empty"), write_run(tmp_path / "whole")
    runs, notes = read_runs([empty, whole])
    assert [run.name for run in runs] == ["whole"]
    assert len(notes) == 1 and "empty/metrics.jsonl: no row of metrics yet" in notes[0]
    with pytest.raises(NoRowsYet):
        read_runs([empty])


def test_equal_names_of_runs_follow_the_folders_in_which_they_differ():
    folders = ["/a/one/runs/01", "/a/two/runs/01", "/a/two/03"]
    assert run_names([Path(folder) for folder in folders]) == ["one/01", "two/01", "03"]
    assert run_names([Path("1/x"), Path("1/y/x"), Path("2/y/x")])[1:] == ["1/y/x", "2/y/x"]
    assert run_names([Path()]) == [Path.cwd().name]


def test_runs_that_differ_by_seed_alone_are_a_group(tmp_path):
    folders = [write_run(tmp_path / f"{a}{s}", a, s) for s in (1, 2) for a in ("slow", "flash")]
    (section,) = groups_of(*folders)
    assert {group.label: len(group.runs) for group in section.groups} == {"slow": 2, "flash": 2}
    assert section.differs == ["attention"] and not section.per_token


def test_labels_name_what_differs(tmp_path):
    a = write_run(tmp_path / "a", "slow", compile=False, cuda_graphs="false")
    b = write_run(tmp_path / "b", "flash", compile=True, cuda_graphs="true")
    c = write_run(tmp_path / "c", "flash", batch_size=128)
    (section,) = groups_of(a, b)
    labels = [group.label for group in section.groups]
    assert labels == ["attention=slow, compile=false", "attention=flash, compile=true"]
    (section,) = groups_of(b, c)
    assert [group.label for group in section.groups] != [labels[1], labels[1]]
    assert section.per_token, "another batch has other tokens"


def test_labels_that_would_be_equal_get_the_key_that_differs(tmp_path):
    keys = {"n_layer": 2, "dropout": 0.1, "learning_rate": 1e-4}
    ways = ({}, keys, keys | {"max_iters": 20}, keys | {"max_iters": 30, "batch_size": 8})
    runs = [write_run(tmp_path / str(i), **way) for i, way in enumerate(ways)]
    labels = [group.label for group in groups_of(*runs)[0].groups]
    assert len(set(labels)) == 4 and not any("#" in label for label in labels)
    assert labels[1].endswith("max_iters=2000") and labels[2].endswith("max_iters=20")


def test_options_of_a_command_are_keys_and_a_seed_is_none():
    command = "torchrun --nproc_per_node 2 train.py --lr=1e-3 n=3 --seed 4 --fast --wd 0.1 x"
    assert split_command(command) == {
        "command": "torchrun train.py x",
        **{"--nproc_per_node": "2", "--lr": "1e-3", "n": "3", "--fast": True, "--wd": "0.1"},
    }


def test_behind_the_first_key_a_label_leaves_out_what_most_have(tmp_path):
    ways = ({}, {"attention": "flash"}, {"attention": "math"}, {"attention": "math", "seed": 2})
    runs = [
        write_run(tmp_path / str(i), **{"attention": "slow", **way}) for i, way in enumerate(ways)
    ]
    other = write_run(tmp_path / "other", "math", kernels="fused")
    (section,) = groups_of(*runs, other)
    plain = ["attention=slow", "attention=flash", "attention=math"]
    assert [group.label for group in section.groups] == [*plain, "attention=math, kernels=fused"]


def test_another_text_is_another_section(tmp_path):
    a = write_run(tmp_path / "a")
    b = write_run(tmp_path / "b", data="stand-in")
    sections = groups_of(a, b)
    assert [len(section.runs) for section in sections] == [1, 1]
    assert sections[1].name == "shakespeare_char (stand-in)"


def test_spread_over_seeds_is_the_least_and_greatest_at_each_iteration(tmp_path):
    a = with_rows(tmp_path / "a", *(step_row(i, 10.0, lr=float(i)) for i in range(4)))
    b = with_rows(tmp_path / "b", *(step_row(i, 30.0, lr=float(3 * i)) for i in range(3)))
    runs = [read_run(a), read_run(b)]
    spread = spread_of(runs, "lr")
    assert spread.iteration.tolist() == [0, 1, 2], "what both reached"
    assert spread.mean.tolist() == [0, 2, 4]
    assert (spread.low.tolist(), spread.high.tolist()) == ([0, 1, 2], [0, 3, 6])
    assert spread.elapsed_s.tolist() == pytest.approx([0.02, 0.04, 0.06])
    assert spread_of(runs, "gpu/power_w") is None


def test_time_to_a_loss_is_when_it_was_first_reached(tmp_path):
    rows = []
    for iteration, loss in ((0, 4.0), (10, 2.0), (20, 3.0), (30, 1.0)):
        rows += [{"iter": iteration, "val/loss": loss}, step_row(iteration + 9, 100.0)]
    found = read_run(with_rows(tmp_path / "run", *rows))
    seconds = time_to_loss(found, np.array([5.0, 4.0, 3.0, 2.0, 1.5, 1.0, 0.9]))
    assert seconds[:6].tolist() == pytest.approx([0.0, 0.0, 0.5, 1.0, 2.75, 3.0])
    assert np.isnan(seconds[6])
    assert loss_that_all_reach([found]) == 1.0


def test_speed_is_compared_over_runs_where_there_are_two_a_side(tmp_path):
    folders = [write_run(tmp_path / f"{a}{s}", a, s) for s in (1, 2, 3) for a in ("slow", "flash")]
    (section,) = groups_of(*folders)
    slow, flash = section.groups
    found = compare_speed(section, slow, flash)
    assert found.over_runs and found.answer == "faster"
    assert found.ratio.low < 5.4 / 6.6 < found.ratio.high
    (single,) = groups_of(*folders[:2])
    found = compare_speed(single, *single.groups)
    assert not found.over_runs and found.answer == "faster"
    assert found.ratio.value == pytest.approx(5.4 / 6.6, rel=0.01)
    (short,) = groups_of(
        write_run(tmp_path / "s", rows=3), write_run(tmp_path / "t", "slow", rows=3)
    )
    assert compare_speed(short, *short.groups) is None


def test_one_run_each_on_a_cpu_and_equal_work_call_no_group_faster(tmp_path):
    folders = [write_run(tmp_path / a, a) for a in ("slow", "flash")]
    for folder in folders:
        config = folder / "config.yaml"
        config.write_text(config.read_text().replace("NVIDIA H200", "cpu"))
    (section,) = groups_of(*folders)
    assert compare_speed(section, *section.groups).answer == "cannot_tell"
    assert "Cannot tell whether flash is faster than slow" in headline(section)
    assert certainty(section) == [BY_CHANCE]
    rates = [
        with_rows(tmp_path / f"{ms}-{seed}", *rows_of_start(ms))
        for ms in (5.0, 6.0)
        for seed in (1, 2)
    ]
    for folder in rates[2:]:
        config = folder / "config.yaml"
        config.write_text(config.read_text().replace("learning_rate: 0.001", "learning_rate: 0.01"))
    (section,) = groups_of(*rates)
    found = compare_speed(section, *section.groups)
    assert found.over_runs and found.equal_work and found.answer == "cannot_tell"
    assert "do the same work per step: 5.01 against 6.01 ms per step" in headline(section)


def test_a_difference_that_two_starts_of_one_program_have_is_none(tmp_path, monkeypatch):
    monkeypatch.setitem(STEP_MS, "slow", 5.43)  # 0.6 % above flash
    folders = [write_run(tmp_path / a, a, rows=400) for a in ("slow", "flash")]
    (section,) = groups_of(*folders)
    found = compare_speed(section, *section.groups)
    assert found.ratio.high < 1 and found.answer == "equal"
