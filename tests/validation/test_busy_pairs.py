"""Pairs of runs beside other work: existing ones are judged and not trained again."""

import pytest

from profiling.analysis.difference.comparison_records import Against
from tests.helpers.folders import rows_of_start, with_rows
from validation import busy_pairs
from validation.busy_pairs import NEIGHBOUR, PairsConfig, answers, main, table_row


@pytest.fixture
def no_training(monkeypatch):
    monkeypatch.setattr(busy_pairs, "run_process", lambda *_: pytest.fail("trains"))


def test_pairs_that_lie_in_the_folder_are_judged(tmp_path, capsys, no_training):
    levels_ms = (10, 14, 9, 11, 12, 10, 10, 13, 14, 9, 11, 12)
    for number, ms in enumerate(levels_ms):
        side = "ab"[number % 2]
        folder = with_rows(tmp_path / f"equal-{number // 2:02d}" / side, *rows_of_start(float(ms)))
        config = folder / "config.yaml"
        config.write_text(config.read_text().replace("NVIDIA H200", "cpu"))
    main(PairsConfig(folder=str(tmp_path), pairs=6, differing=0))
    _, _, by_compare, by_steps, dealt = capsys.readouterr().out.splitlines()
    assert by_compare == "| equal runs, `compare` | 6 | 0 | 0 | 6 |"
    assert by_steps == "| the same, were steps taken as the unit | 6 | 6 | | |"
    name, judged, called, *_ = dealt.strip("| ").split(" | ")
    assert (name, judged) == ("the same, dealt as 5 against 5", "40") and int(called) <= 3


def test_a_difference_the_wrong_way_is_not_counted_as_found():
    found = [
        Against("4", "6", ratio, (ratio, ratio), 1.0, verdict)
        for ratio, verdict in (
            (1.5, "slower"),
            (1.4, "slower"),
            (0.8, "faster"),
            (1, "cannot_tell"),
        )
    ]
    assert table_row("x", answers(found)) == "| x | 4 | 2 and 1 the wrong way | 0 | 1 |"


def test_the_neighbours_of_a_seed_are_the_same_and_end_with_the_run(monkeypatch):
    started = []

    class Process:
        def __init__(self, words):
            assert words[2] == NEIGHBOUR
            started.append([words[3], "runs"])

        def __enter__(self):
            return self

        def __exit__(self, *_):
            assert started[-1][1] == "killed"

        def kill(self):
            started[-1][1] = "killed"

    monkeypatch.setattr(busy_pairs.subprocess, "Popen", Process)
    for number in (7, 7, 8):
        with busy_pairs.neighbours(PairsConfig(folder="x", neighbours=1, seed=3), number):
            assert started[-1][1] == "runs"
    assert started == [["300070", "killed"], ["300070", "killed"], ["300080", "killed"]]
