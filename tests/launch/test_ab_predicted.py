"""`python -m profiling ab --predicted`: which prediction, its line and its file, and bad files."""

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as with_fields

from profiling.analysis.difference.comparison_records import Experiment, ProcessRun, SeenWork
from profiling.analysis.statistics import mean_over_processes
from profiling.analysis.whatif.checked import CheckedPrediction, class_of, spelled
from profiling.analysis.whatif.whatif_records import FreeStep, Gates, Prediction, WhatIf
from profiling.launch.experiment import predicted
from profiling.shared.json_records import append_lines, read_json, read_lines, to_json
from profiling.verbs import ab
from tests.helpers.pace import paces

CPU = "config/shakespeare_char_cpu.yaml"
NO_DATA = Prediction(
    "--no data", "shorter", None, 7.9, 7.5, 8.5, 0.79, 0.75, 0.85, 6.0, "gpu", [], None
)  # fmt: skip
GRAPHS = replace(NO_DATA, change="--graphs", step_ms=6.0, low_ms=5.5, high_ms=6.6)
FOUND = WhatIf(
    "a.sqlite", 12.0, 8, 100, 50, Gates(0, 0, True), FreeStep(10.0, "given", 10.0, True, 1.0, 4.0),
    [NO_DATA, GRAPHS],
)  # fmt: skip


@pytest.fixture
def run_ab(tmp_path, monkeypatch):
    """ab in an empty folder with what.json, over processes of these step times, run by nobody."""
    monkeypatch.chdir(tmp_path)
    Path("what.json").write_text(to_json(FOUND))
    monkeypatch.setattr(ab, "check_on_this_machine", paces)
    environment = {"git": {"commit": "abc", "dirty": False}, "gpus": [{"name": "NVIDIA H200"}]}

    def run(*words: str, ms=((10.0, 10.1), (8.0, 8.02)), tokens=(128, 128)) -> int:
        def measure(experiment: Experiment, *_: object) -> Experiment:
            labels = experiment.factor.labels
            runs = [
                ProcessRun(0, label, [], "runs", 1.0, size, [60], [each], [each])
                for label, times, size in zip(labels, ms, tokens, strict=True)
                for each in times
            ]
            configs = {label: {} for label in labels}
            ran = {"configs": configs, "in_force": configs, "environment": environment}
            seen = {label: [SeenWork("a mark", 100, 10, [], 1)] * 2 for label in labels}
            return with_fields(experiment, runs=runs, seen_work=seen, **ran)

        monkeypatch.setattr(ab, "measure", measure)
        return ab.main(["--out", "out", "--iterations", "0", "--repeats", "2", *words])

    return run


TRAINED = ("--no-capture", CPU, "attention=slow,flash")


def test_the_second_value_is_held_against_the_prediction(run_ab, capsys):
    assert run_ab("--predicted", "what.json:1", *TRAINED) == 0
    line = "predicted 7.90 ms (7.50 to 8.50), measured 8.01 ms (7.88 to 8.14): inside"
    assert capsys.readouterr().out.splitlines().count(line) == 1
    assert line in Path("out/report.html").read_text()
    (checked,) = read_lines(Path("out/predictions.jsonl"), CheckedPrediction)
    assert checked == read_json(Path("out/results.json"), Experiment).prediction
    assert (checked.change, checked.kind, checked.variant) == ("--no data", "no data", "flash")
    assert (checked.capture, checked.free_ms, checked.free_source) == ("a.sqlite", 10.0, "given")
    assert (checked.gpu, checked.commit, checked.inside) == ("NVIDIA H200", "abc", True)
    assert checked.measured.before_ms == pytest.approx((10 * 10.1) ** 0.5)
    assert checked.measured.ratio.middle == pytest.approx(((8 * 8.02) / (10 * 10.1)) ** 0.5)
    assert checked.predicted and checked.predicted.ratio.high == 0.85


def test_of_two_commands_too_and_each_result_is_another_line(run_ab, capsys):
    commands = ("--", "python", "a.py", ":::", "python", "b.py")
    for _ in range(2):
        assert run_ab("--predicted", "what.json:2", *commands) == 0
    assert "(7.88 to 8.14): outside" in capsys.readouterr().out
    lines = read_lines(Path("out/predictions.jsonl"), CheckedPrediction)
    assert [(each.change, each.inside) for each in lines] == [("--graphs", False)] * 2


def test_values_of_other_size_are_compared_for_the_work_of_the_first(run_ab):
    """Twice the tokens in 16 ms are 8 ms for the tokens of the first."""
    words = ("--no-capture", CPU, "batch_size=4,8")
    run_ab("--predicted", "what.json:1", *words, ms=((10.0, 10.0), (16.0, 16.0)), tokens=(64, 128))
    (checked,) = read_lines(Path("out/predictions.jsonl"), CheckedPrediction)
    assert checked.measured.before_ms == pytest.approx(10.0)
    assert checked.measured.step_ms.middle == pytest.approx(8.0)


def test_where_only_the_sign_was_told_no_step_is_called_predicted(run_ab, capsys):
    vague = replace(NO_DATA, reason="by how much: it depends")
    Path("what.json").write_text(to_json(replace(FOUND, predictions=[vague])))
    assert run_ab("--predicted", "what.json", *TRAINED) == 0
    line = "predicted shorter: 7.50 to 8.50 ms, measured 8.01 ms (7.88 to 8.14): inside"
    assert line in capsys.readouterr().out
    (checked,) = read_lines(Path("out/predictions.jsonl"), CheckedPrediction)
    assert checked.inside and checked.reason == vague.reason


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (replace(NO_DATA, answer="cannot tell", reason="by 3 % or not at all"), "by 3 % or not"),
        (NO_DATA, "replayed unchanged, is not given back"),
    ],
)
def test_what_could_not_be_told_is_neither_inside_nor_outside(run_ab, capsys, found, why):
    passed = found is not NO_DATA
    Path("what.json").write_text(
        to_json(replace(FOUND, predictions=[found], gates=Gates(0, 30, passed)))
    )
    assert run_ab("--predicted", "what.json", *TRAINED) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "predicted: cannot tell (" in said and why in said
    (checked,) = read_lines(Path("out/predictions.jsonl"), CheckedPrediction)
    assert checked.inside is None and ", measured 8.01 ms" in spelled(checked)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("", "--predicted: names no file"),
        ("nowhere.json", "--predicted nowhere.json: cannot be read: No such file"),
        ("report.json", "missing required field `capture`"),
        ("what.json", r"name one of its predictions: what.json:1 \(--no data\), what.json:2 "),
        ("what.json:3", r"no such prediction; there are what.json:1 \(--no data\), what.json:2"),
        ("what.json:0", "no such prediction"),
        ("empty.json", "--predicted empty.json: has no prediction"),
    ],
)
def test_a_bad_file_is_named_before_anything_runs(run_ab, word, message):
    Path("report.json").write_text('{"schema_version": 1}')
    Path("empty.json").write_text(to_json(replace(FOUND, predictions=[])))
    with pytest.raises(ValueError, match=message) as caught:
        run_ab("--predicted", word, *TRAINED)
    assert "\n" not in str(caught.value) and not Path("out").exists()


def test_a_prediction_is_of_one_change(run_ab):
    with pytest.raises(ValueError, match="--predicted: 3 values; give two"):
        run_ab("--predicted", "what.json:1", "--no-capture", CPU, "attention=slow,flash,math")
    Path("a:1").write_text(to_json(replace(FOUND, predictions=[NO_DATA])))
    assert predicted.read_prediction("a:1").prediction == NO_DATA  # a file of that name


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("--no data", "no data"),
        ("--no data --graphs", "no data, graphs"),
        ("--scale gemm=0.8", "scale"),
        ("--without 'don't", "without"),
    ],
)
def test_the_class_of_a_change_leaves_its_values_out(change, kind):
    assert class_of(change) == kind


def test_mean_over_processes_has_students_interval():
    """Student's t of two processes is 12.71, and the error is half of their distance."""
    middle, low, high = mean_over_processes([8.0, 8.02])
    assert middle == pytest.approx((8.0 * 8.02) ** 0.5)
    half = (8.02 / 8.0) ** (12.706 / 2)
    assert (low, high) == pytest.approx((middle / half, middle * half), rel=1e-5)


def test_lines_stay_whole_behind_one_that_was_cut_off(tmp_path):
    file = tmp_path / "lines.jsonl"
    append_lines(file, [{"n": 1}, {"n": 2}])
    file.write_bytes(file.read_bytes() + b'{"n"')
    assert read_lines(file, dict) == [{"n": 1}, {"n": 2}]
    append_lines(file, [{"n": 3}])
    assert read_lines(file, dict) == [{"n": 1}, {"n": 2}, {"n": 3}], "at the second resume, too"
    file.write_bytes(b'{"n": 4')
    append_lines(file, [{"n": 5}])
    assert read_lines(file, dict) == [{"n": 5}]
    file.write_bytes(b"{\n")
    with pytest.raises(ValueError, match=r"lines\.jsonl: line 1 is damaged"):
        read_lines(file, dict)
    with pytest.raises(ValueError, match=r"away/lines\.jsonl: cannot be written"):
        append_lines(tmp_path / "away" / "lines.jsonl", [{}])
