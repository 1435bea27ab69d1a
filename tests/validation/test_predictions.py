"""validation.predictions: pairs predicted and scored, by figures that are reckoned by hand."""

import json
import lzma
import shutil
from dataclasses import replace

import pytest

from profiling.analysis.whatif.checked import CheckedPrediction, Interval, Measured, Predicted
from profiling.analysis.whatif.whatif_records import FreeStep, Gates, Prediction, WhatIf
from profiling.shared.json_records import read_lines, to_json
from tests.paths import CAPTURES
from validation import pair_captures
from validation.frameworks import Measured as SeriesMeasured
from validation.pair_programs.series import HALVES, PROGRAMS, Change
from validation.pair_records import Capture, Machine, folder_of
from validation.pair_records import Measured as MeasuredPairs
from validation.predicted_changes import PREDICTED_BY
from validation.prediction_rivals import nsys_ai_estimate, of_ratio
from validation.prediction_scores import (
    bought,
    document,
    latest,
    median_over_rounds,
    row,
    score,
    steadiness,
)
from validation.predictions import PredictionsConfig, main, parts_of, times

BEFORE_MS = 10.0


def check(said_ms, was_ms, half_width=1.0, answer="shorter", **fields):
    """A prediction of a step that took 10 ms before, with what it took."""
    ratio = Interval(was_ms / 10, was_ms / 10 - 0.005, was_ms / 10 + 0.005)
    measured = Measured(BEFORE_MS, Interval(was_ms, was_ms, was_ms), ratio)
    step = Interval(said_ms, said_ms - half_width, said_ms + half_width)
    inside = step.low <= was_ms <= step.high
    told = Predicted(answer, step, Interval(said_ms / 10, 0.0, 1.0), "gpu")
    known = dict(
        change="--no data", kind="workers", program="a", variant="workers", capture="a.xz",
        tool="nsys", gpu="H200", free_ms=10.1, free_source="given", predicted=told,
        measured=measured, inside=inside, when="2026-12-01T00:00Z", commit="abc",
    )  # fmt: skip
    return CheckedPrediction(**{**known, **fields})


def untold(was_ms, reason="by 3 % or not at all", **fields):
    return check(was_ms, was_ms, inside=None, reason=reason, **fields)


FIVE = [
    check(5.5, 5.0),  # 10 % off, inside
    check(8.0, 8.0, program="b"),  # 0 %
    check(6.0, 8.0, program="c"),  # 25 %, outside
    check(9.9, 10.0, 0.9, answer="nothing", program="d", gpu="H100"),  # 1 %; buys nothing
    check(9.0, 10.0, program="e"),  # 10 %; false
]


def test_errors_signs_and_intervals_are_counted():
    found = score([*FIVE, untold(8.0, program="f"), untold(10.0, program="g", predicted=None)])
    assert (found.pairs, found.programs, found.gpus) == (7, 7, 2)
    assert (found.answered, found.abstained) == (5, 2)
    # errors: 0, 1, 10, 10, 25; the 90th percentile lies 0.6 of the way from the fourth to the fifth
    assert found.median_percent == pytest.approx(10)
    assert found.p90_percent == pytest.approx(10 + 0.6 * 15)
    assert found.worst_percent == pytest.approx(25)
    assert (found.gains, found.said_shorter) == (3, 3)
    assert (found.with_interval, found.inside) == (5, 4)
    # 6.5 / 4.5, 9 / 7, 7 / 5, 10.8 / 9, 10 / 8
    assert found.width == pytest.approx(9 / 7)
    assert (found.nothing, found.false_shorter) == (2, 1)
    cells = "7 | 7 | 2 | 5 | 10.0 % | 19.0 % | 25.0 % | 100 % of 3 | 80 % of 5 | 1.29 | 29 % of 7"
    assert row("x", found) == f"| x | {cells} | 1 of 2 | 0 |"


def test_a_sign_counts_from_three_per_cent_on():
    nothing = check(9.7, 9.7, answer="nothing")
    assert score([nothing]).gains == 1 and score([nothing]).said_shorter == 0
    assert score([check(9.71, 9.71)]).gains == 0
    assert row("x", score([untold(8.0)])).endswith("| – | – | – | – | – | – | 100 % of 1 | – | 0 |")


def test_rounds_have_a_median_and_an_interval_without_their_extremes():
    ten = [9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 100.0]
    assert median_over_rounds(ten) == Interval(5.5, 2.0, 9.0)  # 1 - 2 * 11 / 1024 is 98 %
    assert median_over_rounds(ten[:5]) == Interval(3.0, 1.0, 9.0)  # even all of five are 94 %
    assert median_over_rounds([2.0]) == Interval(2.0, 2.0, 2.0)


@pytest.mark.parametrize(
    ("middle", "low", "high", "buys"),
    [
        (0.95, 0.90, 1.00, "undecided"),  # room for a gain of 3 % and for nothing
        (0.95, 0.90, 0.99, "gain"),
        (0.985, 0.975, 1.00, "nothing"),  # within the noise, and no 3 %
        (0.991, 0.990, 0.992, "nothing"),  # gains less than 1 %
        (0.989, 0.988, 0.990, "gain"),
        (1.05, 1.04, 1.06, "nothing"),  # takes longer
        (1.05, 0.96, 1.15, "undecided"),
    ],
)
def test_a_change_buys_a_gain_or_nothing_or_the_rounds_cannot_tell(middle, low, high, buys):
    ratio = Interval(middle, low, high)
    assert bought(Measured(1.0, Interval(1.0, 1.0, 1.0), ratio)) == buys


@pytest.mark.parametrize(
    ("high", "said"), [(10.4, "within 5 %"), (11.4, "within 15 %"), (12, "wider")]
)
def test_predictions_are_told_by_how_steady_the_measured_step_is(high, said):
    checked = check(9.0, 10.5)
    measured = replace(checked.measured, step_ms=Interval(10.2, 10.0, high))
    assert steadiness(replace(checked, measured=measured)) == f"{said}, nsys, free step known"


def test_the_last_prediction_of_a_kind_counts_and_rivals_where_whatif_answers():
    later = replace(FIVE[0], when="2026-12-02T00:00Z")
    only = replace(FIVE[0], free_source="estimated")
    assert latest([FIVE[0], only, later]) == [later, only]
    rival = replace(FIVE[1], by="most to gain", inside=None, predicted=of_ratio(10.0, 0.5))
    alone = replace(rival, program="z")
    no_change = replace(FIVE[1], change=None, kind="bf16", predicted=None, variant="bf16")
    text = document([*FIVE, rival, alone, no_change], "# Title")
    lines = text.splitlines()
    assert "No prediction, as `whatif` has no such change: 1 pairs (bf16 1)." in lines
    rows = [line for line in lines if line.startswith("| most to gain, nsys, free step known |")]
    # 5 ms for 8 are 37.5 % off
    assert len(rows) == 1 and "| 1 | 1 | 1 | 1 | 37.5 % | 37.5 % | 37.5 % | 100 % of 1 |" in rows[0]
    assert "| no data, GPU | 5 | 5 | 2 | 5 |" in text and "capture only\n" not in text
    assert "| workers: `--no data` | 5 |" in text
    told = "ratio 0.900 (0.000 to 1.000) predicted, 1.000 (0.995 to 1.005) measured"
    assert lines[-1] == f"- e, workers, `--no data`, H200, nsys, free step known: {told}"


def test_the_table_names_classes_that_pairs_have():
    kinds = {change.kind for program in PROGRAMS.values() for change in program.changes}
    assert set(PREDICTED_BY) <= kinds
    assert {"bf16", "fused_optimizer", "channels_last", "larger_batch"} <= kinds - set(PREDICTED_BY)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    return pair_captures.pack(CAPTURES / "slow_eager.sqlite.gz", folder)


@pytest.fixture
def out(tmp_path, monkeypatch, packed):
    """A record of a program in each half, captured by nsys, and by another tool not kept."""
    changes = [Change("graphs", "graphs"), Change("bf16", "bf16"), Change("workers", "workers")]
    for program, half in (("one", "first"), ("two", "second")):
        monkeypatch.setitem(HALVES, program, half)
        folder = folder_of(tmp_path, "NVIDIA H200") / half
        for name in ("measured", "captures"):
            (folder / name).mkdir(parents=True)
        shutil.copy(packed, folder / "captures" / f"{program}.sqlite.xz")
        captures = [
            Capture(tool, "before", 20, 15.0, [14.0, 14.4], [14.0, 14.4], file, 1, "")
            for tool, file in (("nsys", f"{program}.sqlite.xz"), ("torch.profiler", None))
        ]
        rounds_ms = {"before": [14.0, 14.2], "graphs": [13.0, 13.2], "bf16": [9.0, 9.0]}
        rounds_ms["workers"] = [14.0, 14.2]
        record = MeasuredPairs(
            program, "built", "built 1", Machine("NVIDIA H200", "580", "some", 16, {}), "", "abc",
            "2026-12-01T00:00Z", {}, {}, rounds_ms, changes, [], captures, 1.0,
        )  # fmt: skip
        (folder / "measured" / f"{program}.json").write_text(to_json(record))
    return tmp_path


def ask(capture, change: str, free_ms: float | None) -> WhatIf:
    """Fake of whatif: graphs give 13.1 ms, and a loader is not in the capture."""
    assert capture.trace.kind == "nsys"
    if change == "--no data":
        raise ValueError("a.sqlite: no loader")
    assert change == "--graphs"
    made = Prediction(change, "shorter", None, 13.1, 12.9, 13.4, 0.92, 0.9, 0.94, 12, "gpu", [], "")
    free = FreeStep(
        free_ms or 14.9, "given" if free_ms else "estimated", 14.9, bool(free_ms), 1.0, 4.0
    )
    return WhatIf("one.sqlite", 15.0, 18, 100, 50, Gates(0, 0, True), free, [made])


def test_pairs_are_predicted_from_each_capture_that_was_kept(out, capsys, monkeypatch):
    markdown = out / "prediction.md"
    main(PredictionsConfig(out=str(out), markdown=str(markdown)), ask)
    lines = read_lines(out / "predictions.jsonl", CheckedPrediction)
    known = [each for each in lines if each.change == "--graphs" and each.by == "whatif"]
    assert [(each.free_ms, each.free_source) for each in known] == [
        (14.9, "estimated"),
        (14.2, "given"),
        (14.1, "given"),  # the step in turns with the change
    ]
    assert all(each.inside and each.tool == "nsys" for each in known)
    assert known[0].measured.before_ms == pytest.approx(14.1)
    ratio = (13.0 / 14.0 + 13.2 / 14.2) / 2
    assert known[0].measured.ratio.middle == pytest.approx(ratio)
    refused = [each for each in lines if each.change == "--no data" and each.by == "whatif"]
    assert {each.reason for each in refused} == {"a.sqlite: no loader"} and len(refused) == 3
    gains = [each for each in lines if each.by == "most to gain" and each.change == "--graphs"]
    (share,) = {each.predicted.ratio.middle for each in gains}
    assert 0 < share < 1 and gains[1].predicted.step_ms.middle == pytest.approx(14.2 * share)
    text = markdown.read_text()
    assert capsys.readouterr().out == text
    assert "3 pairs of the first half of the record. Predicted" in text
    assert "(bf16 1)" in text and "| graphs, GPU | 1 | 1 | 1 | 1 | 0.0 % |" in text
    assert (
        "| no data, refused | 1 | 1 | 1 | 0 | – | – | – | – | – | – | 100 % of 1 | – | 0 |" in text
    )
    main(PredictionsConfig(out=str(out), read=True), ask)
    assert capsys.readouterr().out == text
    assert read_lines(out / "predictions.jsonl", CheckedPrediction) == lines


def test_a_capture_that_cannot_be_read_is_refused_for_each_of_its_changes(out, capsys):
    (kept,) = out.glob("*/first/captures/*.xz")
    kept.write_bytes(lzma.compress(b"nothing of a capture"))
    main(PredictionsConfig(out=str(out)), ask)
    lines = read_lines(out / "predictions.jsonl", CheckedPrediction)
    assert [each.free_ms for each in lines if each.change == "--graphs"] == [None, 14.2, 14.1]
    assert all("one.sqlite" in each.reason for each in lines if each.change)
    assert "| whatif, nsys, capture only | 2 | 1 | 1 | 0 |" in capsys.readouterr().out


def test_the_second_half_is_refused_until_it_is_opened(out, capsys):
    for half in ("second", "all"):
        with pytest.raises(ValueError, match="frozen; open it once, with open_second_half=true"):
            main(PredictionsConfig(out=str(out), half=half), ask)
    assert not (out / "predictions.jsonl").exists() and not (out / "opened.json").exists()
    main(PredictionsConfig(out=str(out), half="second", open_second_half=True), ask)
    said = capsys.readouterr().out
    opened = json.loads((out / "opened.json").read_text())
    when = f"The second half was opened {opened['when']}, at commit {opened['commit']}."
    assert f"3 pairs of the second half of the record. {when}" in said
    lines = read_lines(out / "predictions.jsonl", CheckedPrediction)
    assert {each.program for each in lines} == {"two"}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"half": "third"}, "half=third: first, second or all"),
        ({"out": "nowhere"}, "out=nowhere: has no measured pairs of half=first"),
        ({"markdown": "no/where.md"}, "the folder no does not exist"),
        ({"read": True}, r"has no predictions\.jsonl; leave read=true away"),
    ],
)
def test_mistakes_are_named(out, keys, message):
    with pytest.raises(ValueError, match=message):
        main(PredictionsConfig(**{"out": str(out), **keys}), ask)


def test_nsys_ai_is_given_the_step_and_its_own_idle_time(tmp_path):
    """60 ms idle in 20 steps are 3 ms of each; its speedup is 1.25."""
    program, asked = tmp_path / "nsys-ai", tmp_path / "asked"
    gaps, speedup = [{"streamId": 7}, {"device_idle_ms": 60.0}], [{"speedup": 1.25}]
    answers = {"gpu_idle_gaps": gaps, "speedup_estimator": speedup}
    for name, rows in answers.items():
        (tmp_path / name).write_text(json.dumps(rows, indent=1))
    program.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n/bin/cat "{tmp_path}/$3"\n')
    program.chmod(0o755)
    capture = tmp_path / "a.sqlite"
    found = nsys_ai_estimate(str(program), capture, 15.0, 20, "launch")
    assert found == of_ratio(15.0, 0.8) and found.step_ms.middle == 12.0
    assert "-p iteration_ms=15.0 -p idle_ms=3.0" in asked.read_text()
    assert nsys_ai_estimate(str(program), capture, 15.0, 20, "copies") is None


def test_a_series_gives_pairs_of_programs_with_their_fault_and_without(tmp_path, packed, capsys):
    """One whose steps are the capture's, one whose are not, and a control."""
    for folder in ("measured", "nsys"):
        (tmp_path / folder).mkdir()
    for name, nsys_ms in (("sentences_home", 15.0), ("vision_floats", 38.0), ("e3nn_control", 15)):
        file = pair_captures.unpack(packed, tmp_path / "nsys")
        file.rename(file.with_name(f"{name}-1.sqlite"))
        measured = SeriesMeasured([14.0, 14.2], [13.1, 13.1], None, nsys_ms)
        (tmp_path / "measured" / f"{name}.json").write_text(to_json(measured))
    config = PredictionsConfig(out=str(tmp_path), series=7, gpu="NVIDIA H100")
    main(config, lambda capture, change, free_ms: ask(capture, "--graphs", free_ms))
    lines = read_lines(tmp_path / "predictions.jsonl", CheckedPrediction)
    ours = {each.program: each for each in lines if each.by == "whatif"}
    assert set(ours) == {"sentences_home", "vision_floats"}
    assert ours["sentences_home"].free_ms == 14.1 and ours["sentences_home"].inside
    assert ours["vision_floats"].reason == "the capture's steps are not the program's"
    assert "2 pairs of series 7 of `validation foreign`" in capsys.readouterr().out


def test_a_step_may_have_several_of_the_capture_s():
    assert parts_of(10.0, 13.9) == parts_of(10.0, 7.2) == 1
    assert parts_of(31.0, 10.0) == 3 and parts_of(25.0, 10.0) == parts_of(10.0, 15.0) == 0
    assert times(Interval(2.0, 1.0, 3.0), 3) == Interval(6.0, 3.0, 9.0)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"series": 5, "gpu": "H100"}, "series=5: is one of 6, 7"),
        ({"series": 7}, "gpu: name the GPU that the series was measured on"),
        ({"series": 7, "gpu": "H100"}, "has no measured program of series 7"),
    ],
)
def test_a_series_is_refused_where_it_is_not_there(tmp_path, keys, message):
    with pytest.raises(ValueError, match=message):
        main(PredictionsConfig(out=str(tmp_path), **keys))
