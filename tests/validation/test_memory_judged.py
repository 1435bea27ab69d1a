"""Snapshots of programs whose memory is known, judged: here they are made up."""

from pathlib import Path

import pytest

from profiling.shared.json_records import to_json
from tests.helpers.memory_snapshots import MIB, Allocator, Training, out_of_memory, pickled
from validation import memory_judged
from validation.memory_judged import (
    SNAPSHOTS,
    JudgedConfig,
    judge,
    main,
    missing_requirement,
    print_table,
)
from validation.memory_programs import PROGRAMS, Truth, planted_line
from validation.packed_snapshots import pack
from validation.started_programs import chosen_names


@pytest.fixture
def judged(tmp_path):
    def made(training: Training, answer, kind, planted, peak=None):
        (tmp_path / "leak.pickle").write_bytes(pickled(training.snapshot()))
        pack(tmp_path / "leak.pickle", tmp_path / SNAPSHOTS)
        peak = training.allocator.peak if peak is None else peak
        truth = Truth("leak", answer, kind, planted, peak, "2.11.0", "a GPU")
        (tmp_path / "leak.json").write_text(to_json(truth))
        return judge(tmp_path, "leak")

    return made


def test_what_is_as_it_is_known_has_no_fault(judged):
    leak = Training(leak=2 * MIB).make().run(6)
    assert not judged(leak, "leak", "moments", "train.py:55").faults
    assert not judged(Training().make().run(3), "peak", "moments", "train.py:44").faults
    failed = out_of_memory()
    assert not judged(failed, "out_of_memory", None, "model.py:71").faults
    fragments = Training().make().fragment(12)
    fragments.allocator.alloc(64 * MIB, [])
    assert not judged(fragments, "fragmented", None, "train.py:66").faults


def test_each_fault_has_a_sentence(judged, capsys):
    row = judged(Training(leak=2 * MIB).make().run(6), "peak", "weights", "train.py:1", peak=7)
    answer, kind, line, peak = row.faults
    assert answer == "the answer is leak, not peak" and kind == "most is moments, not weights"
    assert line == "the line is train.py:55, not train.py:1" and peak.endswith(", not 7")
    print_table([row])
    assert "train.py:55 (wrong)" in capsys.readouterr().out
    late = Training(Allocator(recording=False)).make().run(1)
    late.allocator.recording = True
    row = judged(late.run(3), "peak", None, None, peak=1)
    assert "The history begins later than the program" in row.faults[-1]


def test_programs_are_chosen_and_those_that_lack_something_left_out(tmp_path, capsys):
    assert chosen_names("all", PROGRAMS) == list(PROGRAMS)
    assert chosen_names("leak", PROGRAMS) == ["leak"]
    with pytest.raises(ValueError, match="programs=leaks: not one of transformers"):
        chosen_names("leaks", PROGRAMS)
    small = JudgedConfig(str(tmp_path), programs="nanogpt", small=True)
    assert missing_requirement("nanogpt", small) == "give nanogpt=FOLDER"
    main(small)
    assert "nanogpt is left out" in capsys.readouterr().err
    assert planted_line("leak").startswith("memory_programs.py:")


@pytest.mark.slow
def test_a_program_runs_on_the_cpu_and_once(tmp_path, capsys, start, monkeypatch):
    def run(command: list[str], log: Path, environ: dict[str, str], longest_s: float) -> None:
        process = start(command[1:], **environ)
        said, _ = process.communicate(timeout=longest_s)
        assert process.returncode == 0, said

    monkeypatch.setattr(memory_judged, "run_logged", run)
    config = JudgedConfig(str(tmp_path), programs="out_of_memory", small=True)
    main(config)
    assert "1 of 1: out_of_memory" in capsys.readouterr().err
    main(config)
    assert not capsys.readouterr().err
