"""Start of an experiment's processes, read from what their runs left behind."""

import dataclasses
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from profiling.analysis.difference.comparison_records import Evened, Experiment, Factor, ProcessRun
from profiling.analysis.difference.experiment import conclude
from profiling.analysis.difference.iterations import first_iterations
from profiling.report.comparison.document import experiment_document
from profiling.report.comparison.iterations import sentence
from profiling.report.renderers.markdown import markdown

MS = {"compile=false": 10.0, "compile=true": 5.0}
BEGIN_S = {"compile=false": 1.0, "compile=true": 7.0}


def leave_run(folder: Path, label: str, tokens: int = 128) -> None:
    """Leaves a run as the trainer does: iteration 0 took ten times as long as the rest."""
    folder.mkdir(parents=True)
    compiled, ms = label == "compile=true", MS[label]
    keys = {"batch_size": tokens // 32, "block_size": 32, "gradient_accumulation_steps": 1}
    (folder / "config.yaml").write_text(json.dumps(keys))
    rows = [{"run": {}, "iter": 0}]
    for iteration, step_ms, elapsed_s in ((0, 10 * ms, 0.0), (60, ms, 60 * ms / 1e3)):
        elapsed_s += BEGIN_S[label] + 10 * ms / 1e3
        row = {"iter": iteration, "time/step_ms": step_ms, "perf/tokens_per_s": 1e3}
        rows.append(row | {"time/elapsed_s": elapsed_s})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = {"wall_s": 16.0, "time/compile_s": 5.0 if compiled else None}
    (folder / "summary.json").write_text(json.dumps(summary))
    times = {"first_iteration": 0, "ms": [10 * ms, *[ms] * 60]}
    (folder / "step_times.json").write_text(json.dumps(times))


def process(number: int, label: str, ms: float, tokens: int = 128) -> ProcessRun:
    step_ms = [ms, ms * 1.001]
    return ProcessRun(number, label, [], f"runs/{number}", 20.0, tokens, [60, 70], step_ms, step_ms)


@pytest.fixture
def experiment(tmp_path) -> Experiment:
    runs = [process(i, list(MS)[i % 2], MS[list(MS)[i % 2]] * (1 + i / 1e4)) for i in range(6)]
    for run in runs:
        leave_run(tmp_path / run.folder, run.label)
    configs = {label: {"compile": label == "compile=true"} for label in MS}
    in_force = {label: {"device": "cpu"} for label in MS}
    asked = Experiment(
        *(1, Factor("compile", ["false", "true"], list(MS)), [], 20, 50, 10),
        *(runs, configs, in_force),
    )
    return conclude(asked, [None])


def test_the_time_before_iteration_0_adds_up(experiment, tmp_path):
    found = first_iterations(experiment, tmp_path, 3)
    eager, compiled = found.values
    assert eager.ms == [100.0, 10.0, 10.0] and compiled.ms == [50.0, 5.0, 5.0]
    assert eager.start.compile_s is None and eager.start.capture_s is None
    assert eager.start.before_s == pytest.approx(1.0) == eager.start.rest_s
    start = compiled.start
    assert start.before_s == pytest.approx(7.0) and start.rest_s == pytest.approx(2.0)
    assert start.python_s == pytest.approx(4.0)  # the process took 20 s, its run 16
    assert eager.start.slow_s == pytest.approx(0.09, abs=1e-3)


def test_a_slow_start_is_paid_back_by_the_step_it_gains(experiment, tmp_path):
    first, _ = first_iterations(experiment, tmp_path, 3).evened
    assert first.later_s == pytest.approx(6.0 - 0.09 + 0.045, abs=2e-3)
    assert first.gain_ms == pytest.approx(5.0, rel=1e-3)
    assert first.iterations == pytest.approx(first.later_s / 5e-3, rel=1e-3)
    assert "even after 1,19" in sentence(first)


def test_values_that_do_not_differ_are_never_even(experiment, tmp_path):
    pairs = [dataclasses.replace(p, verdict="no_difference") for p in experiment.result.comparisons]
    result = dataclasses.replace(experiment.result, comparisons=pairs)
    assert first_iterations(replace(experiment, result=result), tmp_path, 3).evened == []


def test_tokens_of_unlike_iterations_are_not_compared(experiment, tmp_path):
    by_token = replace(experiment, result=None)
    runs = [
        process(run.number, run.label, 10.0, 128 * (1 + run.number % 2)) for run in by_token.runs
    ]
    concluded = conclude(replace(by_token, runs=runs), [None])
    found = first_iterations(concluded, tmp_path, 3)
    assert len(found.values) == 2 and found.evened == []
    text = markdown(experiment_document(replace(concluded, first_iterations=found)))
    assert "Iteration by iteration" in text and "speed-up" not in text


def test_runs_without_step_times_have_no_table(experiment, tmp_path):
    (tmp_path / "runs/1/step_times.json").unlink()
    assert first_iterations(experiment, tmp_path, 3) is None
    assert "Iteration by iteration" not in markdown(experiment_document(experiment))


def test_a_damaged_file_is_named(experiment, tmp_path):
    (tmp_path / "runs/0/step_times.json").write_text('{"first_iteration": 0, "ms": ["x"]}')
    with pytest.raises(ValueError, match=r"runs/0/step_times.json: .*ms"):
        first_iterations(experiment, tmp_path, 3)


def test_markdown_has_iterations_and_start_side_by_side(experiment, tmp_path):
    whole = replace(experiment, first_iterations=first_iterations(experiment, tmp_path, 2))
    text = markdown(experiment_document(whole))
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    told = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    assert told["0"] == ["100.0", "50.00", "2.00x"] and told["1"] == ["10.00", "5.00", "2.00x"]
    assert ["first", "4.00", "5.00", "–", "2.00", "7.00"] in [
        [cell.strip() for cell in row[1:]] for row in rows if "compile=true" in row[0]
    ]


@pytest.mark.parametrize(
    ("later_s", "gain_ms", "iterations", "said"),
    [
        (6.0, 5.0, 1200.0, "b reaches its speed 6.0 s after a, and its step is 5.00 ms shorter"),
        (-6.0, -5.0, 1200.0, "a reaches its speed 6.0 s after b, and its step is 5.00 ms shorter"),
        (6.0, -5.0, None, "b reaches its speed 6.0 s after a, and its step is longer, so it never"),
        (-6.0, 5.0, None, "a reaches its speed 6.0 s after b, and its step is longer, so it never"),
    ],
)
def test_the_sentence_names_the_one_that_starts_slowly(later_s, gain_ms, iterations, said):
    assert sentence(Evened("a", "b", "first", later_s, gain_ms, iterations)).startswith(said)
