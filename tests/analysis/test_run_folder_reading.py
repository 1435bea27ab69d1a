"""Run folders as sides of a comparison: settled, uncaptured rows alone; damage is named."""

import json
from dataclasses import replace

import pytest

from profiling.analysis.difference.compared import Environment, compared_run
from profiling.analysis.difference.comparison import compare
from profiling.analysis.runs.folder import is_run_folder, read_config, read_run
from tests.helpers.folders import TOKENS, append, rows_of_start, step_row, with_rows
from tests.helpers.reports import slow_report


def test_rows_of_captured_iterations_and_evaluations_are_no_step_times(tmp_path):
    rows = [
        *rows_of_start(5.0, 1),
        {"iter": 60, "val/loss": 4.0},
        step_row(60, 9.0) | {"profile/captured_steps": 3, "profile/step_ms": 12.0},
        step_row(70, 1.0) | {"time/step_ms": None, "perf/tokens_per_s": None},
        step_row(80, 5.1) | {"perf/tokens_per_s": TOKENS / 5.5 * 1e3},
    ]
    steps = read_run(with_rows(tmp_path / "run", *rows)).steps
    assert steps.iteration.tolist() == [50, 80]
    assert steps.median_ms.tolist() == [5.0, 5.1]
    assert steps.mean_ms.tolist() == pytest.approx([5.0, 5.5])


def test_each_start_of_a_resumed_run_settles_anew(tmp_path):
    again = [{"run": {"data": "text"}, "iter": 80}]
    rows = rows_of_start(5.0, 3) + again + rows_of_start(6.0, 2, first=80)
    run = read_run(with_rows(tmp_path / "run", *rows))
    assert run.step_ms.tolist() == [5.0, 5.01, 5.02, 6.0, 6.01]
    assert compared_run(run, None, "none was made").step_ms == run.step_ms.tolist()


def test_a_run_without_a_capture_compares(tmp_path):
    sides = [
        compared_run(
            read_run(with_rows(tmp_path / name, *rows_of_start(ms))), None, f"none in {name}"
        )
        for name, ms in (("a", 5.0), ("b", 7.0))
    ]
    found = compare(*sides)
    assert found.verdict == "slower"
    assert found.step_ms.ratio == pytest.approx(1.4, abs=0.01)
    assert found.families is None and found.buckets is None
    assert "a: none in a" in found.comparability.notes
    assert found.baseline.kind == "training" and found.baseline.device == "NVIDIA H200"
    assert found.baseline.steps == 20


def test_a_capture_explains_and_what_it_added_is_a_bucket(tmp_path):
    runs = [
        read_run(with_rows(tmp_path / name, *rows_of_start(ms)))
        for name, ms in (("a", 9.0), ("b", 9.5))
    ]
    one, other = (compared_run(run, slow_report()) for run in runs)
    found = compare(one, other, force=True)
    buckets = {row.bucket: row for row in found.buckets}
    assert buckets["capture_overhead"].baseline_ms == pytest.approx(9.01 - 10.8, abs=0.1)
    whole = sum(row.delta_ms for row in found.buckets)
    assert whole == pytest.approx(other.mean_ms - one.mean_ms, abs=1e-9)
    assert {row.family for row in found.families} == {"gemm", "attention", "elementwise"}


def test_what_capturing_added_on_a_cpu_is_not_what_lies_between_the_phases(tmp_path):
    bare = replace(slow_report(), breakdown=None, idle=None, families=[], kernels=[])
    sides = [
        compared_run(read_run(with_rows(tmp_path / name, *rows_of_start(9.0))), bare)
        for name in ("a", "b")
    ]
    rows = {row.bucket: row.baseline_ms for row in compare(*sides).buckets}
    captured_ms, phases_ms = bare.window.step_ms.mean, sum(r.host_ms for r in bare.phases) / 20
    assert rows["host_other"] == pytest.approx(captured_ms - phases_ms)
    assert rows["capture_overhead"] == pytest.approx(sides[0].mean_ms - captured_ms)
    assert sum(rows.values()) == pytest.approx(sides[0].mean_ms)


def test_in_force_is_no_key_of_the_configuration(tmp_path):
    folder = with_rows(tmp_path / "run", *rows_of_start(5.0))
    assert read_config(folder)["in_force"]["device"] == "NVIDIA H200"
    run = read_run(folder)
    assert "in_force" not in run.config and run.in_force["device"] == "NVIDIA H200"


def test_versions_are_those_of_the_environment_and_may_be_unknown(tmp_path):
    folder = with_rows(tmp_path / "run", *rows_of_start(5.0))
    assert compared_run(read_run(folder), None, "").environment == Environment()
    facts = {"packages": {"torch": "2.11", "triton": None}, "git": None, "cuda": "13.0", "gpus": []}
    (folder / "environment.json").write_text(json.dumps(facts))
    environment = compared_run(read_run(folder), None, "").environment
    assert environment == Environment({"torch": "2.11", "triton": None}, cuda="13.0")
    (folder / "environment.json").write_text('{"packages": ["torch"]}')
    with pytest.raises(ValueError, match=r"run/environment.json: .* at `\$.packages`"):
        compared_run(read_run(folder), None, "")


def test_the_clock_of_a_run_is_its_summary_s(tmp_path):
    folder = with_rows(tmp_path / "out", *rows_of_start(5.0))
    assert compared_run(read_run(folder), None, "").gpu_clock is None
    (folder / "summary.json").write_text('{"gpu/sm_clock_mhz": 1634.5}')
    found = compared_run(read_run(folder), None, "").gpu_clock
    assert found is not None and (found.sm_mhz, found.held_down_by) == (1634.5, None)


def test_a_run_that_is_still_writing_is_read_up_to_its_last_line(tmp_path):
    folder = with_rows(tmp_path / "run", *rows_of_start(5.0))
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"iter": 260, "time/st')
    assert len(read_run(folder).step_ms) == 20


def test_a_run_that_logged_too_little_says_what_to_do(tmp_path):
    run = read_run(with_rows(tmp_path / "run", *rows_of_start(5.0, 0)))
    with pytest.raises(ValueError, match=r"metrics.jsonl: no row .* log more often"):
        compared_run(run, None, "")


SIZE = "batch_size: 1\nblock_size: 1\ngradient_accumulation_steps: 1\n"


def row(**values: float) -> str:
    whole = {"iter": 1, "time/step_ms": 5, "perf/tokens_per_s": 5}
    return json.dumps(whole | values) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.yaml", "a: [", r"config.yaml: cannot be read"),
        ("config.yaml", "- a\n- b\n", r"config.yaml: not a mapping"),
        ("config.yaml", "attention: slow\n", r"config.yaml: .* `batch_size`; give a folder"),
        ("config.yaml", "batch_size: x\n", r"config.yaml: .* `str` - at `\$.batch_size`"),
        ("config.yaml", "[" * 100_000, r"config.yaml: cannot be read: maximum recursion"),
        ("config.yaml", "a: &a [x]\nb: [*a, *a]\n", r"config.yaml: cannot be read: YAML aliases"),
        ("config.yaml", f"{SIZE}batch_size: 0\n", r"config.yaml: .*>= 1 - at `\$.batch_size`"),
        ("config.yaml", 'batch_size: "\\uD800"\n', r"config.yaml: .*surrogates"),
        ("config.yaml", f"{SIZE}dataset: []\n", r"config.yaml: .*`array` - at `\$.dataset`"),
        ("config.yaml", f"{SIZE}in_force: 5\n", r"config.yaml: .*`int` - at `\$.in_force`"),
        (
            "config.yaml",
            f"{SIZE}in_force: {{text_sha256: {{}}}}\n",
            r"config.yaml: .*`object` - at `\$.in_force.text_sha256`",
        ),
        ("summary.json", "[" * 100_000, r"summary.json: is damaged"),
        ("metrics.jsonl", "[" * 100_000 + "\n", r"metrics.jsonl:1: this line"),
        ("metrics.jsonl", '{"iter": 9223372036854775808}\n', r"metrics.jsonl:1: this line"),
        ("metrics.jsonl", row(**{"time/step_ms": 0}), r"metrics.jsonl:1: this line"),
        ("metrics.jsonl", row(**{"perf/tokens_per_s": 5e-324}), r"metrics.jsonl:1: this line"),
        ("environment.json", "[]", r"environment.json: is damaged: Expected `object`, got `array`"),
        ("environment.json", "{", r"environment.json: is damaged"),
        ("summary.json", "{", r"summary.json: is damaged"),
        ("metrics.jsonl", '{"iter": 1}\nnonsense\n{"iter": 2}\n', r"metrics.jsonl:2: this line"),
        ("metrics.jsonl", '[1]\n{"iter": 2}\n', r"metrics.jsonl:1: this line"),
        ("metrics.jsonl", '{"iter": 1, "time/step_ms": 5}\n{}\n', r"metrics.jsonl:1: this line"),
        ("metrics.jsonl", b"\xff\xfe\n", r"metrics.jsonl:1: this line"),
    ],
)
def test_a_damaged_file_is_one_clear_line(tmp_path, name, content, message):
    folder = with_rows(tmp_path / "run", *rows_of_start(5.0))
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message) as caught:
        read_run(folder)
    assert "\n" not in str(caught.value)


def test_a_run_folder_is_known_by_its_record(tmp_path):
    assert is_run_folder(with_rows(tmp_path / "run"))
    assert not is_run_folder(tmp_path)


def test_what_a_start_logged_and_lost_is_no_step_time(tmp_path):
    folder = with_rows(tmp_path / "run", *rows_of_start(5.0, 4))
    append(folder, {"run": {}, "iter": 70}, *rows_of_start(6.0, 1, first=71))
    assert read_run(folder).step_ms.tolist() == [5.0, 5.01, 5.02, 6.0]
