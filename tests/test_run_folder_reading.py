"""A run's folder read back: only settled, uncaptured rows; what is damaged is named."""

import json
from pathlib import Path

import pytest
from hand_reports import slow

from profiling.analysis.difference.comparison import compare
from profiling.analysis.runs.run_folder import (
    SETTLING_ROWS,
    is_run_folder,
    read_config,
    read_starts,
    report_of_run,
)

CONFIG = """\
# every key of this run
attention: slow
batch_size: 4
block_size: 32
gradient_accumulation_steps: 2
out_dir: out
in_force:
  device: cpu
"""
TOKENS = 4 * 32 * 2


def row(iteration: int, ms: float, **more) -> dict:
    return {
        "iter": iteration,
        "time/step_ms": ms,
        "perf/tokens_per_s": TOKENS / (ms * 1.1) * 1e3,  # the mean is longer than the median
        **more,
    }


def run_folder(path: Path, rows: list[dict]) -> Path:
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(CONFIG)
    (path / "environment.json").write_text(json.dumps({"packages": {"torch": "2.11"}, "git": None}))
    lines = [{"run": {"data": "text"}, "iter": 0}, *rows]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def rows_of(ms: float, count: int = 20) -> list[dict]:
    cold = [row(i * 10, 100.0) for i in range(SETTLING_ROWS)]
    return cold + [row(50 + i * 10, ms + 0.01 * (i % 3)) for i in range(count)]


def test_rows_of_captured_iterations_and_evaluations_are_no_step_times(tmp_path):
    rows = [
        {"iter": 0, "val/loss": 4.0},
        row(10, 5.0),
        row(20, 9.0, **{"profile/captured_steps": 3, "profile/step_ms": 12.0}),
        row(30, 1.0) | {"time/step_ms": None, "perf/tokens_per_s": None},
        row(40, 5.1),
    ]
    (found,) = read_starts(run_folder(tmp_path / "run", rows), TOKENS)
    assert [(r.iteration, r.step_ms) for r in found] == [(10, 5.0), (40, 5.1)]
    assert found[0].mean_ms == pytest.approx(5.5)


def test_each_start_of_a_resumed_run_settles_anew(tmp_path):
    again = [{"run": {"data": "text"}, "iter": 250}]
    folder = run_folder(tmp_path / "run", rows_of(5.0, 3) + again + rows_of(6.0, 2))
    report = report_of_run(folder, None, "none was made")
    assert report["window"]["step_ms"]["values"] == [5.0, 5.01, 5.02, 6.0, 6.01]
    assert max(report["window"]["step_ms"]["values"]) < 100


def test_the_report_of_a_run_without_a_capture_compares(tmp_path):
    one = report_of_run(run_folder(tmp_path / "a", rows_of(5.0)), None, "no capture in a/profile")
    other = report_of_run(run_folder(tmp_path / "b", rows_of(7.0)), None, "no capture in b/profile")
    found = compare(one, other)
    assert found["verdict"] == "slower"
    assert found["step_ms"]["ratio"] == pytest.approx(1.4, abs=0.01)
    assert found["families"] is None and found["buckets"] is None
    assert "baseline: no capture in a/profile" in found["comparability"]["notes"]
    assert found["baseline"]["kind"] == "training" and found["baseline"]["device"] == "cpu"


def test_a_capture_explains_and_what_it_added_is_a_bucket(tmp_path):
    capture = slow()
    one = report_of_run(run_folder(tmp_path / "a", rows_of(9.0)), capture, "")
    other = report_of_run(run_folder(tmp_path / "b", rows_of(9.5)), capture, "")
    found = compare(one, other, force=True)
    buckets = {row["bucket"]: row for row in found["buckets"]}
    assert buckets["capture_overhead"]["baseline_ms"] == pytest.approx(9.01 * 1.1 - 10.8, abs=0.1)
    means = [side["window"]["step_ms"]["mean"] for side in (one, other)]
    whole = sum(row["delta_ms"] for row in found["buckets"])
    assert whole == pytest.approx(means[1] - means[0], abs=1e-9)
    assert {row["family"] for row in found["families"]} == {"gemm", "attention", "elementwise"}


def test_in_force_is_no_key_of_the_configuration(tmp_path):
    folder = run_folder(tmp_path / "run", rows_of(5.0))
    assert read_config(folder)["in_force"] == {"device": "cpu"}
    assert "in_force" not in report_of_run(folder, None, "")["run"]["config"]


def test_a_run_that_is_still_writing_is_read_up_to_its_last_line(tmp_path):
    folder = run_folder(tmp_path / "run", rows_of(5.0))
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"iter": 260, "time/st')
    assert len(read_starts(folder, TOKENS)[0]) == 25


def test_a_run_that_logged_too_little_says_what_to_do(tmp_path):
    folder = run_folder(tmp_path / "run", rows_of(5.0, 1))
    with pytest.raises(ValueError, match=r"metrics.jsonl: 1 rows .* log more often"):
        report_of_run(folder, None, "")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.yaml", "a: [", r"config.yaml: cannot be read"),
        ("config.yaml", "- a\n- b\n", r"config.yaml: not a mapping"),
        ("config.yaml", "attention: slow\n", r"config.yaml: batch_size, .* missing"),
        ("environment.json", "[]", r"environment.json: not a JSON object"),
        ("environment.json", "{", r"environment.json: cannot be read"),
        ("metrics.jsonl", '{"iter": 1}\nnonsense\n{"iter": 2}\n', r"metrics.jsonl:2: not a row"),
        ("metrics.jsonl", '[1]\n{"iter": 2}\n', r"metrics.jsonl:1: not a row"),
        ("metrics.jsonl", '{"iter": 1, "time/step_ms": 5}\n{}\n', r"metrics.jsonl:1: not a row"),
        ("metrics.jsonl", b"\xff\xfe", r"metrics.jsonl: cannot be read"),
    ],
)
def test_a_damaged_file_is_one_clear_line(tmp_path, name, content, message):
    folder = run_folder(tmp_path / "run", rows_of(5.0))
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message) as caught:
        report_of_run(folder, None, "")
    assert "\n" not in str(caught.value)


def test_a_run_folder_is_known_by_its_record(tmp_path):
    assert is_run_folder(run_folder(tmp_path / "run", []))
    assert not is_run_folder(tmp_path)
